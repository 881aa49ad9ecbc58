"""Small tokenizers of every kind that can be extended and shrunk, and a text for all of them."""

import random

from tests.tokenizer_core.formats.small_specs import BYTES, TRAINING_TEXT, trained_spec, wild_ranks
from tokenizer_core import TokenizerSpec
from tokenizer_core.normalizers import normalizer_of
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.spec import AddedToken, Alphabet, MissingBytes
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.splitting.patterns import METASPACE

TEXT = (
    f"{TRAINING_TEXT} LOW Lowest lowering e\u0301clair e\u0301clair \u1e69 sunset sunset think "
    "thinking <mask> extended extended 漢字 漢字 abcabc aabbcc " + "cab bac abc aab " * 9
)
STEPS = (NormalizerStep("Lowercase"), NormalizerStep("Replace", " +", is_regex=True, content=" "))
MISSING = {i: token for i, token in BYTES.items() if i != ord("w")} | {256: b"<unk>", 257: b"es"}


def wild_merges(seed, **fields):
    """Every merge into a token of `wild_ranks`, in random order: several make one token, and no
    text gives some tokens by merges."""
    ranks = wild_ranks(seed)
    merges = [(t[:at], t[at:]) for t in ranks for at in range(1, len(t))]
    merges = [merge for merge in merges if {*merge} <= ranks.keys()]
    random.Random(seed).shuffle(merges)
    vocab = {id_: token for token, id_ in ranks.items()}
    return TokenizerSpec.from_merges(vocab, merges, ["<|endoftext|>"], **fields)


BASES = {
    "merges": trained_spec(40, chat=ChatTemplates({"default": "{{ messages }}"})),
    "ranks": TokenizerSpec.from_ranks(wild_ranks(1), {"<|endoftext|>": 900}, pattern="cl100k"),
    "wild merges": wild_merges(2),
    "whole words": wild_merges(3, ignore_merges=True, prefix_ids=(1,), suffix_ids=(3,)),
    "NFC": trained_spec(40, pattern="qwen2", normalizer="nfc"),
    "steps": trained_spec(40, normalizer=normalizer_of("steps", STEPS)),
    "flags": trained_spec(
        40,
        special_tokens=[
            AddedToken("<mask>", 296, lstrip=True),
            AddedToken("think", 400, special=False),
        ],
    ),
    "characters": TokenizerSpec.from_merges(
        BYTES | dict(enumerate([*map(str.encode, " eabcdlowr漢"), b" l", b"<s>"], 256)),
        [(b" ", b"l")],
        ["<s>"],
        pattern=METASPACE,
        normalizer="metaspace-first",
        alphabet=Alphabet(tuple(range(256))),
    ),
    "missing bytes": TokenizerSpec.from_merges(
        MISSING,
        [(b"e", b"s")],
        alphabet=Alphabet(missing=MissingBytes((ord("w"),), 256)),
    ),
    "word suffix": TokenizerSpec.from_merges(
        BYTES
        | {256 + i: bytes([i]) + b"</w>" for i in range(256)}
        | dict(enumerate([b"lo", b"low</w>", b"<|endoftext|>"], 512)),
        [(b"l", b"o"), (b"lo", b"w</w>")],
        ["<|endoftext|>"],
        alphabet=Alphabet(word_suffix=b"</w>"),
    ),
    "empty token, gaps and an idle one": TokenizerSpec.from_merges(
        BYTES | {300: b"", 302: b"ab", 305: "漢".encode(), 306: b"ca"},
        [(b"a", b"b")],
        ["<|endoftext|>"],
        alphabet=Alphabet(idle_ids=(305,)),
    ),
}
