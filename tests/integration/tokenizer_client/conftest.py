"""Fixtures: both clients, and real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.server_process import ADMIN_KEY, Server, serve
from tests.tokenizer_client.both_clients import AnyClient
from tests.tokenizer_client.conftest import MakeClient, clock, make_client, play
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import TokenizerSpec

__all__ = ["clock", "make_client", "play"]


@pytest.fixture
def client(make_client: MakeClient, server: Server) -> AnyClient:
    """A client of a real server that no test changes."""
    return make_client(server.url)


@pytest.fixture(scope="session")
def busy_server(
    tmp_path_factory: pytest.TempPathFactory, small_spec: TokenizerSpec, other_spec: TokenizerSpec
) -> Iterator[Server]:
    """A real server that runs jobs and accepts corpora."""
    root = tmp_path_factory.mktemp("busy") / "artifacts"
    ArtifactStore(root).publish(small_spec, name="starter")
    ArtifactStore(root).publish(other_spec, name="other")
    with serve(root) as running:
        yield running


@pytest.fixture
def admin(make_client: MakeClient, busy_server: Server) -> AnyClient:
    return make_client(busy_server.url, api_key=ADMIN_KEY)
