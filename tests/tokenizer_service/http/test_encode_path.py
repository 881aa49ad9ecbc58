"""The path of an encode request: the Python functions between the protocol and the engine, and
between the engine and the response."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tokenizer_service.http.protocol import GuardedHttpProtocol
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings
from uvicorn.config import Config
from uvicorn.server import ServerState

from tokenizer_core.registry import ArtifactRef

MOST_FUNCTIONS_AT_ONCE, MOST_FUNCTIONS_AFTERWARDS = 18, 8
MOST_FUNCTIONS_IN_A_TASK = 19
ROOT = Path(__file__).parents[3]
OURS = tuple(f"{ROOT / name}/" for name in ("app", "tokenizer_client", "tokenizer_core"))


class Wire(asyncio.Transport):
    """Records what the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def functions_around_the_engine(
    settings: Settings, body: bytes, *, is_at_once: bool
) -> tuple[list[str], list[str], bytes]:
    """The project's functions before and after the engine, in the order of their first calls, and
    the response."""
    before: dict[str, None] = {}
    after: dict[str, None] = {}
    seen: dict[str, None] | None = None
    first = "_Service.serve_now" if is_at_once else "GuardedHttpProtocol._respond"

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal seen
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            if code.co_qualname == first:
                seen = before
            elif "Engine.encode" in code.co_qualname:
                seen = after
            elif code.co_qualname == "ClosingTransport.write_whole":
                seen = None
            elif seen is not None:
                seen[f"{Path(code.co_filename).relative_to(ROOT)} {code.co_qualname}"] = None

    async def run() -> bytes:
        app = create_app(settings)
        app.middleware_stack = app.build_middleware_stack()
        async with app.router.lifespan_context(app) as state:
            config = Config(app, log_config=None, lifespan="off", proxy_headers=False)
            config.load()
            protocol = GuardedHttpProtocol(config, ServerState(), dict(state))
            if is_at_once:
                protocol._serve_now = app.serve_now  # type: ignore[attr-defined]
            else:
                protocol._serve_now = None
            wire = Wire()
            protocol.connection_made(wire)
            head = b"POST /encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
            for _ in range(2):  # the first one fills caches
                wire.sent = b""
                sys.setprofile(watch)
                before.clear()
                after.clear()
                protocol.data_received(request)
                async with asyncio.timeout(30):
                    while not wire.sent.endswith(b"}"):  # noqa: ASYNC110 - no event says it
                        await asyncio.sleep(0)
                sys.setprofile(None)
            return wire.sent

    try:
        response = asyncio.run(run())
        return list(before), list(after), response
    finally:
        sys.setprofile(None)


BODY = json.dumps({"text": "the quick brown fox"}).encode()


def test_few_functions_serve_a_small_request_at_once(
    settings: Settings, starter: ArtifactRef
) -> None:
    before, after, response = functions_around_the_engine(settings, BODY, is_at_once=True)
    assert b'"count"' in response
    assert before[0] == "app/tokenizer_service/http/middleware.py RequestObserver.serve_now"
    assert before[-1].startswith("tokenizer_core/tokenizer.py Tokenizer.")
    assert len(before) <= MOST_FUNCTIONS_AT_ONCE, "\n".join(before)
    assert len(after) <= MOST_FUNCTIONS_AFTERWARDS, "\n".join(after)


def test_few_functions_are_between_a_task_and_the_engine(
    settings: Settings, starter: ArtifactRef
) -> None:
    before, _, response = functions_around_the_engine(settings, BODY, is_at_once=False)
    assert b'"count"' in response
    assert before[0] == "app/tokenizer_service/http/middleware.py RequestObserver.__call__"
    assert before[-1].startswith("tokenizer_core/tokenizer.py Tokenizer.")
    assert len(before) <= MOST_FUNCTIONS_IN_A_TASK, "\n".join(before)
