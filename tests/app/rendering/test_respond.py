"""Where a request is served: on the event loop only what is one text, or one list of ids."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.access.limits import WorkQueue

TEXT = {"text": "low lower"}
LIGHT: list[tuple[str, dict[str, Any]]] = [
    ("/encode", TEXT),
    ("/encode", {**TEXT, "return": ["ids"]}),
    ("/decode", {"tokens": [108, 111]}),
    ("/decode", {"ids": [108, 111]}),
    ("/count", TEXT),
    ("/truncate", {**TEXT, "max_tokens": 2}),
    ("/verify", TEXT),
    ("/verify", {"tokens": [108, 111]}),
    ("/tokenize", {"prompt": "low"}),
    ("/tokenize", {"content": "low"}),
    ("/detokenize", {"tokens": [108, 111]}),
]
HEAVY: list[tuple[str, dict[str, Any]]] = [
    ("/encode", {"text": ["low", "lower"]}),
    ("/encode", {**TEXT, "return": ["ids", "pieces"]}),
    ("/encode", {**TEXT, "return": ["offsets"]}),
    ("/decode", {"tokens": [[108], [111]]}),
    ("/decode", {"ids": [[108], [111]]}),
    ("/count", {"text": ["low", "lower"]}),
    ("/chunk", {**TEXT, "max_tokens": 2}),
    ("/tokenize", {"prompt": ["low", "lower"]}),
    ("/tokenize", {"prompt": "low", "return_token_strs": True}),
    ("/tokenize", {"content": "low", "with_pieces": True}),
    ("/tokenize", {"inputs": "low"}),
    ("/tokenize", {"text": "low"}),
    ("/detokenize", {"tokens": [[108], [111]]}),
    ("/encode", {"text": "low " * 2000}),
]


@pytest.mark.row(22)
@pytest.mark.parametrize(
    ("path", "body", "n_on_threads"),
    [*((*case, 0) for case in LIGHT), *((*case, 1) for case in HEAVY)],
)
def test_only_light_work_is_done_on_the_event_loop(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: dict[str, Any],
    n_on_threads: int,
) -> None:
    runs = []
    run = WorkQueue.run

    async def watch(queue: WorkQueue, *arguments: Any) -> Any:
        runs.append(arguments)
        return await run(queue, *arguments)

    monkeypatch.setattr(WorkQueue, "run", watch)
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert len(runs) == n_on_threads
