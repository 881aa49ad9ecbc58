"""Imports in a real child process, which limits of memory and time end."""

import pytest

from tests.tokenizer_service.conftest import serve
from tests.tokenizer_service.jobs.conftest import start_child
from tests.tokenizer_service.routes.exchanges import problem
from tests.tokenizer_service.routes.test_import import RANKS, send
from tokenizer_service.jobs import vocabulary_import
from tokenizer_service.jobs.vocabulary_import import VocabularyImports

BYTES = {"pattern": "gpt2", "no_special": True}


def import_with(client, files=None, name="mine", **changes):
    services = client.app.services
    settings = services.settings.model_copy(update=changes)
    object.__setattr__(services, "imports", VocabularyImports(settings, start_child))
    return send(client, name, files or {"r": RANKS}, **BYTES)


def test_limits_of_memory_and_time_end_an_import_and_not_the_server(store, monkeypatch):
    with serve(store) as client:
        assert import_with(client).status_code == 201
        assert client.post("/encode", json={"text": "a", "tokenizer": "mine"}).is_success
        monkeypatch.setattr(vocabulary_import, "MEMORY_BYTES", 64 << 20)
        large = {"tokenizer.json": b"[" + b"[0]," * (7 << 20) + b"0]"}
        problem(import_with(client, large, "hostile"), 422, "out_of_memory")
        monkeypatch.undo()
        found = problem(import_with(client, name="slow", work_seconds=0.01), 413, "work_too_long")
        assert found["limit"] == pytest.approx(0.01)
        names = {one["name"] for one in client.get("/tokenizers").json()["tokenizers"]}
        assert names == {"starter", "mine"}
        assert client.post("/encode", json={"text": "a"}).is_success
    assert not list((store.root / "run").glob("import-*"))
