"""Functions for every format: detect the format of a file, and read it to a spec."""

import pickle
import re
import warnings

import pytest

from tests.tokenizer_core.formats.small_specs import trained_spec, wild_ranks
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats import (
    detect_format,
    load_files_spec,
    load_spec,
    load_vocab_and_merges,
    save_gpt2_files,
    save_pickles_of_spec,
    save_tiktoken,
    save_tokenizer_json,
)
from tokenizer_core.formats.manifest_fields import render_manifest_json, render_spec_fields
from tokenizer_core.formats.pickle_files import render_pickle
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.spec import AddedToken, TokenizerSpec

SPEC = trained_spec()
BYTES = {byte: bytes([byte]) for byte in range(256)}


@pytest.fixture
def files(tmp_path):
    save_pickles_of_spec(SPEC, tmp_path / "vocab.pkl", tmp_path / "merges.pkl")
    save_gpt2_files(SPEC, tmp_path / "vocab.json", tmp_path / "merges.txt")
    save_tiktoken(SPEC, tmp_path / "x.tiktoken")
    save_tokenizer_json(SPEC, tmp_path / "tokenizer.json")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("vocab.pkl", "pickle"),
        ("vocab.json", "gpt2"),
        ("merges.txt", "gpt2"),
        ("x.tiktoken", "tiktoken"),
        ("tokenizer.json", "tokenizer_json"),
    ],
)
def test_formats_are_told_apart_by_content(name, wanted, files):
    (files / "no_name").write_bytes((files / name).read_bytes())
    assert detect_format(files / "no_name") == wanted


def test_old_pickles_and_merges_without_a_version_line_are_told_apart_too(tmp_path):
    for protocol in range(3):
        (tmp_path / "x").write_bytes(pickle.dumps(dict(SPEC.vocab), protocol))
        assert detect_format(tmp_path / "x") == "pickle"
    (tmp_path / "x").write_bytes("Ġ t\nh e\n".encode())
    assert detect_format(tmp_path / "x") == "gpt2"


@pytest.mark.parametrize("data", [b"", b"one", b"PK\x03\x04zip"])
def test_other_files_are_refused(data, tmp_path):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(FormatError):
        detect_format(tmp_path / "x")


def test_every_format_is_read_to_the_same_spec(files):
    same = [
        load_spec([files / "vocab.pkl", files / "merges.pkl"], special_tokens=["<|endoftext|>"]),
        load_spec(
            [files / "vocab.json", files / "merges.txt"], special_tokens={"<|endoftext|>": 356}
        ),
        load_spec([files / "tokenizer.json"]),
        load_files_spec(files / "vocab.pkl", files / "merges.pkl", ["<|endoftext|>"], "gpt2"),
    ]
    assert {spec.fingerprint for spec in same} == {SPEC.fingerprint}
    ranks = load_spec([files / "x.tiktoken"], pattern="gpt2", special_tokens={"<|endoftext|>": 356})
    text = "the <|endoftext|> newest"
    assert Tokenizer.from_spec(ranks).encode(text) == Tokenizer.from_spec(SPEC).encode(text)


@pytest.mark.parametrize(
    ("names", "arguments", "message"),
    [
        ([], {}, "give one file"),
        (["vocab.pkl"], {}, "needs its merges"),
        (["x.tiktoken", "merges.txt"], {}, "needs no second file"),
        (["tokenizer.json", "merges.txt"], {}, "needs no second file"),
        (["x.tiktoken"], {}, "give the pattern"),
        (["x.tiktoken"], {"pattern": "gpt2", "special_tokens": ["<|x|>"]}, "a mapping"),
        (["tokenizer.json"], {"pattern": "gpt2"}, "leave pattern"),
        (["vocab.pkl", "merges.pkl"], {"special_tokens": {"<|x|>": 999}}, "is to have id 999"),
        (["vocab.pkl", "vocab.pkl"], {}, "this is a dict"),
        (["vocab.json", "merges.pkl"], {}, "not UTF-8|line 1"),
    ],
)
def test_wrong_arguments_are_named(names, arguments, message, files):
    with pytest.raises(FormatError, match=message):
        load_spec([files / name for name in names], **arguments)


def test_only_pairs_of_files_have_vocabulary_and_merges(files):
    vocab, merges = load_vocab_and_merges(files / "vocab.json", files / "merges.txt")
    assert (vocab, merges) == load_vocab_and_merges(files / "vocab.pkl", files / "merges.pkl")
    with pytest.raises(FormatError, match="one file alone"):
        load_vocab_and_merges(files / "tokenizer.json", files / "merges.txt")


def test_merges_of_another_vocabulary_are_refused(files):
    (files / "other.pkl").write_bytes(render_pickle([*SPEC.merges[:9], (b"q", b"z")]))
    with pytest.raises(InvalidSpecError, match="another vocabulary"):
        load_files_spec(files / "vocab.pkl", files / "other.pkl")


