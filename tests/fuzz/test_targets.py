"""The targets without a fuzzer: their seeds, mutated seeds, and earlier findings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import FOUND, NAMES, seeds, try_target
from tests.profiles import examples

places = st.floats(0, 1, exclude_max=True)
words = [b'"', b"{", b"[" * 20, b"\\ud800", b"1e999", b"-"]
scraps = st.binary(max_size=3) | st.sampled_from(words)
edits = st.lists(st.tuples(places, st.integers(0, 4), scraps), min_size=1, max_size=4)


def edit(data, changes):
    """With some bytes replaced by others; one in five is also truncated at such an offset."""
    for where, n_replaced, scrap in changes:
        at = int(where * (len(data) + 1))
        data = data[:at] + scrap + (data[at + n_replaced :] if n_replaced < 4 else b"")
    return data


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_accepted(name):
    assert [seed for seed in seeds()[name] if not try_target(name, seed)] == []


@pytest.mark.promise(19)
@pytest.mark.parametrize("name", NAMES)
@examples(1 / 5)
@given(data=st.data())
def test_edited_seeds_end_with_no_other_error(name, data):
    try_target(name, edit(data.draw(st.sampled_from(seeds()[name])), data.draw(edits)))


@pytest.mark.promise(19)
@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: path.name)
def test_earlier_findings_are_mended(path):
    try_target(path.parent.name, path.read_bytes())
