"""The public vocabularies twice: as this project loads them and as their own library does."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
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


@dataclass
class Pair:
    """One vocabulary: `ours`, and the reference's `encode` with all special tokens recognised."""

    name: str
    ours: Tokenizer
    encode: Callable[[str], list[int]]
    encode_ordinary: Callable[[str], list[int]] | None = None


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
    return Pair(
        name,
        Tokenizer.from_tokenizer_json(path, engine=engine),
        lambda text: reference.encode(text, add_special_tokens=False).ids,
    )


@pytest.fixture(scope="session")
def pairs(shared_data: Path, engine: str) -> Callable[[str], Pair]:
    """Each vocabulary loaded at most once in a session, for each engine."""
    loaded: dict[str, Pair] = {}

    def get(name: str) -> Pair:
        if name not in loaded:
            loaded[name] = load_pair(shared_data, name, engine)
        return loaded[name]

    return get
