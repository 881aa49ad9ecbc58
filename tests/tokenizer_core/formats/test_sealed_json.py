"""A sealed manifest: its own kind and version only, and unchanged."""

import json

import pytest

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.sealed_json import SealedFormat, typed

KIND = SealedFormat("example", 3, "an example", 200)
DATA = KIND.render({"a": [1, None], "b": "é"})


def test_fields_and_back():
    assert KIND.parse(DATA) == {"a": [1, None], "b": "é"}
    assert json.loads(DATA)["format_version"] == 3


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (SealedFormat("example", 2, "an example", 200), "has format version 3; this release reads"),
        (SealedFormat("other", 3, "another", 200), "is not that of another"),
        (SealedFormat("example", 3, "an example", 20), "larger than 20 bytes"),
    ],
)
def test_another_kind_is_refused(other, message):
    with pytest.raises(FormatError, match=message):
        other.parse(DATA)


@pytest.mark.parametrize(
    "data",
    [
        DATA + b"\n",
        DATA.replace(b"  ", b" "),
        DATA.replace(b"1", b"2"),
        json.dumps(json.loads(DATA)).encode(),
        DATA.replace("é".encode(), b"\\ud800"),
    ],
)
def test_what_was_changed_is_refused(data):
    with pytest.raises(FormatError, match=r"changed or damaged|lone surrogate"):
        KIND.parse(data)


@pytest.mark.parametrize("value", [float("nan"), b"", "\ud800"])
def test_what_is_no_json_is_refused(value):
    with pytest.raises(FormatError, match="cannot be written as JSON"):
        KIND.render({"a": value})


def test_types_are_taken_exactly():
    assert typed(1, int) == 1
    with pytest.raises(TypeError, match="True is no int"):
        typed(True, int)


def test_another_version_is_refused():
    other = SealedFormat("example", 4, "an example", 200).render({"a": 1})
    with pytest.raises(FormatError, match="has format version 4; this release reads version 3"):
        KIND.parse(other)
