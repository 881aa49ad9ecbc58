"""Errors from responses of the service, of a proxy, or of another server."""

import email.utils
import time

import pytest

from tokenizer_client.errors import NotFoundError, ProblemError, UnavailableError, problem_of


def test_a_body_that_is_no_problem_document_is_still_an_error():
    for body in (b"", b"<html>", b"[]", b"{}", b'"code"', b"\xff", b"[" * 60_000):
        error = problem_of(404, {}, body)
        assert type(error) is NotFoundError
        assert (error.code, error.limit, error.errors) == ("http_404", None, [])


def test_fields_of_wrong_types_are_left_out():
    error = problem_of(418, {}, b'{"code": 1, "limit": "x", "actual": true, "errors": [1, {}]}')
    assert type(error) is ProblemError
    assert (error.code, error.limit, error.actual, error.errors) == ("1", None, None, [("", "")])


def test_retry_after_is_seconds_or_a_date():
    for value, expected in (("7", 7.0), ("0", 0.0), ("soon", None), ("-1", None)):
        assert problem_of(503, {"retry-after": value}, b"").retry_after_seconds == expected
    assert problem_of(503, {}, b"").retry_after_seconds is None
    date = email.utils.formatdate(time.time() + 1000, usegmt=True)
    error = problem_of(503, {"retry-after": date}, b"")
    assert type(error) is UnavailableError
    assert error.retry_after_seconds == pytest.approx(1000, abs=100)
    past = email.utils.formatdate(0, usegmt=True)
    assert problem_of(503, {"retry-after": past}, b"").retry_after_seconds == 0
