from __future__ import annotations

import json
import logging
import re
import sys

import pytest

from tokenizer_service.observability.logs import REQUEST_ID, EscapingFormatter, JsonFormatter


@pytest.mark.row(34)
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
        logging.getLogger("tokenizer_service.test").error("it failed", exc_info=True)
    line = EscapingFormatter("%(message)s").format(caplog.records[0])
    first, *rest = line.splitlines()
    assert first == "it failed"
    assert len(rest) >= 3
    assert all(part.startswith("    ") for part in rest)


def test_a_line_of_a_request_has_its_id() -> None:
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO"})
    known = REQUEST_ID.set("r1")
    try:
        assert EscapingFormatter("%(message)s").format(record) == "x request_id=r1"
        assert json.loads(JsonFormatter().format(record))["request_id"] == "r1"
    finally:
        REQUEST_ID.reset(known)
    assert EscapingFormatter("%(message)s").format(record) == "x"
    assert "request_id" not in json.loads(JsonFormatter().format(record))


@pytest.mark.row(34)
def test_json_logs_are_one_line_each() -> None:
    text = "x\r\n2026 ERROR forged\x1b[31m\x7f\x85\u2028 é\ud800"
    try:
        raise ValueError(text)
    except ValueError:
        fields = {
            "msg": "said %s",
            "args": (text,),
            "levelname": "ERROR",
            "exc_info": sys.exc_info(),
        }
        line = JsonFormatter().format(logging.makeLogRecord(fields))
    assert line.isascii()
    assert line.isprintable()
    parsed = json.loads(line)
    assert parsed["message"] == f"said {text}"
    assert parsed["level"] == "error"
    assert "ValueError: x" in parsed["exception"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", parsed["time"])
