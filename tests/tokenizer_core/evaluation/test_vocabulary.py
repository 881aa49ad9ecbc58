"""What is in a vocabulary, whatever text comes."""

import math

import numpy as np

from tests.tokenizer_core.evaluation.small_tokenizers import BYTES, THE, merging
from tokenizer_core import AddedToken, TokenizerSpec
from tokenizer_core.evaluation.vocabulary import (
    is_utf8,
    longest_tokens,
    partial_utf8_tokens,
    save_token_bytes,
    token_byte_lengths,
)


def test_the_table_of_bytes_makes_bits_per_byte_of_a_loss(tmp_path, engine):
    tokenizer = merging(THE, special=["<|end|>"], engine=engine)
    save_token_bytes(tokenizer.spec, tmp_path / "token_bytes.npy")
    table = np.load(tmp_path / "token_bytes.npy", allow_pickle=False)
    assert table.dtype == np.int32
    text = "the naïve<|end|> the"
    targets = np.array(tokenizer.encode(text))
    assert table[targets].sum() == len("the naïve the".encode())
    assert table[tokenizer.spec.special_tokens["<|end|>"]] == 0
    # A model that gives each of `n` ids the same chance loses log(n) nats a token.
    is_text = table[targets] > 0
    loss = np.full(is_text.sum(), math.log(len(table)))
    bits = loss.sum() / (math.log(2) * table[targets].sum())
    assert bits == math.log2(len(table)) * is_text.sum() / 14


def test_gaps_have_no_bytes_and_content_tokens_theirs():
    added = [AddedToken("<|end|>", 300), AddedToken("<think>", 302, special=False)]
    spec = TokenizerSpec.from_merges(BYTES, [], added)
    assert token_byte_lengths(spec)[298:].tolist() == [0, 0, 0, 0, 7]
    assert longest_tokens(spec, 2) == [(302, b"<think>"), (0, b"\x00")]
    assert longest_tokens(spec, -1) == []


def test_partial_tokens_by_hand():
    half = [("é".encode()[:1], b"\xa8"), (b"\xa9", b"!")]  # è whole, and half a character with !
    tokenizer = merging([*half, (b"a", b"b")])
    partial = partial_utf8_tokens(tokenizer.spec)
    assert partial == [*range(128, 256), 257]
    assert is_utf8(tokenizer.spec.vocab[256])
