"""Import, convert, load in the format's own library: the same ids. Import again: the same
tokenizer."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.adversarial import adversarial_texts
from tests.conftest import REPOSITORY
from tests.integration.parity.other_readers import readers_of
from tests.integration.parity.references import first_difference
from tests.integration.parity.transformers_reader import TransformersReader
from tests.parity.vocabularies import SPECIALS
from tokenizer_core import Tokenizer, TokenizerSpec, train_bpe
from tokenizer_core.conversion import FILE_NAMES, convert_spec
from tokenizer_core.formats import load_spec
from tokenizer_core.registry import ArtifactStore

# Vocabulary -> its file, and the pattern if the file does not contain it.
VOCABULARIES = {
    "r50k": ("r50k_base.tiktoken", "gpt2"),
    "cl100k": ("cl100k_base.tiktoken", "cl100k"),
    "o200k": ("o200k_base.tiktoken", "o200k"),
    "gpt2": ("gpt2.tokenizer.json", None),
    "llama3.1": ("llama3_1.tokenizer.json", None),
    "qwen3": ("qwen3.tokenizer.json", None),
    "tekken": ("../vocab_open/tekken_240911.json", None),
}
REFUSED = {
    ("cl100k", "pickle"),
    ("o200k", "pickle"),
    ("llama3.1", "gpt2"),
    ("llama3.1", "pickle"),
    ("qwen3", "tiktoken"),
    ("qwen3", "gpt2"),
    ("qwen3", "pickle"),
    ("tekken", "tokenizer.json"),
    ("tekken", "transformers"),
    ("tekken", "pickle"),
}
# Can be converted, but the readers of `gpt2` have no spelling of a custom pattern.
WITHOUT_READER = {("tekken", "gpt2")}
CONVERTED = {*product(VOCABULARIES, FILE_NAMES)} - REFUSED - WITHOUT_READER
# Each vocabulary and each format once; the others are slow.
SOME = [
    ("o200k", "tokenizer.json"),
    ("cl100k", "tiktoken"),
    ("gpt2", "gpt2"),
    ("r50k", "pickle"),
    ("qwen3", "transformers"),
    ("llama3.1", "tiktoken"),
    ("tekken", "tiktoken"),
]
SAME_KIND = {("ranks", "tiktoken"), *(("merges", t) for t in FILE_NAMES if t != "tiktoken")}


def public(data: Path, name: str) -> TokenizerSpec:
    file, pattern = VOCABULARIES[name]
    special = SPECIALS[pattern] if pattern else None
    return load_spec([data / "vocab" / file], pattern=pattern, special_tokens=special)


def starter() -> TokenizerSpec:
    store = ArtifactStore(REPOSITORY / "artifacts")
    return store.open(store.resolve("starter"))


def trained(pattern: str, specials: list[str]) -> TokenizerSpec:
    vocab, merges = train_bpe(REPOSITORY / "README.md", 1200, specials, pattern=pattern)
    return TokenizerSpec.from_merges(vocab, merges, specials, pattern=pattern)


def traps(spec: TokenizerSpec) -> list[str]:
    """Texts on which converted tokenizers could differ: fixed ones, also with special tokens, and
    every 50th token that is text."""
    added = [token.content for token in spec.added_tokens]
    contractions = ("s", "S", "t", "re", "ve", "VE", "m", "ll", "Ll", "d", "D", "ſ", "l", "x")
    lead_bytes = [chr(code) for code in (0x80, 0x7FF, 0x800, 0xFFFD, 0x10000, 0x10FFFF)]
    tokens = [spec.vocab[id_] for id_ in sorted(spec.vocab)[::50]]
    texts = [
        *adversarial_texts(),
        *(f"x{token}{token}\u0301 {token}" for token in added[:20]),
        "".join(f" {token}\n" for token in added),
        *(token[:-1] + " " + token[1:] for token in added[:5]),
        " ".join(f"I'{end} we'{end}x '{end}" for end in contractions),
        "e\u0301 \u0344 \u212b\u2126 q\u0323\u0307 q\u0307\u0323 \ufb01 \u1e9b\u0323 \u0958",
        "\u1112\u1161\u11ab\u1100\u1173\u11af \u1100\u1161\uac00\u11a8",
        "\u0301\u0301 \u0301a \u200d\u0301 \u093f",
        *(" " * n + "x" for n in range(1, 90)),
        *(letter * 4096 for letter in ("a", "A", " ", "\n", "1", "=", "\u4e2d")),
        *("1234567890"[:n] * 3 + " " for n in range(1, 11)),
        "".join(map(chr, range(0x800))),  # with the next line, every byte of UTF-8
        "".join(f"{c}a{c} " for c in lead_bytes) + "".join(map(chr, range(0x1000, 0x11000, 64))),
        "",
        *(text for token in tokens if (text := token.decode(errors="ignore")).encode() == token),
    ]
    return [text.encode(errors="ignore").decode() for text in texts]


def assert_equal_everywhere(spec: TokenizerSpec, target: str, folder: Path) -> None:
    """Converted and loaded elsewhere the ids are the same; imported again it equals `spec`."""
    paths, is_same = convert_spec(spec, target, folder)
    texts = traps(spec)
    expected = Tokenizer.from_spec(spec).encode_batch(texts)
    readers = readers_of(spec, target, paths)
    assert len(readers) >= 2
    if TransformersReader.is_there():
        reads = target in ("tokenizer.json", "transformers")
        reads |= target == "gpt2" and spec.pattern.name == "gpt2"
        assert ("transformers" in readers) == reads
    for library, encode in readers.items():
        for text, ours, theirs in zip(texts, expected, encode(texts), strict=True):
            assert first_difference(ours, theirs) == "", (library, text[:80])
    again = read_again(spec, target, paths)
    loses = bool(spec.prefix_ids or not all(t.special for t in spec.added_tokens))
    is_whole = target in ("tokenizer.json", "transformers")
    is_kept = (spec.kind, target) in SAME_KIND and (is_whole or not loses)
    assert is_same is is_kept
    assert (again.fingerprint == spec.fingerprint) is is_kept
    assert_back_again(spec, again, target, folder)


def read_again(spec: TokenizerSpec, target: str, paths: list[Path]) -> TokenizerSpec:
    if target == "tokenizer.json":
        return load_spec(paths)
    if target == "transformers":
        return load_spec([paths[0].parent])
    special = {token.content: token.id for token in spec.added_tokens}
    return load_spec(paths, pattern=spec.pattern, special_tokens=special)


def assert_back_again(spec: TokenizerSpec, again: TokenizerSpec, target: str, folder: Path) -> None:
    """Imported in its first format it equals the original, except what conversion drops."""
    origin = "tiktoken" if spec.kind == "ranks" else "tokenizer.json"
    paths, _ = convert_spec(again, origin, folder / "back")
    back = read_again(again, origin, paths)
    if spec.kind == "ranks" or target != "tiktoken":
        assert back.fingerprint == spec.fingerprint
    else:  # merges that apply, whole pre-tokens first: another list, then stable
        paths, _ = convert_spec(back, "tiktoken", folder / "there")
        assert read_again(spec, "tiktoken", paths).fingerprint == again.fingerprint


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "target"),
    [*SOME, *(pytest.param(*one, marks=pytest.mark.slow) for one in sorted(CONVERTED - {*SOME}))],
)
def test_a_public_vocabulary_is_the_same_in_every_format(name, target, shared_data, tmp_path):
    assert_equal_everywhere(public(shared_data, name), target, tmp_path)


@pytest.mark.parametrize("target", FILE_NAMES)
def test_the_starter_is_the_same_in_every_format(target, tmp_path):
    assert_equal_everywhere(starter(), target, tmp_path)


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        ("tiktoken", "cl100k"),
        ("tokenizer.json", "o200k"),
        ("transformers", "qwen2"),
        ("gpt2", "llama3"),
        ("pickle", "gpt2"),
    ],
)
def test_a_freshly_trained_one_is_the_same_in_every_format(target, pattern, tmp_path):
    overlapping = [] if target == "tiktoken" else ["<|a|><|a|>"]
    specials = ["<|endoftext|>", "<|a|>", *overlapping]
    assert_equal_everywhere(trained(pattern, specials), target, tmp_path)
