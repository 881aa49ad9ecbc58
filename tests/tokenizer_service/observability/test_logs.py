import json
import logging
import re
import subprocess
import sys

import pytest

from tokenizer_service.observability.logs import REQUEST_ID, EscapingFormatter, JsonFormatter

FORGED = "x\r\n2026 ERROR forged\x1b[31m\x7f\x85\u2028 é\ud800"


def record_of(**fields):
    try:
        raise ValueError(FORGED)
    except ValueError:
        failed = {"levelname": "ERROR", "msg": "said %s", "args": (FORGED,)}
        return logging.makeLogRecord({**failed, "exc_info": sys.exc_info(), **fields})


@pytest.mark.row(34)
def test_a_message_cannot_forge_a_line():
    line = EscapingFormatter("%(levelname)s %(message)s").format(record_of(exc_info=None))
    assert line.startswith("ERROR said x")
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    first, *rest = (
        EscapingFormatter("%(message)s").format(record_of(msg="bad", args=())).splitlines()
    )
    assert first == "bad"
    assert len(rest) >= 3
    assert all(part.startswith("    ") for part in rest)  # the traceback


@pytest.mark.row(34)
def test_json_logs_are_one_line_each():
    line = JsonFormatter().format(record_of())
    assert line.isascii()
    assert line.isprintable()
    parsed = json.loads(line)
    assert parsed["message"] == f"said {FORGED}"
    assert parsed["level"] == "error"
    assert "ValueError: x" in parsed["exception"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", parsed["time"])


def test_a_line_of_a_request_has_its_id():
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO"})
    known = REQUEST_ID.set("r1")
    try:
        assert EscapingFormatter("%(message)s").format(record) == "x request_id=r1"
        assert json.loads(JsonFormatter().format(record))["request_id"] == "r1"
    finally:
        REQUEST_ID.reset(known)
    assert EscapingFormatter("%(message)s").format(record) == "x"
    assert "request_id" not in json.loads(JsonFormatter().format(record))


def test_lines_of_other_packages_have_the_same_form():
    code = (
        "import logging, warnings\n"
        "from tokenizer_service.observability.logs import configure_logging\n"
        "configure_logging('info', 'json')\n"
        "logging.getLogger('asyncio').error('lost', exc_info=ValueError('x'))\n"
        "warnings.warn('old')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["logger"] for line in lines] == ["asyncio", "py.warnings"]
