from __future__ import annotations

import logging

import pytest

from app.logs import EscapingFormatter


def test_a_message_cannot_forge_a_line() -> None:
    text = "x\r\n2026 ERROR forged\x1b[31m\u2028"
    record = logging.makeLogRecord({"msg": "said %s", "args": (text,), "levelname": "INFO"})
    line = EscapingFormatter("%(levelname)s %(message)s").format(record)
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


def test_a_traceback_keeps_its_lines_indented(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("first\nforged line")
    except ValueError:
        logging.getLogger("app.test").error("it failed", exc_info=True)
    line = EscapingFormatter("%(message)s").format(caplog.records[0])
    first, *rest = line.splitlines()
    assert first == "it failed"
    assert len(rest) >= 3
    assert all(part.startswith("    ") for part in rest)
