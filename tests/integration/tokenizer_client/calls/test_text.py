"""Texts and ids: both clients with a real server."""

import numpy as np
import pytest

from tokenizer_client import (
    DigestMismatchError,
    InvalidRequestError,
)

TEXTS = ["", "the quick brown fox", "héllo wörld 中文字符\n\r\n", "a<|endoftext|>b", "🙂" * 50]


def test_ids_are_those_of_the_library_and_come_back(client, small_tokenizer):
    for text in TEXTS:
        ids = small_tokenizer.encode(text)
        assert client.encode(text) == ids
        array = client.encode_to_numpy(text)
        assert array.tolist() == ids
        assert array.dtype == np.uint32
        assert array.flags.writeable
        assert client.decode(ids) == client.decode(array) == text
        assert client.decode_bytes(ids) == text.encode()
        assert client.count(text) == len(ids)


def test_batches_equal_single_calls(client, small_tokenizer):
    rows = [small_tokenizer.encode(text) for text in TEXTS]
    assert client.encode_batch(TEXTS) == rows
    ids, offsets = client.encode_batch_to_numpy(TEXTS)
    assert ids.tolist() == [id_ for row in rows for id_ in row]
    assert offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    assert client.decode_batch(rows) == TEXTS
    assert client.decode_batch([np.array(row, np.int64) for row in rows]) == TEXTS
    assert client.count_batch(TEXTS) == [len(row) for row in rows]
    assert client.encode_batch([]) == client.decode_batch([]) == []


def test_special_tokens_follow_the_request(client, small_tokenizer):
    text = "a<|endoftext|>b"
    plain = small_tokenizer.encode(text, allowed_special="none")
    for allowed in ("none", (), frozenset()):
        assert client.encode(text, allowed_special=allowed) == plain
        parts = client.encode_stream([text], allowed_special=allowed)
        assert np.concatenate(list(parts)).tolist() == plain
    named = client.encode(text, allowed_special={"<|endoftext|>"})
    assert named == small_tokenizer.encode(text)
    with pytest.raises(InvalidRequestError) as told:
        client.encode(text, allowed_special="none", disallowed_special="all")
    assert told.value.code == "special_token_forbidden"
    assert client.decode(named, skip_special_tokens=True) == "ab"


def test_ids_of_a_partial_character(client, small_tokenizer):
    ids = small_tokenizer.encode("\u2122")[:1]
    assert client.decode(ids) == small_tokenizer.decode(ids) == "\ufffd"
    assert client.decode_bytes(ids) == "\u2122".encode()[:1]
    with pytest.raises(InvalidRequestError):
        client.decode(ids, errors="strict")


def test_verify_pieces_and_describe_token(client, small_tokenizer):
    assert client.verify("the quick").ok
    assert not client.verify_ids([ord("t"), ord("h"), ord("e")]).ok
    found = client.encode_with_pieces("héllo", offset_unit="char")
    assert found.tokens == small_tokenizer.encode("héllo")
    assert found.offsets[-1][1] == len("héllo")
    id_ = small_tokenizer.encode("the")[-1]
    assert client.describe_token(id_, depth=0).id == id_


def test_a_pinned_client_refuses_another_digest(client, small_tokenizer):
    active = client.tokenizers.active()
    pinned = client.pinned(f"{active.name}@{active.version}", digest=active.digest)
    assert pinned.encode("the fox") == small_tokenizer.encode("the fox")
    assert pinned.decode(pinned.encode("the fox")) == "the fox"
    assert pinned.count("the fox") == small_tokenizer.count("the fox")
    (ids,) = pinned.encode_stream([b"the fox"])
    assert "".join(pinned.decode_stream([ids])) == "the fox"
    other = client.pinned(digest="0" * 64)
    for ask in (
        lambda: other.encode("a"),
        lambda: other.describe_token(97),
        lambda: list(other.decode_stream([[97]])),
    ):
        with pytest.raises(DigestMismatchError) as told:
            ask()
        assert told.value.present_digest == active.digest
