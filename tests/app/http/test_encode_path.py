"""The path of an encode request: the Python functions between the protocol and the engine."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from app.http.protocol import GuardedHttpProtocol
from app.main import create_app
from app.settings import Settings
from tokenizer_core.registry import ArtifactRef

MOST_FUNCTIONS = 15
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


def functions_to_the_engine(settings: Settings, body: bytes) -> tuple[list[str], bytes]:
    """The project's functions in the order of their first calls, and the response."""
    seen: dict[str, None] = {}
    is_between = False

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal is_between
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            if code.co_qualname == "GuardedHttpProtocol._respond":
                is_between = True
            elif "Engine.encode" in code.co_qualname:
                is_between = False
            elif is_between:
                seen[f"{Path(code.co_filename).relative_to(ROOT)} {code.co_qualname}"] = None

    async def run() -> bytes:
        app = create_app(settings)
        async with app.router.lifespan_context(app) as state:
            config = Config(app, log_level="critical", lifespan="off")
            config.load()
            protocol = GuardedHttpProtocol(config, ServerState(), dict(state))
            wire = Wire()
            protocol.connection_made(wire)
            head = b"POST /encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
            for _ in range(2):  # the first one fills caches
                wire.sent = b""
                sys.setprofile(watch)
                seen.clear()
                protocol.data_received(request)
                async with asyncio.timeout(30):
                    while not wire.sent.endswith(b"}"):  # noqa: ASYNC110 - no event says it
                        await asyncio.sleep(0)
                sys.setprofile(None)
            return wire.sent

    try:
        response = asyncio.run(run())
        return list(seen), response
    finally:
        sys.setprofile(None)


def test_few_functions_are_between_the_protocol_and_the_engine(
    settings: Settings, starter: ArtifactRef
) -> None:
    body = json.dumps({"text": "the quick brown fox"}).encode()
    functions, response = functions_to_the_engine(settings, body)
    assert b'"count"' in response
    assert functions[0] == "app/http/middleware.py RequestObserver.__call__"
    assert functions[-1] == "tokenizer_core/tokenizer.py Tokenizer.encode_to_json"
    assert len(functions) <= MOST_FUNCTIONS, "\n".join(functions)
