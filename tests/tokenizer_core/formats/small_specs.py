"""Small tokenizers for tests: trained ones, and rank tables that no trainer would produce."""

import base64
import copy
import json
import random
from collections import Counter

import pytest
import tokenizers

from tests.tokenizer_core.every_way import check_every_way
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.formats.manifest_fields import MANIFEST, build_spec, render_spec_fields
from tokenizer_core.formats.tokenizer_json import document as tokenizer_json
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.reference import learn
from tokenizer_core.registry.golden_text import check_round_trip
from tokenizer_core.spec import Alphabet, TokenizerSpec
from tokenizer_core.splitting.patterns import METASPACE, resolve_pattern
from tokenizer_core.splitting.pretokenize import split

ENGINES = ["python"] if native_unavailable_reason() else ["native", "python"]
BYTES = {i: bytes([i]) for i in range(256)}
DROP = "(left out)"  # a string, so that test names are the same in every process
TRAINING_TEXT = (
    "low low lower newest newest widest widest widest don't won't 2024 2025 12345 "
    "  indented\n\n\tcode(x);\n 中文 中文字 Привет привет caf\u00e9 cafe\u0301 🙂🙂 hello hello, "
    "the then there them  the <|endoftext|> naïve über aaaa aaaaaa abab ababab "
) * 3


def trained_spec(n_merges=100, pattern="gpt2", **fields):
    """A spec of kind merges, trained on the text above."""
    counts = Counter(split(TRAINING_TEXT, resolve_pattern(pattern)))
    merges = learn(counts, n_merges)
    vocab = BYTES | {256 + i: a + b for i, (a, b) in enumerate(merges)}
    fields.setdefault("special_tokens", ["<|endoftext|>"])
    return TokenizerSpec.from_merges(vocab, merges, pattern=pattern, **fields)


def chain_spec(text, **fields):
    """One token for the text, built by adding one character after the other."""
    merges = [(text[:at].encode(), text[at : at + 1].encode()) for at in range(1, len(text))]
    vocab = BYTES | {256 + i: left + right for i, (left, right) in enumerate(merges)}
    return TokenizerSpec.from_merges(vocab, merges, **fields)


def wild_ranks(seed, n_tokens=60, alphabet=b"abc "):
    """All bytes and random strings over a tiny alphabet, in random order: parts often rank after
    their product, tokens have many splits, and no merge produces some of them."""
    rng = random.Random(seed)
    tokens = {bytes([b]) for b in range(256)}
    while len(tokens) < 256 + n_tokens:
        tokens.add(bytes(rng.choices(alphabet, k=rng.choice([2, 2, 2, 3, 3, 4, 5, 6]))))
    ordered = sorted(tokens)
    rng.shuffle(ordered)
    return {token: rank for rank, token in enumerate(ordered)}


def wild_texts(seed, n_texts=60, alphabet="abc "):
    rng = random.Random(seed)
    return ["".join(rng.choices(alphabet, k=rng.randint(0, 60))) for _ in range(n_texts)]


def pair_of(table):
    """The tokenizer of a `tokenizer.json` in Hugging Face's library, and here in each engine."""
    data = json.dumps(table)
    spec = parse_tokenizer_json(data.encode())
    ours = [Tokenizer.from_spec(spec, engine=name) for name in ENGINES]
    return tokenizers.Tokenizer.from_str(data), ours


def changed(base, path, value):
    """A copy of the table with this value at the path, or without the field."""
    table = copy.deepcopy(base)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at = table
    for part in parents:
        at = at[part]
    if value is DROP:
        del at[last]
    else:
        at[last] = value
    return table


def check_refusal(table, message):
    """The file is refused in the same words with and without the compiled module."""
    packs, told = tokenizer_json.read_packed_model, set()
    for read_packed in (packs, lambda _: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tokenizer_json, "read_packed_model", read_packed)
            with pytest.raises(TokenizerCoreError, match=message) as caught:
                parse_tokenizer_json(json.dumps(table).encode())
        told.add(str(caught.value))
    assert len(told) == 1


