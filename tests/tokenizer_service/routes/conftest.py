"""Tests here only read, so `client` is the app of their module; others use `own_client`."""

from __future__ import annotations

from functools import partial

import pytest
from starlette.testclient import TestClient

from tests.tokenizer_service.routes import exchanges
from tests.tokenizer_service.routes.exchanges import Post, Refused


@pytest.fixture
def client(shared_client: TestClient) -> TestClient:
    return shared_client


@pytest.fixture
def post(client: TestClient) -> Post:
    return partial(exchanges.post, client)


@pytest.fixture
def refused(client: TestClient) -> Refused:
    return partial(exchanges.refusal, client)
