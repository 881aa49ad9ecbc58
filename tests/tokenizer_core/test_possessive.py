"""Expressions with possessive groups match alike in every Python."""

import sys
from types import SimpleNamespace

import pytest
import regex

from tokenizer_core.possessive import compile_possessive


@pytest.mark.parametrize(
    ("expression", "text", "end"),
    [
        (rb"(?:ab?c|d)++", b"ddab", 2),
        (rb"(?:[\x00-\x7f]++|[\xe1-\xec][\x80-\xbf]{2})++", b"xx\xe6\xbc a", 2),
        (r"(?:[^\\]++|\\(?:n|u[0-9a-f]{4}))*+", "an\\u12", 2),
    ],
)
@pytest.mark.parametrize("version", [sys.version_info, (3, 11, 2)])
def test_what_a_failed_repetition_took_is_given_back(expression, text, end, version, monkeypatch):
    monkeypatch.setattr("tokenizer_core.possessive.sys", SimpleNamespace(version_info=version))
    assert compile_possessive(expression).match(text).end() == end
    assert regex.match(expression, text).end() == end
