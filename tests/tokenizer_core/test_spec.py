"""TokenizerSpec: its repr is short for tables of any size."""

import pytest

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.spec import AddedToken, TokenizerSpec


def test_the_repr_of_a_large_spec_is_short():
    vocab = {i: bytes([i]) for i in range(256)}
    merges = []
    for left in range(256):
        for right in range(128):
            vocab[len(vocab)] = bytes([left, right])
            merges.append((bytes([left]), bytes([right])))
    spec = TokenizerSpec.from_merges(
        vocab, merges, [AddedToken("<|end|>", len(vocab))], pattern=r"\s+|\S+" * 50
    )
    shown = repr(spec)
    assert len(shown) < 200
    for part in ("merges: 33025 tokens (1 added)", "32768 merges", "pattern custom", "none"):
        assert part in shown
    assert spec.fingerprint[:12] in shown


BYTES = {i: bytes([i]) for i in range(256)}


def test_a_spec_without_new_fields_has_the_fingerprint_it_always_had():
    ranks = {token: id_ for id_, token in BYTES.items()}
    specs = [
        TokenizerSpec.from_merges(BYTES, []),
        TokenizerSpec.from_merges(BYTES, [], pattern=r"\s+|\S+"),
        TokenizerSpec.from_ranks(ranks, pattern="cl100k"),
    ]
    assert [spec.fingerprint[:12] for spec in specs] == [
        "3aa343a83c9d",
        "4905c41cc401",
        "6ee42ed0b8bd",
    ]


def test_dialect_and_unmatched_rule_are_part_of_the_fingerprint():
    patterns = [
        SplitPattern("custom", r"\s+|\S+", dialect, unmatched)
        for dialect in ("python", "fancy-regex", "oniguruma")
        for unmatched in ("keep", "drop")
    ]
    found = {TokenizerSpec.from_merges(BYTES, [], pattern=one).fingerprint for one in patterns}
    assert len(found) == 6


def test_a_byte_that_only_a_special_token_has_is_missing():
    ranks = {token: id_ for id_, token in BYTES.items() if token != b"1"}
    with pytest.raises(InvalidSpecError, match=r"byte 0x31.*leave out the special token"):
        TokenizerSpec.from_ranks(ranks, {"1": 49}, pattern="gpt2")


@pytest.mark.parametrize("pattern", [r"[a-c[x-z]]+", r"\s+|\S+"])
def test_an_expression_for_ranks_is_read_as_tiktoken_reads_it(pattern):
    ranks = {token: id_ for id_, token in BYTES.items()}
    spec = TokenizerSpec.from_ranks(ranks, pattern=pattern)
    assert spec.pattern == SplitPattern("custom", pattern, "fancy-regex", "drop")
    given = SplitPattern("custom", pattern, "python", "keep")
    assert TokenizerSpec.from_ranks(ranks, pattern=given).pattern == given
    assert TokenizerSpec.from_merges(BYTES, [], pattern=r"\s+|\S+").pattern.dialect == "python"
