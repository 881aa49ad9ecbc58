"""The public vocabularies twice: on our engines, and in the library each was made for."""

import base64
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import numpy as np
import regex
import tiktoken
import tokenizers
from tiktoken.load import load_tiktoken_bpe
from tiktoken_ext import openai_public

from tests.adversarial import adversarial_texts, class_borders_in_context
from tests.parity.vocabularies import (
    CORPORA,
    RANK_FILES,
    SPECIALS,
    load_ours,
    read_sample,
    vocabulary_file,
)
from tests.tokenizer_core.every_way import check_cuts
from tokenizer_core import Tokenizer

# Hugging Face's library needs hundreds of bytes of memory for each byte of a text, and encodes
# several texts in parallel. A newline between a visible character and a letter ends a pre-token in
# every pattern, composes with nothing and is in no added token: it is safe to cut a text after it.
_CUT = regex.compile(r"(?<=\S\n)(?=\p{L})")
_PART_CHARS = 1 << 17
_PARTS_AT_ONCE = 32


@dataclass
class Pair:
    """One vocabulary: `ours`, and the reference's `encode` with all special tokens recognised."""

    name: str
    ours: Tokenizer
    encode: Callable[[str], list[int]]
    encode_ordinary: Callable[[str], list[int]] | None = None
    encode_parts: Callable[[list[str]], list[list[int]]] | None = None

    def encode_long(self, text):
        """Like `encode`, for a text of any length; shape (n_tokens,), uint32."""
        if self.encode_parts is None:
            return np.array(self.encode(text), dtype=np.uint32)
        parts = list(parts_of(text))
        arrays = [
            np.array(ids, dtype=np.uint32)
            for first in range(0, len(parts), _PARTS_AT_ONCE)
            for ids in self.encode_parts(parts[first : first + _PARTS_AT_ONCE])
        ]
        return np.concatenate([np.empty(0, dtype=np.uint32), *arrays])


def parts_of(text):
    """Split a text at safe cuts: the ids of the parts, joined, are the ids of the text."""
    start = 0
    while start < len(text):
        found = _CUT.search(text, start + _PART_CHARS)
        end = found.start() if found else len(text)
        yield text[start:end]
        start = end


def first_difference(ours, theirs):
    """Describe the first difference of two lists of ids, or return an empty string."""
    for index, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            shown = slice(index, index + 5)
            return f"ids[{index}]: ours {list(ours[shown])}, theirs {list(theirs[shown])}"
    return "" if len(ours) == len(theirs) else f"{len(ours)} ids, theirs {len(theirs)}"


def check_samples(pair, data, n_bytes):
    """The ids of the end of each corpus, and of texts made to find differences, also streamed."""
    for corpus in CORPORA:
        path = data / "corpora" / f"{corpus}.txt"
        text = read_sample(path, n_bytes, max(0, path.stat().st_size - n_bytes))
        ours = pair.ours.encode(text)
        assert first_difference(ours, pair.encode_long(text).tolist()) == "", corpus
        if pair.ours.spec.normalizer.name == "none":
            assert pair.ours.decode_bytes(ours) == text.encode()
    added = [token.content for token in pair.ours.spec.added_tokens]
    texts = [f" {token}\n\u3000{token}a" for token in added[:20]] + [" ".join(added)]
    for text in [*texts, *adversarial_texts(), *class_borders_in_context()]:
        ours = pair.ours.encode(text)
        assert ours == pair.encode(text), repr(text[:80])
        if len(text) < 100:
            check_cuts(pair.ours, text, ours)
        if pair.encode_ordinary:
            assert pair.ours.encode_ordinary(text) == pair.encode_ordinary(text), repr(text[:80])


def published_pattern(name):
    """The pattern in tiktoken's own spelling, read from the installed package."""
    if name == "gpt2":
        return openai_public.r50k_pat_str
    with mock.patch.object(openai_public, "load_tiktoken_bpe", return_value={}):
        return openai_public.ENCODING_CONSTRUCTORS[f"{name}_base"]()["pat_str"]


def tekken_in_tiktoken(path):
    """A `tekken.json` as mistral-common gives it to tiktoken, with its ids and special tokens."""
    table = json.loads(path.read_bytes())
    config = table["config"]
    n_special = config["default_num_special_tokens"]
    ranks = {
        base64.b64decode(entry["token_bytes"]): n_special + entry["rank"]
        for entry in table["vocab"]
        if n_special + entry["rank"] < config["default_vocab_size"]
    }
    return tiktoken.Encoding(
        path.stem,
        pat_str=config["pattern"],
        mergeable_ranks=ranks,
        special_tokens=SPECIALS["tekken"],
    )


@functools.cache
def load_pair(data, name, engine):
    """Each vocabulary is loaded once in a process for each engine, and once in its library."""
    ours = load_ours(data, name, engine)
    if name in RANK_FILES or name == "tekken":
        theirs = _in_tiktoken(data, name)
        encode = functools.partial(theirs.encode, allowed_special="all")
        return Pair(name, ours, encode, theirs.encode_ordinary)
    reference = _in_tokenizers(data, name)

    def encode_parts(parts):
        return [e.ids for e in reference.encode_batch_fast(parts, add_special_tokens=False)]

    return Pair(
        name,
        ours,
        lambda text: reference.encode(text, add_special_tokens=False).ids,
        # A vocabulary of characters has tokens across every cut but that at a space.
        encode_parts=None if ours.spec.alphabet.has_characters else encode_parts,
    )


@functools.cache
def _in_tiktoken(data, name):
    path = vocabulary_file(data, name)
    if name == "tekken":
        return tekken_in_tiktoken(path)
    return tiktoken.Encoding(
        name,
        pat_str=published_pattern(name),
        mergeable_ranks=load_tiktoken_bpe(str(path)),
        special_tokens=SPECIALS[name],
    )


@functools.cache
def _in_tokenizers(data, name):
    reference = tokenizers.Tokenizer.from_file(str(vocabulary_file(data, name)))
    reference.no_truncation()
    reference.no_padding()
    return reference
