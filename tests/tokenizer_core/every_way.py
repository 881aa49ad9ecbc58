"""Every way to encode gives the ids of `encode`: one check for any tokenizer."""

import json
from itertools import pairwise

import numpy as np

from tokenizer_core import StreamingEncoder, TokenizerSpec, chunk_text, truncate_text
from tokenizer_core.engines import JSON
from tokenizer_core.specials.policy import Policy

BYTES = {i: bytes([i]) for i in range(256)}
SHAPES = {
    "plain": TokenizerSpec.from_merges(BYTES, [], ["<e>", "<f>"]),
    "NFC": TokenizerSpec.from_merges(BYTES, [], ["<e>", "<f>"], normalizer="nfc"),
    "left out by the pattern": TokenizerSpec.from_ranks(
        {bytes([i]): i for i in range(256)}, {"<e>": 256, "<f>": 257}, pattern=r"[\p{L}\p{So}]+|\s+"
    ),
}


def check_every_way(tokenizer, texts, expected, **options):
    has_around = options.get("add_special_tokens", False)
    policy = Policy(options.get("allowed_special", "all"), options.get("disallowed_special", ()))
    encode_body = tokenizer.body_encoder(lambda _: None if has_around else policy)
    for text, ids in zip(texts, expected, strict=True):
        assert tokenizer.encode(text, **options) == ids
        array = tokenizer.encode_to_numpy(text, num_threads=2, **options)
        assert (array.dtype, array.tolist()) == (np.uint32, ids)
        rendered, n_ids = tokenizer.encode_source(text, policy, JSON, add_special_tokens=has_around)
        assert (json.loads(rendered), n_ids) == (ids, len(ids))
        body = json.dumps({"text": text}).encode()
        if found := encode_body((b"[", b",", b"]"), body):
            assert found == (b"[%b,%d]" % (rendered, n_ids), n_ids, len(text.encode()))
            assert encode_body(None, body) == (array.astype("<u4").tobytes(), *found[1:])
        assert tokenizer.encode_with_offsets(text, **options)[0] == ids
        assert tokenizer.pieces(text, **options).ids == ids
        assert tokenizer.count(text, **options) == len(ids)
        assert tokenizer.count(text, limit=len(ids), **options) == len(ids)
        if ids:
            assert tokenizer.count(text, limit=len(ids) - 1, **options) >= len(ids)
        half = len(text) // 2
        assert list(tokenizer.encode_iterable([text[:half], text[half:]], **options)) == ids
        check_stream(tokenizer, [text[:half], text[half:]], ids, **options)
    assert tokenizer.encode_batch(texts, num_threads=2, **options) == expected
    ids, offsets = tokenizer.encode_batch_to_numpy(texts, num_threads=2, **options)
    assert (ids.dtype, offsets.dtype, offsets.shape) == (np.uint32, np.uint64, (len(texts) + 1,))
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == expected


def check_stream(tokenizer, pieces, ids, **options):
    """A stream fed with these pieces gives the ids; `encode_iterable` would join short ones."""
    stream = StreamingEncoder(tokenizer, **options)
    assert [id_ for piece in pieces for id_ in stream.feed(piece)] + stream.finish() == ids


def check_cuts(tokenizer, text, ids):
    """A stream gives the ids wherever the text is cut, and when each character comes alone."""
    for cut in range(len(text) + 1):
        check_stream(tokenizer, [text[:cut], text[cut:]], ids)
    check_stream(tokenizer, text, ids)


def check_parts(tokenizer, text, max_tokens):
    """Chunks join to the text, and each part has the ids that its text has alone.

    A chunk has at most `max_tokens`, or as many as the longest character needs.
    """
    size = max([max_tokens, *(tokenizer.count(character) for character in set(text))])
    chunks = list(chunk_text(tokenizer, text, size))
    assert "".join(chunk.text for chunk in chunks) == text
    n_tokens = tokenizer.count(text)
    parts = [(chunk, size) for chunk in chunks]
    for most in {0, 1, 5, max_tokens, n_tokens // 2, n_tokens}:
        for side in ("right", "left"):
            parts.append((truncate_text(tokenizer, text, most, side=side), most))
    for part, most in parts:
        assert part.text == text.encode()[part.start : part.end].decode()
        assert part.ids.tolist() == tokenizer.encode(part.text)
        assert len(part.ids) <= most