def test_a_vocabulary_without_all_bytes_is_refused(files):
    vocab = {i: bytes([i]) for i in range(0xF4)}
    (files / "vocab.pkl").write_bytes(render_pickle(vocab))
    (files / "merges.pkl").write_bytes(render_pickle([]))
    with pytest.raises(InvalidSpecError, match="0xf4"):
        load_files_spec(files / "vocab.pkl", files / "merges.pkl")




RICH = trained_spec(
    pattern="qwen2",
    normalizer="nfc",
    special_tokens=[AddedToken("<|a|>", 900), AddedToken("<b>", 901, special=False)],
    prefix_ids=(900,),
)


def artifact(folder, spec):
    (folder / "vocab.pkl").write_bytes(render_pickle(spec.vocab))
    (folder / "merges.pkl").write_bytes(render_pickle(spec.merges))
    fields = {**render_spec_fields(spec), "files": {"vocab.pkl": {}, "merges.pkl": {}}}
    (folder / "manifest.json").write_bytes(render_manifest_json(fields))
    return folder / "vocab.pkl", folder / "merges.pkl"


@pytest.mark.parametrize(
    "spec",
    [
        RICH,
        TokenizerSpec.from_ranks(wild_ranks(5), {"<|x|>": 999}, pattern="cl100k"),
        trained_spec(pattern=SplitPattern("custom", r"\s+|\S+"), ignore_merges=True),
    ],
)
def test_the_manifest_beside_the_pickles_decides(spec, tmp_path):
    paths = artifact(tmp_path, spec)
    assert load_files_spec(*paths) == spec
    specials = [token.content for token in spec.added_tokens]
    assert (
        load_files_spec(
            *paths,
            specials,
            spec.pattern.expression if spec.pattern.name == "custom" else spec.pattern.name,
        )
        == spec
    )


def test_arguments_that_disagree_with_the_manifest_are_refused(tmp_path):
    paths = artifact(tmp_path, RICH)
    with pytest.raises(FormatError, match="says split pattern qwen2, the argument says gpt2"):
        load_files_spec(*paths, None, "gpt2")
    with pytest.raises(FormatError, match=r"no special token '<\|c\|>'"):
        load_files_spec(*paths, ["<|c|>"])


def test_a_damaged_manifest_is_not_passed_over(tmp_path):
    paths = artifact(tmp_path, RICH)
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"nfc"', b'"none"'))
    with pytest.raises(FormatError, match="changed or damaged"):
        load_files_spec(*paths)
    manifest.write_bytes(b"{")
    with pytest.raises(FormatError, match=r"manifest\.json is not JSON"):
        load_files_spec(*paths)


def test_another_program_s_manifest_is_none_of_ours(files):
    (files / "manifest.json").write_text('{"name": "my web app"}')
    spec = load_files_spec(files / "vocab.pkl", files / "merges.pkl", ["<|endoftext|>"])
    assert spec.fingerprint == SPEC.fingerprint


def test_pickles_of_another_artifact_do_not_fit_the_manifest(tmp_path):
    paths = artifact(tmp_path, RICH)
    paths[1].write_bytes(render_pickle(RICH.merges[:-1]))
    with pytest.raises(FormatError, match="do not belong together"):
        load_files_spec(*paths)


def _load_gpt2(folder, vocab, merges, special_tokens=None):
    """Write GPT-2's two files and load them; an error if the loading warns."""
    spec = TokenizerSpec.from_merges(vocab, merges)
    save_gpt2_files(spec, folder / "vocab.json", folder / "merges.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Tokenizer.from_files(folder / "vocab.json", folder / "merges.txt", special_tokens)


@pytest.mark.parametrize("token", ["<|endoftext|>", "</s>", "[CLS]", "[A_1]"])
def test_a_token_that_looks_special_and_is_not_declared_is_a_warning(tmp_path, token):
    remedy = re.escape(
        f"special_tokens=[{token!r}], or on the command line --special '{token}=256'"
    )
    with pytest.raises(UserWarning, match=remedy):
        _load_gpt2(tmp_path, BYTES | {256: token.encode()}, [])
    with pytest.warns(UserWarning, match=remedy) as warned:
        Tokenizer(BYTES | {256: token.encode()}, [])
    assert [warning.filename for warning in warned] == [__file__]
    assert _load_gpt2(tmp_path, BYTES | {256: token.encode()}, [], [token]).encode(token) == [256]


def test_tokens_that_merges_make_or_that_look_ordinary_are_no_warning(tmp_path):
    merges = [(b"<", b"s"), (b"<s", b">")]
    learned = {256 + i: left + right for i, (left, right) in enumerate(merges)}
    plain = [b"<>", b"<?>", b"a<s>", b"< s>", b"<<s>", b"[]", b"[a]", b"[0]", b"<|", b"\xff<s>"]
    vocab = BYTES | learned | dict(enumerate(plain, start=258))
    _load_gpt2(tmp_path, vocab, merges)
