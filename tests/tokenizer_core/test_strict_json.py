"""Counting the values of a file before any is made. The tests of the service test the reader,
which requests use too."""

import json

import pytest

from tokenizer_core.errors import FormatError
from tokenizer_core.strict_json import MAX_FILE_VALUES, check_number_of_values, parse_strict_json


def test_a_file_is_refused_for_its_values_and_not_for_commas_in_strings():
    many = b"," * (MAX_FILE_VALUES + 1)
    check_number_of_values(b'["%b", "\\"%b"]' % (many, many), "it")
    assert parse_strict_json(b'["%b"]' % many, "it") == [many.decode()]
    check_number_of_values(b"[%b]" % many[2:], "it")
    with pytest.raises(FormatError, match="it has more than 4194304 values"):
        check_number_of_values(b"[%b]" % many, "it")


@pytest.mark.parametrize("value", [["a", "\ud800"], {"\ud800": 1}, {"a": {"b": [1, "\udc00x"]}}])
def test_a_lone_surrogate_is_found_anywhere_and_a_pair_is_a_character(value):
    with pytest.raises(FormatError, match="lone surrogate at character 0 of a string"):
        parse_strict_json(json.dumps(value).encode(), "it")
    paired = {"\U0001f642": ["\U0001f642", {"a": "é"}]}
    assert parse_strict_json(json.dumps(paired).encode(), "it") == paired
