"""Makes async_client.py of client.py: `python -m tests.tokenizer_client.make_async_client`.

The two differ in a few words and in which methods are coroutines, so one source serves both, and
`help`, completion and type checkers see real methods in each.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

from tests.conftest import REPOSITORY

SOURCE: Final = REPOSITORY / "tokenizer_client" / "client.py"
TARGET: Final = SOURCE.with_name("async_client.py")

_REPLACED: Final = {
    r"\bClient\b": "AsyncClient",
    r"\b(Job|Corpus|Tokenizer|TokenFile)Resource\b": r"Async\1Resource",
    r"\bRunner\b": "AsyncRunner",
    r"\bDuplexTransport\b": "AsyncDuplexTransport",
    r"\bBaseTransport\b": "AsyncBaseTransport",
    r"\bHTTPTransport\b": "AsyncHTTPTransport",
    r"Generator\[(\w+), None, None\]": r"AsyncGenerator[\1, None]",
    r"\bGenerator,": "AsyncGenerator,",
}
_SENTENCES: Final = {
    "Client: every call of the service as a blocking method.": (
        "AsyncClient: every call of the service as a method to await."
    ),
    "`make_async_client.py` makes async_client.py of this file: change methods here.": (
        "Made by make_async_client.py of client.py: change methods there."
    ),
    "The service, blocking; any number of threads may share one client.": (
        "The service, awaited, from one event loop."
    ),
    "Use the client in a `with`, or close it.": "Use `async with`, or `aclose`.",
    "def close(": "async def aclose(",
    ".close()": ".aclose()",
    "def __enter__": "async def __aenter__",
    "def __exit__": "async def __aexit__",
}
_RUN: Final = re.compile(
    r"    def _run\(.*?\n\n    def _iterate\(.*?\n\n(?=    def )", flags=re.DOTALL
)
_ASYNC_RUN: Final = """\
    async def _run(self, flow: Flow[T]) -> T:
        return await AsyncRunner(self, self._http, self._duplex).run(flow)

    def _iterate(self, flow: Emitting[T]) -> AsyncGenerator[T, None]:
        return AsyncRunner(self, self._http, self._duplex).iterate(flow)

"""


def make(source: str) -> str:
    """The source of async_client.py."""
    source = _RUN.sub(lambda _: _ASYNC_RUN, source)
    for old, new in _SENTENCES.items():
        assert old in source, old
        source = source.replace(old, new)
    for pattern, new in _REPLACED.items():
        source = re.sub(pattern, new, source)
    head, *methods = re.split(r"(?=\n    (?:async )?def )", source)
    return _formatted(head + "".join(map(_make_method, methods)))


def _formatted(source: str) -> str:
    for arguments in (("check", "--select", "I", "--fix-only", "-q"), ("format",)):
        command = [sys.executable, "-m", "ruff", *arguments, f"--stdin-filename={TARGET}", "-"]
        done = subprocess.run(command, input=source, check=True, capture_output=True, text=True)
        source = done.stdout
    return source


def _make_method(method: str) -> str:
    if re.search(r"\breturn self\.(_client\.)?_run\(", method):
        method = method.replace("\n    def ", "\n    async def ", 1)
        method = re.sub(r"\breturn (self\.(_client\.)?_run\()", r"return await \1", method)
    if "async def aclose" in method:
        method = re.sub(r"( +)(self\._\w+\.aclose\(\))", r"\1await \2", method)
    return method.replace("        self.aclose()", "        await self.aclose()")


if __name__ == "__main__":
    TARGET.write_text(make(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
