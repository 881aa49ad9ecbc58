"""Import, convert, load in the format's own library: the same ids. Import again: the same
tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

from tests.adversarial import adversarial_texts
from tests.conftest import REPOSITORY
from tests.integration.parity.other_readers import readers_of
from tests.integration.parity.references import first_difference, parts_of
from tests.integration.parity.test_public_vocabularies import SAMPLE_BYTES
from tests.integration.parity.transformers_reader import TransformersReader
from tests.parity.vocabularies import CORPORA, SPECIALS, read_sample
from tokenizer_core import Tokenizer, TokenizerSpec, train_bpe
from tokenizer_core.conversion import FILE_NAMES, convert_spec
from tokenizer_core.errors import FormatError
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
# Vocabularies that cannot be converted, and the words that say why.
REFUSED = {
    ("cl100k", "pickle"): "split pattern gpt2",
    ("o200k", "pickle"): "split pattern gpt2",
    ("llama3.1", "gpt2"): "ignore_merges",
    ("llama3.1", "pickle"): "split pattern gpt2",
    ("qwen3", "tiktoken"): r"normalized \(nfc\)",
    ("qwen3", "gpt2"): r"normalized \(nfc\)",
    ("qwen3", "pickle"): "split pattern gpt2",
    ("tekken", "tokenizer.json"): "its dialect is fancy-regex",
    ("tekken", "transformers"): "its dialect is fancy-regex",
    ("tekken", "pickle"): "split pattern gpt2",
}
# Can be converted, but the readers of `gpt2` have no spelling of a custom pattern.
WITHOUT_READER = {("tekken", "gpt2")}
CONVERTED = [
    pair
    for pair in product(VOCABULARIES, FILE_NAMES)
    if pair not in REFUSED and pair not in WITHOUT_READER
]
SAME_KIND = {("ranks", "tiktoken"), *(("merges", t) for t in FILE_NAMES if t != "tiktoken")}

OVERLAPPING = ["<|endoftext|>", "<|a|>", "<|a|><|a|>"]
Load = Callable[[str], TokenizerSpec]


@pytest.fixture(scope="module")
def public(shared_data: Path) -> Load:
    """A public vocabulary by name; caches the last one."""
    kept: dict[str, TokenizerSpec] = {}

    def load(name: str) -> TokenizerSpec:
        if name not in kept:
            kept.clear()
            file, pattern = VOCABULARIES[name]
            special = SPECIALS[pattern] if pattern else None
            path = shared_data / "vocab" / file
            kept[name] = load_spec([path], pattern=pattern, special_tokens=special)
        return kept[name]

    return load


def starter() -> TokenizerSpec:
    store = ArtifactStore(REPOSITORY / "artifacts")
    return store.open(store.resolve("starter"))


def trained(pattern: str, specials: list[str]) -> TokenizerSpec:
    vocab, merges = train_bpe(REPOSITORY / "README.md", 1200, specials, pattern=pattern)
    return TokenizerSpec.from_merges(vocab, merges, specials, pattern=pattern)


def traps(spec: TokenizerSpec) -> list[str]:
    """Texts on which converted tokenizers could differ: fixed ones, also with special tokens."""
    added = [token.content for token in spec.added_tokens]
    contractions = ("s", "S", "t", "re", "ve", "VE", "m", "ll", "Ll", "d", "D", "ſ", "l", "x")
    lead_bytes = [chr(code) for code in (0x80, 0x7FF, 0x800, 0xFFFD, 0x10000, 0x10FFFF)]
    return [
        *adversarial_texts(),
        *(f"x{token}{token}\u0301 {token}" for token in added[:20]),
        "".join(f" {token}\n" for token in added),
        *(token[:-1] + " " + token[1:] for token in added[:5]),
        " ".join(f"I'{end} we'{end}x '{end}" for end in contractions),
        "e\u0301 \u0344 \u212b\u2126 q\u0323\u0307 q\u0307\u0323 \ufb01 \u1e9b\u0323 \u0958",
        "\u1112\u1161\u11ab\u1100\u1173\u11af \u1100\u1161\uac00\u11a8",
        "\u0301\u0301 \u0301a \u200d\u0301 \u093f",
        *(" " * n + "x" for n in range(1, 90)),
        "a\r\nb\r\n\r\n c\r \n\n\t \r\n",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f44d\U0001f3fd\U0001f1e9\U0001f1ea" * 5,
        *(letter * 4096 for letter in ("a", "A", " ", "\n", "1", "=", "\u4e2d")),
        *("1234567890"[:n] * 3 + " " for n in range(1, 11)),
        "".join(map(chr, range(0x800))),  # with the next line, every byte of UTF-8
        "".join(f"{c}a{c} " for c in lead_bytes) + "".join(map(chr, range(0x1000, 0x11000, 64))),
        "",
    ]


def texts_of_tokens(spec: TokenizerSpec) -> list[str]:
    """Every 50th token that is text, alone."""
    tokens = [spec.vocab[id_] for id_ in sorted(spec.vocab)[::50]]
    return [text for token in tokens if (text := token.decode(errors="ignore")).encode() == token]


def utf8(texts: list[str]) -> list[str]:
    return [text.encode(errors="ignore").decode() for text in texts]


def assert_equal_everywhere(spec: TokenizerSpec, target: str, folder: Path) -> None:
    """Converted and loaded elsewhere the ids are the same; imported again it equals `spec`."""
    paths, is_same = convert_spec(spec, target, folder)
    texts = utf8([*traps(spec), *texts_of_tokens(spec)])
    expected = Tokenizer.from_spec(spec).encode_batch(texts)
    with ExitStack() as stack:
        readers = readers_of(spec, target, paths, stack)
        assert len(readers) >= 2
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
@pytest.mark.parametrize(("name", "target"), CONVERTED)
def test_a_public_vocabulary_is_the_same_in_every_format(name, target, public, tmp_path):
    assert_equal_everywhere(public(name), target, tmp_path)


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "target"), REFUSED)
def test_what_a_format_cannot_hold_is_refused_by_name(name, target, public, tmp_path):
    with pytest.raises(FormatError, match=REFUSED[name, target]):
        convert_spec(public(name), target, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", FILE_NAMES)
def test_the_starter_is_the_same_in_every_format(target, tmp_path):
    assert_equal_everywhere(starter(), target, tmp_path)


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", "llama3", "qwen2"])
@pytest.mark.parametrize("target", FILE_NAMES)
def test_a_freshly_trained_one_is_the_same_in_every_format(target, pattern, tmp_path):
    spec = trained(pattern, OVERLAPPING)
    if target == "tiktoken":
        with pytest.raises(FormatError, match="one begins with the other"):
            convert_spec(spec, target, tmp_path)
        spec = trained(pattern, OVERLAPPING[:2])
    if target == "pickle" and pattern != "gpt2":
        with pytest.raises(FormatError, match=f"has {pattern}"):
            convert_spec(spec, target, tmp_path)
        return
    assert_equal_everywhere(spec, target, tmp_path)


def test_transformers_takes_part(tmp_path):
    if not TransformersReader.is_there():
        pytest.skip("no transformers beside this environment; make test-integration installs it")
    with ExitStack() as stack:
        for target in ("tokenizer.json", "gpt2"):
            paths, _ = convert_spec(starter(), target, tmp_path)
            assert "transformers" in readers_of(starter(), target, paths, stack)


@pytest.fixture(scope="module")
def elsewhere(public: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable]:
    """`(name, target)` -> the readers of the converted files; caches the last ones."""
    kept: dict[tuple[str, str], object] = {}
    with ExitStack() as stack:

        def get(name: str, target: str):
            if (name, target) not in kept:
                stack.close()  # the processes of the previous ones
                kept.clear()
                folder = tmp_path_factory.mktemp("converted")
                paths, _ = convert_spec(public(name), target, folder)
                readers = readers_of(public(name), target, paths, stack)
                kept[name, target] = Tokenizer.from_spec(public(name)), readers
            return kept[name, target]

        yield get


@pytest.mark.shared_data
@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize(("name", "target"), CONVERTED)
def test_2_mb_of_a_corpus_are_the_same_elsewhere(name, target, corpus, elsewhere, shared_data):
    ours, readers = elsewhere(name, target)
    text = read_sample(shared_data / "corpora" / f"{corpus}.txt", SAMPLE_BYTES)
    expected = ours.encode(text)
    parts = list(parts_of(text))
    for library, encode in readers.items():
        theirs = [id_ for ids in encode(parts) for id_ in ids]
        assert first_difference(expected, theirs) == "", library
