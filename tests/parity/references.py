"""The public vocabularies twice: as this project loads them and as their own library does.

Used by the parity tests and by `whole_corpora.py`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import regex
import tiktoken
import tokenizers
from tiktoken.load import load_tiktoken_bpe
from tiktoken_ext import openai_public

from tokenizer_core import Tokenizer

SPECIALS = {
    "gpt2": {"<|endoftext|>": 50256},
    "cl100k": {
        "<|endoftext|>": 100257,
        "<|fim_prefix|>": 100258,
        "<|fim_middle|>": 100259,
        "<|fim_suffix|>": 100260,
        "<|endofprompt|>": 100276,
    },
    "o200k": {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
}
RANK_FILES = {"gpt2": "r50k_base", "cl100k": "cl100k_base", "o200k": "o200k_base"}
JSON_FILES = {
    "gpt2_json": "gpt2.tokenizer.json",
    "llama3": "llama3_1.tokenizer.json",
    "qwen3": "qwen3.tokenizer.json",
}
NAMES = [*RANK_FILES, *JSON_FILES]
CORPORA = [
    "en_reuters_news",
    "en_books",
    "zh_modern_bitext",
    "ja_aozora",
    "ru_ruslit",
    "ko_nsmc",
    "code_c_linux",
    "code_py_js_rs",
    "social_tweets_emoji",
    "tinystories_small",
    "edge_unicode",
]

# Hugging Face takes hundreds of bytes of memory for each byte of a text, and works on several
# texts at once. One newline between something visible and a letter ends a pre-token in every
# pattern, composes with nothing, and stands in no added token: a text may be cut behind it.
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

    def encode_long(self, text: str) -> np.ndarray:
        """As `encode`, for a text of any length; shape (n_tokens,), uint32."""
        if self.encode_parts is None:
            return np.array(self.encode(text), dtype=np.uint32)
        parts = list(parts_of(text))
        arrays = [
            np.array(ids, dtype=np.uint32)
            for first in range(0, len(parts), _PARTS_AT_ONCE)
            for ids in self.encode_parts(parts[first : first + _PARTS_AT_ONCE])
        ]
        return np.concatenate([np.empty(0, dtype=np.uint32), *arrays])


def parts_of(text: str) -> Iterator[str]:
    """The text in parts whose ids joined are those of the text; a part is as long as it must be
    where there is no place to cut."""
    start = 0
    while start < len(text):
        found = _CUT.search(text, start + _PART_CHARS)
        end = found.start() if found else len(text)
        yield text[start:end]
        start = end


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> str:
    """Where two id lists part, without printing half a million ids."""
    for index, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            shown = slice(index, index + 5)
            return f"ids[{index}]: ours {list(ours[shown])}, theirs {list(theirs[shown])}"
    return "" if len(ours) == len(theirs) else f"{len(ours)} ids, theirs {len(theirs)}"


def published_pattern(name: str) -> str:
    """The pattern as tiktoken itself spells it, read from the installed package."""
    if name == "gpt2":
        return openai_public.r50k_pat_str
    source = Path(openai_public.__file__).read_text(encoding="utf-8")
    body = source[source.index(f"def {name}_base") :]
    body = body[: body.index("\n\n\n")]
    if name == "cl100k":
        found = re.search(r'"pat_str": r"""(.*?)"""', body)
        assert found
        return found.group(1)
    parts = re.findall(r'r"""(.*?)""",\n', body)
    assert len(parts) == 7
    return "|".join(parts)


def load_pair(data: Path, name: str, engine: str) -> Pair:
    if name in RANK_FILES:
        path = data / "vocab" / f"{RANK_FILES[name]}.tiktoken"
        ours = Tokenizer.from_tiktoken(
            path, pattern=name, special_tokens=SPECIALS[name], engine=engine
        )
        theirs = tiktoken.Encoding(
            name,
            pat_str=published_pattern(name),
            mergeable_ranks=load_tiktoken_bpe(str(path)),
            special_tokens=SPECIALS[name],
        )
        return Pair(
            name,
            ours,
            lambda text: theirs.encode(text, allowed_special="all"),
            theirs.encode_ordinary,
        )
    path = data / "vocab" / JSON_FILES[name]
    reference = tokenizers.Tokenizer.from_file(str(path))

    def encode_parts(parts: list[str]) -> list[list[int]]:
        return [e.ids for e in reference.encode_batch_fast(parts, add_special_tokens=False)]

    return Pair(
        name,
        Tokenizer.from_tokenizer_json(path, engine=engine),
        lambda text: reference.encode(text, add_special_tokens=False).ids,
        encode_parts=encode_parts,
    )
