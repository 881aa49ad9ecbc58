"""The program of a process that renders chat templates, within limits of memory and time.

It reads requests from descriptor 0 and writes responses to descriptor 1, each a u64 little-endian
length and a body. A request is the u64 length of JSON, the JSON, and the contents of messages that
are one text, as UTF-8; `content_lengths` has their characters. A response is a status byte and a
body: JSON for an error, `RESULT_HEADER`, lengths and origins (i32), JSON of the turns if they were
asked for, and UTF-8 text for a result. The parent unpickles nothing that a template may have
influenced.

A request that takes longer than its limit ends the process (SIGALRM); one that needs more memory
gets a response, and the parent ends the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import sys
import traceback
from array import array
from collections import OrderedDict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from tokenizer_core.chat.turn_borders import find_turns
from tokenizer_core.errors import ChatInputError

if TYPE_CHECKING:
    from tokenizer_core.chat.template import ChatTemplate

FRAME_HEADER: Final = struct.Struct("<Q")
RESULT_HEADER: Final = struct.Struct("<QQ")
"""Number of runs, and length in characters of the JSON that precedes the text."""
EXIT_OUT_OF_MEMORY: Final = 77
_TEMPLATES_KEPT: Final = 16
# What messages of Python and of Jinja call the text of a template.
_NAMES_OF_TEXT: Final = ("tokenizer_core.chat.traced_text.TracedText", "TracedText")


class Status:
    """The first byte of a response."""

    RESULT = b"R"
    SOURCE_NEEDED = b"S"
    """Send the request again with the source of its template."""
    BAD_INPUT = b"I"
    TEMPLATE_FAILED = b"F"
    TOO_LARGE = b"L"
    OUT_OF_MEMORY = b"M"


def serve() -> None:
    """Process requests until the input ends."""
    try:
        _serve()
    except MemoryError:  # no memory is left even for a response
        os._exit(EXIT_OUT_OF_MEMORY)


def _serve() -> None:
    from tokenizer_core.chat import template  # here: the parent imports this module, not jinja2

    memory_bytes = int(sys.argv[1])
    requests, responses = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    _limit_process(memory_bytes)
    make_template = template.ChatTemplate
    templates: OrderedDict[str, ChatTemplate] = OrderedDict()
    while len(header := requests.read(FRAME_HEADER.size)) == FRAME_HEADER.size:
        body = requests.read(FRAME_HEADER.unpack(header)[0])
        response = None
        # The exception holds what the template made, so it must end before the response is written.
        with contextlib.suppress(MemoryError):
            response = _respond(body, templates, make_template)
        _write(responses, response or [Status.OUT_OF_MEMORY])


def _limit_process(memory_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    used = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = {
        resource.RLIMIT_AS: used + memory_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 16,
    }
    for which, limit in limits.items():
        # A system may refuse one of them (macOS has no limit of address space).
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (limit, limit))


def _respond(
    body: bytes, templates: OrderedDict[str, ChatTemplate], make_template: type[ChatTemplate]
) -> list[bytes]:
    request = _read_request(body)
    _set_alarm(request["time_limit_seconds"])
    try:
        template = templates.get(request["template"])
        if template is None:
            if request["source"] is None:
                return [Status.SOURCE_NEEDED]
            template = templates[request["template"]] = make_template(request["source"])
            if len(templates) > _TEMPLATES_KEPT:
                templates.popitem(last=False)
        templates.move_to_end(request["template"])
        text, runs = template.render(request)
        turns = ""
        if request["with_borders"]:
            turns = json.dumps(find_turns(template, request, (text, runs)))
        if len(turns) + len(text) > request["max_chars"]:
            return [Status.TOO_LARGE]
        return [
            Status.RESULT,
            RESULT_HEADER.pack(len(runs), len(turns)),
            array("i", [length for length, _ in runs]).tobytes(),
            array("i", [origin for _, origin in runs]).tobytes(),
            (turns + text).encode(),
        ]
    except ChatInputError as error:
        return [Status.BAD_INPUT, json.dumps([str(error), len(request["messages"]) - 1]).encode()]
    except MemoryError:
        raise
    except Exception as error:  # whatever an expression of the template raised
        return [Status.TEMPLATE_FAILED, _describe(error)]
    finally:
        _set_alarm(0)


def _read_request(body: bytes) -> dict[str, Any]:
    (size,) = FRAME_HEADER.unpack_from(body)
    end = FRAME_HEADER.size + size
    request: dict[str, Any] = json.loads(body[FRAME_HEADER.size : end])
    contents, at = body[end:].decode(), 0
    for message, length in zip(request["messages"], request["content_lengths"], strict=True):
        if length is not None:
            message["content"] = contents[at : at + length]
            at += length
    return request


def _set_alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _describe(error: Exception) -> bytes:
    from jinja2.exceptions import TemplateError

    is_own = isinstance(error, TemplateError)
    message = str(error) if is_own else f"{type(error).__name__}: {error}"
    for name in _NAMES_OF_TEXT:
        message = message.replace(name, "str")
    # Jinja rewrites tracebacks to lines of the template.
    lines: list[int | None] = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename in ("<template>", "<unknown>")
    ]
    lines += [getattr(error, "lineno", None)]
    line = next((line for line in reversed(lines) if line is not None), None)
    where = f" (line {line} of the template)" if line is not None else ""
    index = getattr(error, "message_index", None)
    return json.dumps([f"{message[:2000]}{where}", index]).encode()


def _write(responses: IO[bytes], parts: list[Any]) -> None:
    responses.write(FRAME_HEADER.pack(sum(map(len, parts))))
    for part in parts:
        responses.write(part)
    responses.flush()