def check_round_trips(spec):
    """A `tokenizer.json` and a manifest of a spec are read to the same spec; the former.

    It gives its golden text, too.
    """
    check_round_trip(Tokenizer.from_spec(spec))
    manifest = MANIFEST.parse(MANIFEST.render(render_spec_fields(spec)))
    assert build_spec(manifest, spec.vocab, spec.merges) == spec
    written = render_tokenizer_json(spec)
    assert parse_tokenizer_json(written) == spec
    return written


def check_against_tokenizers(theirs, ours, text, *, has_offsets=True):
    """Every way to encode a text gives the ids of Hugging Face's tokenizer, and its offsets."""
    expected = theirs.encode(text, add_special_tokens=False)
    n_bytes = len(text.encode())
    for tokenizer in ours:
        ids, offsets = tokenizer.encode_with_offsets(text, unit="char")
        assert ids == expected.ids
        if has_offsets:
            assert list(map(tuple, offsets.tolist())) == expected.offsets
        check_every_way(tokenizer, ["", text], [tokenizer.encode(""), expected.ids])
        assert tokenizer.encode(text, add_special_tokens=True) == theirs.encode(text).ids
        _, offsets = tokenizer.encode_with_offsets(text)
        for size in (1, 3):
            stream, found = StreamingEncoder(tokenizer), []
            for start in range(0, len(text), size):
                found += stream.feed(text[start : start + size])
                assert stream.bytes_settled <= offsets[len(found) :, 0].min(initial=n_bytes)
            assert found + stream.finish() == expected.ids
            assert stream.bytes_settled == n_bytes


def added_token(content, **fields):
    """An added token of a `tokenizer.json`, special and without flags."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"content": content, "special": True, **flags, **fields}


def bpe_file(vocab, merges, model, **fields):
    """A `tokenizer.json` of byte-level BPE, with these fields of it and of its model."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    table = {"version": "1.0", "truncation": None, "padding": None}
    table |= {"added_tokens": [], "normalizer": None}
    table |= {"pre_tokenizer": {**byte_level, "use_regex": True}, "post_processor": None}
    table |= {"decoder": {**byte_level, "use_regex": True}, **fields}
    affixes = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    table["model"] = {
        "type": "BPE",
        **dict.fromkeys(affixes),
        **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
        "vocab": vocab,
        "merges": [list(pair) for pair in merges],
        **model,
    }
    return table


def small_tekken(special_tokens, *, n_special, version="v3", seed=0, n_cut=0):
    """The table of a `tekken.json` with 316 ranks, of which the last `n_cut` do not count."""
    # mistral-common needs the 256 bytes first.
    tokens = sorted(wild_ranks(seed), key=lambda token: (len(token) > 1, len(token) % 3, token))
    table = {
        "config": {
            "pattern": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+(?!\S)|\s+",
            "num_vocab_tokens": 150000,
            "default_vocab_size": len(tokens) - n_cut + n_special,
            "default_num_special_tokens": n_special,
            "version": version,
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for rank, token in enumerate(tokens)
        ],
    }
    if special_tokens is not None:
        table["special_tokens"] = [
            {"rank": rank, "token_str": content, "is_control": rank != 3}
            for rank, content in enumerate(special_tokens)
        ]
    return table


def character_spec():
    """A vocabulary of characters: each byte is its own id, a space 256, a 257, \u00e9 258."""
    vocab = BYTES | {256: b" ", 257: b"a", 258: "\u00e9".encode(), 259: b" a", 260: b"<s>"}
    return TokenizerSpec.from_merges(
        vocab,
        [(b" ", b"a")],
        ["<s>"],
        pattern=METASPACE,
        normalizer="metaspace-first",
        alphabet=Alphabet(tuple(range(256))),
    )
