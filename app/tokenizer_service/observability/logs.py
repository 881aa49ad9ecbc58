"""Logs: one line per event to stderr, as text or as JSON.

A process that uvicorn starts logs in the same form as one that the command starts; this includes
uvicorn's own lines. The formatters escape control characters, so that a message that quotes input
cannot forge a line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The id of the request that this task or thread handles, or empty."""

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class EscapingFormatter(logging.Formatter):
    """Formats a record as text, with escapes for control characters.

    A message that belongs to a request ends with the request's id.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record; a traceback keeps its lines, indented."""
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        plain = logging.makeLogRecord(record.__dict__)
        plain.exc_info = plain.exc_text = None
        message = _escape(super().format(plain), keep_newlines=False)
        request_id = REQUEST_ID.get()
        if request_id:
            message += f" request_id={request_id}"
        if not trace:
            return message
        return message + "\n    " + _escape(trace, keep_newlines=True).replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, in ASCII: time (UTC), level, logger, message.

    Adds `request_id` and `exception` (the traceback) if the record has them.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as a line of JSON."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"))


def _escape(text: str, *, keep_newlines: bool) -> str:
    escaped = _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)
    return escaped if keep_newlines else escaped.replace("\n", "\\x0a")


def configure_logging(level: str, form: Literal["text", "json"] = "text") -> None:
    """Log `app` from `level` upwards to stderr, unless handlers are configured already.

    uvicorn's handlers keep their destination and get the same form, as do the warnings and errors
    of other packages.
    """
    formatter = JsonFormatter() if form == "json" else EscapingFormatter(_TEXT)
    for name in ("uvicorn", "uvicorn.access"):
        for handler in logging.getLogger(name).handlers:
            handler.setFormatter(formatter)
    if logging.lastResort is not None:  # for loggers without a handler
        logging.lastResort.setFormatter(formatter)
    own = logging.StreamHandler(sys.stderr)
    own.setFormatter(formatter)
    if form == "json":  # Python's warnings would be plain lines
        logging.captureWarnings(True)
        logging.getLogger("py.warnings").handlers = [own]
    logger = logging.getLogger("tokenizer_service")
    logger.setLevel(level.upper())
    if logger.handlers or logging.getLogger().handlers:
        return
    logger.addHandler(own)
    logger.propagate = False
