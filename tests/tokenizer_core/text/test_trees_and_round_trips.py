"""Whether texts and ids round-trip, and the merges that produce a token."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.trap_texts import kinds, patterns, seeds, short_trap_texts, tiny_spec
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.engines import make_stop_flag, stoppable
from tokenizer_core.errors import CancelledError, SpecialTokenForbiddenError
from tokenizer_core.text import merge_trees as module
from tokenizer_core.text.merge_trees import MergeTree, MergeTrees
from tokenizer_core.text.round_trips import _first_difference, check_text

BYTES = {i: bytes([i]) for i in range(256)}
VOCAB = BYTES | {256: b"ab", 257: "中".encode()}
MERGES = [(b"a", b"b"), (b"\xe4\xb8", b"\xad")]


def ids_of(*ids):
    return np.array(ids, dtype=np.uint32)


@given(
    seeds, kinds, patterns, st.sampled_from(["none", "nfc"]), short_trap_texts,
    st.sampled_from(["all", "none"]),
)  # fmt: skip
def test_every_text_comes_back_and_so_do_its_ids(
    engine, seed, kind, pattern, normalizer, text, policy
):
    tokenizer = Tokenizer.from_spec(tiny_spec(seed, kind, pattern, normalizer), engine=engine)
    assert check_text(tokenizer, text, allowed_special=policy).first_difference is None
    if normalizer == "none":
        ids = tokenizer.encode_to_numpy(text, allowed_special=policy)
        assert tokenizer.first_drift(ids, allowed_special=policy) is None


def test_a_longer_or_shorter_answer_differs_at_its_end(engine, monkeypatch):
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], engine=engine)
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "xyz")
    assert tokenizer.first_drift(ids_of(120, 121)) == 2
    assert tokenizer.first_drift(ids_of(120, 121, 122, 123)) == 3
    assert check_text(tokenizer, "xy").first_difference == 2
    assert check_text(tokenizer, "xyz!").first_difference == 3
    assert check_text(tokenizer, "xéz").first_difference == 1
    long = "a" * 70_000
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: long + "b" + long)
    assert check_text(tokenizer, long + "c" + long).first_difference == 70_000


def test_a_forbidden_special_token_is_an_error(engine):
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], ["<|a|>"], engine=engine)
    options = {"allowed_special": "none", "disallowed_special": "all"}
    with pytest.raises(SpecialTokenForbiddenError):
        check_text(tokenizer, "x<|a|>", **options)
    with pytest.raises(SpecialTokenForbiddenError):
        tokenizer.first_drift(ids_of(258), **options)


@pytest.mark.parametrize(
    ("check", "value", "step", "after"),
    [
        (check_text, "abc", "encode_to_numpy", "decode"),
        (check_text, "abc", "decode", ""),
        (Tokenizer.first_drift, ids_of(97, 98), "decode", "encode_to_numpy"),
        (Tokenizer.first_drift, ids_of(97, 98), "encode_to_numpy", ""),
    ],
)
def test_a_cancelled_check_ends_after_its_step(check, value, step, after, monkeypatch):
    flag, method = make_stop_flag(), getattr(Tokenizer, step)

    def cancel(*given, **options):
        flag.cancel()
        return method(*given, **options)

    monkeypatch.setattr(Tokenizer, step, cancel)
    if after:
        monkeypatch.setattr(Tokenizer, after, None)
    with stoppable(flag), pytest.raises(CancelledError):
        check(Tokenizer(VOCAB, MERGES[:1], engine="python"), value)


def test_a_cancelled_check_compares_no_further():
    flag = make_stop_flag()
    flag.cancel()
    with stoppable(flag), pytest.raises(CancelledError):
        _first_difference("ab", "ac")


PAIRS = [(b"l", b"o"), (b"e", b"r"), (b"lo", b"w"), (b"low", b"er"), (b"o", b"w"), (b"l", b"ow")]
TREE_VOCAB = BYTES | {256: b"lo", 257: b"er", 258: b"low", 259: b"lower", 260: b"ow", 300: b"no"}


def leaf(token):
    return MergeTree(token[0])


def test_a_token_down_to_its_bytes():
    trees = MergeTrees(TokenizerSpec.from_merges(TREE_VOCAB, PAIRS, ["<|a|>", "lo"]))
    low = MergeTree(258, (MergeTree(256, (leaf(b"l"), leaf(b"o"))), leaf(b"w")))
    assert trees.tree(259, 8) == MergeTree(259, (low, MergeTree(257, (leaf(b"e"), leaf(b"r")))))
    assert (trees.rank(259), trees.parts(259)) == (3, (258, 257))
    assert trees.rank(258) == 2  # the first of two merges that make it
    for id_ in (108, 300, 301):  # a byte, one no merge makes, a special token
        assert (trees.rank(id_), trees.parts(id_)) == (None, None)
        assert trees.tree(id_, 8) == MergeTree(id_)
    # 256 bytes and "no", then a token for each merge that makes a new one.
    assert (trees.base_size, trees.full_size) == (257, 262)
    sizes = {id_: trees.size_with(id_) for id_ in (108, 300, 256, 258, 259, 260)}
    assert sizes == {108: 257, 300: 257, 256: 258, 258: 260, 259: 261, 260: 262}
    assert trees.all_parts([258, 300]) == {
        258: (256, 119), 256: (108, 111), 108: None, 111: None, 119: None, 300: None,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_the_merges_of_trees_are_all_that_encoding_takes(seed):
    ways = all_ways_to_part(seed)
    trees = MergeTrees(ways)
    taken = {rank for id_ in ways.vocab if (rank := trees.rank(id_)) is not None}
    assert len(taken) < len(ways.merges)
    merges = [merge for rank, merge in enumerate(ways.merges) if rank in taken]
    every = Tokenizer.from_spec(ways)
    few = Tokenizer.from_spec(TokenizerSpec.from_merges(ways.vocab, merges))
    rng = random.Random(seed)
    for _ in range(200):
        text = "".join(rng.choices("abc", k=rng.randrange(1, 40)))
        assert few.encode(text) == every.encode(text)
    for id_ in range(256, len(ways.vocab)):
        left, right = trees.parts(id_)
        assert ways.vocab[left] + ways.vocab[right] == ways.vocab[id_]


def all_ways_to_part(seed):
    """A spec whose merges are all ways to split each of some random tokens, in random order."""
    rng = random.Random(seed)
    tokens = [b"a", b"b", b"c"]
    while len(tokens) < 40:
        token = rng.choice(tokens) + rng.choice(tokens)
        if len(token) < 10 and token not in tokens:
            tokens.append(token)
    parts = [(token[:at], token[at:]) for token in tokens[3:] for at in range(1, len(token))]
    merges = [merge for merge in parts if merge[0] in tokens and merge[1] in tokens]
    rng.shuffle(merges)
    return TokenizerSpec.from_merges(BYTES | dict(enumerate(tokens[3:], 256)), merges)


def test_depth_and_length_are_bounded(monkeypatch):
    trees = MergeTrees(TokenizerSpec.from_merges(TREE_VOCAB, PAIRS))
    assert trees.tree(259, 0) == MergeTree(259, is_cut=True)
    one = trees.tree(259, 1)
    assert one.parts == (MergeTree(258, is_cut=True), MergeTree(257, is_cut=True))
    assert trees.tree(108, 0) == MergeTree(108)
    monkeypatch.setattr(module, "MAX_TREE_TOKEN_BYTES", 3)
    trees = MergeTrees(TokenizerSpec.from_merges(TREE_VOCAB, PAIRS))
    assert trees.tree(259, 8) == MergeTree(259, is_cut=True)
    assert trees.tree(258, 8).parts is not None


def test_ranks():
    ranks = {token: 1000 - id_ for id_, token in BYTES.items()}
    ranks |= {b"ab": 0, b"abc": 1, b"bc": 2, b"xyz": 3}
    spec = TokenizerSpec.from_ranks(ranks, {"<|a|>": 2000, "<>": 2001}, pattern="gpt2")
    trees = MergeTrees(spec)
    assert (trees.rank(1), trees.parts(1)) == (1, (0, ranks[b"c"]))
    assert (trees.rank(3), trees.parts(3)) == (3, None)  # only ever matched whole
    assert (trees.rank(ranks[b"a"]), trees.parts(ranks[b"a"])) == (ranks[b"a"], None)
    for special in (2000, 2001):
        assert (trees.rank(special), trees.parts(special)) == (None, None)
