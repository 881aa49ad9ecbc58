"""Counting the values of a file before any is made. The tests of the service test the reader,
which requests use too."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_core import strict_json
from tokenizer_core.errors import FormatError
from tokenizer_core.strict_json import MAX_FILE_VALUES, check_number_of_values, parse_strict_json

_TEXTS = st.text(st.sampled_from([*',[{]}":\\', "a", "é", "\n"]), max_size=6)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(0, 9), st.none()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(_TEXTS, inner)),
)


def marks_of(value: object) -> int:
    """The commas and opening brackets that a value is written with."""
    if not isinstance(value, list | dict):
        return 0
    members = value.values() if isinstance(value, dict) else value
    return max(1, len(value)) + sum(map(marks_of, members))


@given(value=_VALUES, indent=st.sampled_from([None, 1]), size=st.sampled_from([1, 2, 7, 1 << 20]))
def test_what_strings_hold_is_not_counted_wherever_the_parts_end(value, indent, size):
    data = json.dumps(value, indent=indent, ensure_ascii=indent is None).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "_COUNTED_BYTES", size)
        assert strict_json._count_outside_strings(data) == marks_of(value)


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
