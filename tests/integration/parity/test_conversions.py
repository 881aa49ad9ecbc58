"""Import, convert, load in the format's own library: the same ids. Import again: the same
tokenizer."""

import pickle
from itertools import product

import pytest
import tiktoken
import tiktoken.load
import tokenizers
from tokenizers import Regex, models, pre_tokenizers

import tokenizer_core
from tests.adversarial import adversarial_texts
from tests.conftest import REPOSITORY
from tests.integration.parity.references import first_difference
from tests.integration.parity.transformers_reader import TransformersReader
from tests.parity.vocabularies import SPECIALS
from tokenizer_core import Tokenizer
from tokenizer_core.conversion import FILE_NAMES, convert_spec, loading_lines
from tokenizer_core.formats.any_format import load_spec
from tokenizer_core.formats.gpt2_files import render_token
from tokenizer_core.formats.tokenizer_json.pre_tokenizer import SPELLINGS
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
    "cl100k": ["pickle"],
    "o200k": ["pickle"],
    "llama3.1": ["gpt2", "pickle"],
    "qwen3": ["tiktoken", "gpt2", "pickle"],
    # It can be converted to `gpt2`, whose readers have no spelling of a custom pattern.
    "tekken": ["pickle", "gpt2"],
}
CONVERTED = {
    (name, target)
    for name, target in product(VOCABULARIES, FILE_NAMES)
    if target not in REFUSED.get(name, [])
}
# Each vocabulary and each format once; the others are slow.
SOME = [
    ("o200k", "tokenizer.json"),
    ("cl100k", "tiktoken"),
    ("gpt2", "gpt2"),
    ("r50k", "pickle"),
    ("qwen3", "transformers"),
    ("llama3.1", "tiktoken"),
    ("tekken", "tokenizer.json"),
]
SAME_KIND = {("ranks", "tiktoken"), *(("merges", t) for t in FILE_NAMES if t != "tiktoken")}

_LIBRARIES = {"tokenizer_core": tokenizer_core, "tokenizers": tokenizers, "tiktoken": tiktoken}


def readers_of(spec, target, paths):
    """Name of the library -> a function that encodes texts with the files, special tokens
    recognised."""
    found = {}
    for line in loading_lines(spec, target, paths):
        library = line.partition(".")[0]
        if library in _LIBRARIES:
            found[library] = _encode_with(eval(line, dict(_LIBRARIES)))
    added = [token.content for token in spec.added_tokens]
    if target in ("tokenizer.json", "transformers"):
        (path,) = (path for path in paths if path.name == "tokenizer.json")
        found["tokenizers"] = _encode_with(tokenizers.Tokenizer.from_file(str(path)))
        if TransformersReader.is_there():
            reader = TransformersReader("PreTrainedTokenizerFast", str(path))
            found["transformers"] = reader.encode
    elif target == "gpt2":
        model = models.BPE.from_file(*map(str, paths))
        found["tokenizers"] = _encode_with(_in_tokenizers(model, spec, added))
        # That class splits by this pattern alone.
        if spec.pattern.name == "gpt2" and TransformersReader.is_there():
            reader = TransformersReader("GPT2Tokenizer", str(paths[0].parent), *added)
            found["transformers"] = reader.encode
    elif target == "pickle":
        vocab, merges = (pickle.loads(path.read_bytes()) for path in paths)
        model = models.BPE(
            vocab={render_token(token): id_ for id_, token in vocab.items()},
            merges=[(render_token(left), render_token(right)) for left, right in merges],
        )
        found["pickle and tokenizers"] = _encode_with(_in_tokenizers(model, spec, added))
    return found


def _in_tokenizers(model, spec, added):
    """A bare model, with the settings that its file does not carry."""
    tokenizer = tokenizers.Tokenizer(model)
    is_gpt2 = spec.pattern.name == "gpt2"
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=is_gpt2)
    split = pre_tokenizers.Split(Regex(SPELLINGS[spec.pattern.name]), "isolated")
    tokenizer.pre_tokenizer = (
        byte_level if is_gpt2 else pre_tokenizers.Sequence([split, byte_level])
    )
    tokenizer.add_special_tokens(added)
    return tokenizer


def _encode_with(loaded):
    if isinstance(loaded, tokenizers.Tokenizer):
        return lambda texts: [
            encoding.ids for encoding in loaded.encode_batch_fast(texts, add_special_tokens=False)
        ]
    if isinstance(loaded, tiktoken.Encoding):
        return lambda texts: [loaded.encode(text, allowed_special="all") for text in texts]
    return lambda texts: loaded.encode_batch(texts)


def traps(spec):
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
        "e\u0301 \u0344 \u212b\u2126 q\u0323\u0307 \u1112\u1161\u11ab\u1100 \u0301a \u200d\u0301",
        *(" " * n + "x" for n in range(1, 90)),
        *(letter * 4096 for letter in ("a", "A", " ", "\n", "1", "=", "\u4e2d")),
        "".join(map(chr, range(0x800))),  # with the next line, every byte of UTF-8
        "".join(f"{c}a{c} " for c in lead_bytes) + "".join(map(chr, range(0x1000, 0x11000, 64))),
        "",
        *(text for token in tokens if (text := token.decode(errors="ignore")).encode() == token),
    ]
    return [text.encode(errors="ignore").decode() for text in texts]


def assert_equal_everywhere(spec, target, folder):
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


def read_again(spec, target, paths):
    if target == "tokenizer.json":
        return load_spec(paths)
    if target == "transformers":
        return load_spec([paths[0].parent])
    return load_spec(paths, pattern=spec.pattern, special_tokens=spec.added_ids)


def assert_back_again(spec, again, target, folder):
    """Imported in its first format it equals the original, except what conversion drops."""
    origin = "tiktoken" if spec.kind == "ranks" else "tokenizer.json"
    paths, _ = convert_spec(again, origin, folder / "back")
    back = read_again(spec, origin, paths)  # which gives the pattern in its own dialect
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
    file, pattern = VOCABULARIES[name]
    special = SPECIALS[pattern] if pattern else None
    path = shared_data / "vocab" / file
    spec = load_spec([path], pattern=pattern, special_tokens=special)
    assert_equal_everywhere(spec, target, tmp_path)


@pytest.mark.parametrize("target", sorted(FILE_NAMES.keys() - {"pickle"}))  # not its pattern
def test_the_starter_is_the_same_in_every_format(target, tmp_path):
    store = ArtifactStore(REPOSITORY / "artifacts")
    assert_equal_everywhere(store.open(store.resolve("starter")), target, tmp_path)
