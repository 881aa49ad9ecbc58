"""Logs: one line an event to stderr, whatever stands in the message.

It stands alone so that a process started by uvicorn alone logs the same way as one started by the
command. Control characters are escaped: a message that quotes what came from outside cannot forge
a line. Imports nothing of the service.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class EscapingFormatter(logging.Formatter):
    """Formats a record; control characters of its message become escapes.

    Example:
        >>> record = logging.makeLogRecord({"msg": "a\\r\\nb", "levelname": "INFO", "name": "app"})
        >>> EscapingFormatter("%(levelname)s %(message)s").format(record)
        'INFO a\\\\x0d\\\\x0ab'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record; a traceback keeps its lines, indented."""
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        plain = logging.makeLogRecord(record.__dict__)
        plain.exc_info = plain.exc_text = None
        message = _escape(super().format(plain), keep_newlines=False)
        if not trace:
            return message
        return message + "\n    " + _escape(trace, keep_newlines=True).replace("\n", "\n    ")


def _escape(text: str, *, keep_newlines: bool) -> str:
    escaped = _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)
    return escaped if keep_newlines else escaped.replace("\n", "\\x0a")


def configure_logging(level: str) -> None:
    """Send what `app` logs from `level` on to stderr, unless someone has set handlers already."""
    logger = logging.getLogger("app")
    logger.setLevel(level.upper())
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
