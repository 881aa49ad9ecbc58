"""Which thread serves a request: only short work runs on the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from tokenizer_service.access.limits import INLINE_BODY_BYTES, INLINE_DETAILED_BYTES, INLINE_ITEMS
from tokenizer_service.routes import decode, dialects, encode, text

ROUTES = {
    "/encode": (encode, "render_encoding"),
    "/decode": (decode, "render_decoding"),
    "/tokenize": (dialects, "render_tokenize"),
    "/count": (text, "render_count"),
    "/chunk": (text, "render_chunks"),
}
LONG = "a " * INLINE_DETAILED_BYTES
LOOP, SMALL, LARGE = "asyncio", "small-request", "large-request"
"""How the names of the threads begin; the test client runs the event loop in the first."""


@pytest.mark.parametrize(
    ("path", "body", "thread"),
    [
        ("/encode", {"text": LONG, "return": ["ids"]}, LOOP),
        ("/encode", {"text": ["a"] * INLINE_ITEMS}, LOOP),
        ("/encode", {"text": "a", "return": ["ids", "pieces", "offsets"]}, LOOP),
        ("/encode", {"text": ["a"] * (INLINE_ITEMS + 1)}, SMALL),
        ("/encode", {"text": LONG, "return": ["pieces"]}, SMALL),
        ("/encode", {"text": "a" * INLINE_BODY_BYTES}, LARGE),
        ("/encode", {"text": ["a"] * INLINE_BODY_BYTES}, LARGE),
        ("/decode", {"tokens": [1] * 500}, LOOP),
        ("/decode", {"tokens": [[1]] * (INLINE_ITEMS + 1)}, SMALL),
        ("/count", {"text": ["a"] * (INLINE_ITEMS + 1)}, SMALL),
        ("/tokenize", {"prompt": LONG, "return_token_strs": True}, SMALL),
        ("/tokenize", {"inputs": LONG}, SMALL),
        ("/chunk", {"text": "a", "max_tokens": 1}, LARGE),
    ],
)
def test_where_work_runs(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: dict[str, Any],
    thread: str,
) -> None:
    module, name = ROUTES[path]
    render: Callable[..., Any] = getattr(module, name)
    threads: list[str] = []

    def watched(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return render(*arguments, **options)

    monkeypatch.setattr(module, name, watched)
    assert client.post(path, json=body).status_code == 200
    (used,) = threads
    assert used.startswith(thread), used
    assert client.app.services.budget.used == 0  # type: ignore[attr-defined]
