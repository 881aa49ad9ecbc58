"""Run the blocks of docs/client.md against a service."""

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.integration.end_to_end.test_readme import blocks
from tests.integration.server_process import ADMIN_KEY, Server, publish_bytes, serve
from tests.tokenizer_service.chats import with_templates
from tokenizer_core.registry import ArtifactStore


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("client") / "artifacts"


@pytest.fixture(scope="module")
def server(artifacts: Path):
    store, ref = ArtifactStore(artifacts), publish_bytes(artifacts, "starter")
    store.publish(with_templates(store.open(ref)), name="starter")
    with serve(artifacts) as server:
        yield server


def test_the_blocks_of_the_page_run(server: Server, tmp_path, monkeypatch, capsys):
    page = (REPOSITORY / "docs" / "client.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENIZER_URL", server.url)
    monkeypatch.setenv("TOKENIZER_API_KEY", ADMIN_KEY)
    names: dict[str, object] = {"__name__": "client_page"}
    found = blocks(page, "python")
    assert len(found) >= 8
    for block in found:
        exec(compile(block, "docs/client.md", "exec"), names)
    assert "too_many_tokens" in capsys.readouterr().out
