"""The merges behind a token, for lists of merges and for ranks."""

from __future__ import annotations

import pytest

from tests.property.trap_texts import KINDS, tiny_spec
from tokenizer_core import TokenizerSpec
from tokenizer_core import merge_trees as module
from tokenizer_core.merge_trees import MergeTree, MergeTrees

BYTES = {i: bytes([i]) for i in range(256)}
PAIRS = [(b"l", b"o"), (b"e", b"r"), (b"lo", b"w"), (b"low", b"er"), (b"o", b"w"), (b"l", b"ow")]
VOCAB = BYTES | {256: b"lo", 257: b"er", 258: b"low", 259: b"lower", 260: b"ow", 300: b"unreached"}


def leaf(token: bytes) -> MergeTree:
    return MergeTree(token[0])


def test_a_token_down_to_its_bytes():
    trees = MergeTrees(TokenizerSpec.from_merges(VOCAB, PAIRS, ["<|a|>", "lo"]))
    low = MergeTree(258, (MergeTree(256, (leaf(b"l"), leaf(b"o"))), leaf(b"w")))
    assert trees.tree(259, 8) == MergeTree(259, (low, MergeTree(257, (leaf(b"e"), leaf(b"r")))))
    assert (trees.rank(259), trees.parts(259)) == (3, (258, 257))
    assert trees.rank(258) == 2  # of two merges that make it the first
    for id_ in (108, 300, 301):  # a byte, one no merge makes, a special token
        assert (trees.rank(id_), trees.parts(id_), trees.tree(id_, 8)) == (
            None,
            None,
            MergeTree(id_),
        )


def test_depth_is_bounded():
    trees = MergeTrees(TokenizerSpec.from_merges(VOCAB, PAIRS))
    assert trees.tree(259, 0) == MergeTree(259, is_cut=True)
    one = trees.tree(259, 1)
    assert one.parts == (MergeTree(258, is_cut=True), MergeTree(257, is_cut=True))
    assert trees.tree(108, 0) == MergeTree(108)


def test_no_tree_of_a_token_too_long(monkeypatch):
    monkeypatch.setattr(module, "MAX_TREE_TOKEN_BYTES", 3)
    trees = MergeTrees(TokenizerSpec.from_merges(VOCAB, PAIRS))
    assert trees.tree(259, 8) == MergeTree(259, is_cut=True)
    assert trees.tree(258, 8).parts is not None


def test_ranks():
    ranks = {token: 1000 - id_ for id_, token in BYTES.items()}
    ranks |= {b"ab": 0, b"abc": 1, b"bc": 2, b"xyz": 3}
    spec = TokenizerSpec.from_ranks(ranks, {"<|a|>": 2000, "<>": 2001}, pattern="gpt2")
    trees = MergeTrees(spec)
    assert (trees.rank(1), trees.parts(1)) == (1, (0, ranks[b"c"]))
    assert (trees.rank(3), trees.parts(3)) == (3, None)  # only ever taken whole
    assert (trees.rank(ranks[b"a"]), trees.parts(ranks[b"a"])) == (ranks[b"a"], None)
    for special in (2000, 2001):
        assert (trees.rank(special), trees.parts(special)) == (None, None)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_joined_are_the_token(kind):
    for seed in range(40):
        spec = tiny_spec(seed, kind, "gpt2")
        trees = MergeTrees(spec)
        added = {token.id for token in spec.added_tokens}
        for id_, token in spec.vocab.items():
            parts = trees.parts(id_)
            if parts is not None:
                assert spec.vocab[parts[0]] + spec.vocab[parts[1]] == token
            elif len(token) > 1 and id_ not in added and kind == "merges":
                pytest.fail(f"{token!r} is a product without parts")
