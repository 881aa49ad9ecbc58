"""The compiled scanners split as the expressions do, on every code point and on texts that separate
the alternatives."""

import itertools

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tests.adversarial import _FRAGMENTS, adversarial_texts, every_code_point_in_context
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.pretokenize import split

# One character of every kind that an alternative distinguishes, joined in all ways.
KINDS = [*"aAǅʰ中1½s ./", "\u0301", "\n", "\r", "\u3000", "'"]
mixed_text = st.lists(st.sampled_from(_FRAGMENTS) | st.characters(codec="utf-8"), max_size=40).map(
    "".join
)
text_of_bytes = st.binary(max_size=60).map(lambda data: data.decode("utf-8", "replace"))


def assert_same_split(native, text: str, name: str) -> None:
    ours, theirs = native.split(text, name), split(text, PATTERNS[name])
    if ours != theirs:
        pairs = itertools.zip_longest(ours, theirs)
        at = next(i for i, (a, b) in enumerate(pairs) if a != b)
        around = slice(max(0, at - 2), at + 3)
        pytest.fail(f"{name}, pre-token {at}: {ours[around]!a}, not {theirs[around]!a}")


@pytest.mark.thorough
@pytest.mark.parametrize("name", PATTERNS)
def test_every_code_point_in_context(native, name):
    for text in every_code_point_in_context():
        assert_same_split(native, text, name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", PATTERNS)
def test_every_code_point_in_contractions(native, name):
    # One letter folds to an ASCII letter without being one; there must be no other. Only letters
    # fold to letters; the test above has the other characters after an apostrophe.
    everything = "".join(map(chr, range(0x110000)))
    letters = regex.findall(r"\p{L}", everything)
    for first in range(0, len(letters), 0x1000):
        text = "".join(f"a'{c}l.'l{c}.'{c}e.'r{c}.'v{c}y" for c in letters[first : first + 0x1000])
        assert_same_split(native, text, name)


@pytest.mark.parametrize("name", PATTERNS)
def test_adversarial_texts_and_those_of_up_to_four_kinds_of_character(native, name):
    texts = itertools.chain.from_iterable(itertools.product(KINDS, repeat=n) for n in (1, 2, 3))
    for characters in texts:
        assert_same_split(native, "".join(characters), name)
    for text in adversarial_texts(n_random=300, seed=77):
        assert_same_split(native, text, name)
    for characters in itertools.islice(itertools.product(KINDS, repeat=4), 0, None, 11):
        assert_same_split(native, "".join(characters), name)


@pytest.mark.parametrize("name", PATTERNS)
@given(text=mixed_text | text_of_bytes | st.text(KINDS, max_size=80))
def test_random_texts(native, name, text):
    assert_same_split(native, text, name)
