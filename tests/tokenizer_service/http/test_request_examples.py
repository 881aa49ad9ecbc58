"""Every example request in `/docs` works, and every JSON body has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tokenizer_service.http.request_examples import REQUEST_EXAMPLES
from tokenizer_service.jobs.runner import JobRunner
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings

from tests.tokenizer_service.chats import rendering_here, with_templates
from tests.tokenizer_service.conftest import ADMIN_KEY
from tokenizer_core import TokenizerSpec
from tokenizer_core.registry import ArtifactStore

__all__ = ["rendering_here"]

PATHS = {"{corpus_id}": "stories"}
JSON_BODIES = [
    (method, path, body["examples"])
    for path, operations in create_app(Settings()).openapi()["paths"].items()
    for method, operation in operations.items()
    if (body := operation.get("requestBody", {}).get("content", {}).get("application/json"))
]


@pytest.fixture
def client(
    settings: Settings,
    store: ArtifactStore,
    small_spec: TokenizerSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rendering_here: None,
) -> Iterator[TestClient]:
    """A service with the objects that the examples name, in which no job starts."""
    store.publish(with_templates(small_spec), name="starter")

    async def do_nothing(runner: JobRunner) -> None:
        pass

    monkeypatch.setattr(JobRunner, "start", do_nothing)
    (tmp_path / "news.txt").write_text("some news")
    its = settings.model_copy(update={"corpus_roots": (tmp_path,)})
    with TestClient(create_app(its), headers={"X-API-Key": ADMIN_KEY}) as client:
        client.put("/corpora/stories", content=b"a story")
        yield client


@pytest.mark.parametrize(
    ("method", "path", "examples"), JSON_BODIES, ids=[path for _, path, _ in JSON_BODIES]
)
def test_each_example_is_answered(
    client: TestClient, method: str, path: str, examples: dict[str, Any]
) -> None:
    assert examples
    for name, value in PATHS.items():
        path = path.replace(name, value)
    for name, example in examples.items():
        assert example["summary"]
        answer = client.request(method, path, json=example["value"])
        assert answer.status_code in (200, 202), (name, answer.text)


def test_every_model_has_examples_and_every_example_a_place() -> None:
    shown = [name for _, _, examples in JSON_BODIES for name in examples]
    assert len(shown) == sum(map(len, REQUEST_EXAMPLES.values()))
