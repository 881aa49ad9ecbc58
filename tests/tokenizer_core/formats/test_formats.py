"""Functions for every format: detect the format of a file, and read it to a spec."""

import pickle
import re

import pytest

from tests.tokenizer_core.formats.small_specs import BYTES, trained_spec, wild_ranks
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError
from tokenizer_core.formats import (
    detect_format,
    load_files_spec,
    load_spec,
    load_tokenizer_json,
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


@pytest.fixture
def files(tmp_path):
    save_pickles_of_spec(SPEC, tmp_path / "vocab.pkl", tmp_path / "merges.pkl")
    save_gpt2_files(SPEC, tmp_path / "vocab.json", tmp_path / "merges.txt")
    save_tiktoken(SPEC, tmp_path / "x.tiktoken")
    save_tokenizer_json(SPEC, tmp_path / "tokenizer.json")
    return tmp_path


def test_formats_are_told_apart_by_content(files):
    wanted = {"vocab.pkl": "pickle", "vocab.json": "gpt2", "merges.txt": "gpt2"}
    wanted |= {"x.tiktoken": "tiktoken", "tokenizer.json": "tokenizer_json"}
    contents = [((files / name).read_bytes(), kind) for name, kind in wanted.items()]
    contents += [(pickle.dumps(dict(SPEC.vocab), protocol), "pickle") for protocol in range(3)]
    contents += [("Ġ t\nh e\n".encode(), "gpt2")]
    for data, kind in contents:
        (files / "no_name").write_bytes(data)
        assert detect_format(files / "no_name") == kind
    for data in (b"", b"one", b"PK\x03\x04zip"):
        (files / "no_name").write_bytes(data)
        with pytest.raises(FormatError):
            detect_format(files / "no_name")


def test_every_format_is_read_to_the_same_spec(files):
    same = [
        load_spec([files / "vocab.pkl", files / "merges.pkl"], special_tokens=["<|endoftext|>"]),
        load_spec(
            [files / "vocab.json", files / "merges.txt"], special_tokens={"<|endoftext|>": 356}
        ),
        load_spec([files / "tokenizer.json"]),
        load_tokenizer_json(files / "tokenizer.json"),
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
    with pytest.raises(FormatError, match=r"is a folder; load a model folder with Tokenizer\.load"):
        load_tokenizer_json(files)


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
    pattern = spec.pattern
    name = pattern.expression if pattern.name == "custom" else pattern.name
    assert load_files_spec(*paths, specials, name) == spec


def test_what_disagrees_with_the_manifest_is_refused_and_one_of_another_program_is_not(tmp_path):
    paths = artifact(tmp_path, RICH)
    with pytest.raises(FormatError, match="says split pattern qwen2, the argument says gpt2"):
        load_files_spec(*paths, None, "gpt2")
    with pytest.raises(FormatError, match=r"no special token '<\|c\|>'"):
        load_files_spec(*paths, ["<|c|>"])
    paths[1].write_bytes(render_pickle(RICH.merges[:-1]))
    with pytest.raises(FormatError, match="do not belong together"):
        load_files_spec(*paths)
    manifest = tmp_path / "manifest.json"
    changed = manifest.read_bytes().replace(b'"nfc"', b'"none"')
    for data, message in ((changed, "changed or damaged"), (b"{", r"manifest\.json is not JSON")):
        manifest.write_bytes(data)
        with pytest.raises(FormatError, match=message):
            load_files_spec(*paths)
    manifest.write_text('{"name": "my web app"}')
    save_pickles_of_spec(SPEC, *paths)
    assert load_files_spec(*paths, ["<|endoftext|>"]).fingerprint == SPEC.fingerprint


@pytest.mark.filterwarnings("error")
def test_tokens_that_look_special_and_are_not_declared_are_a_warning(tmp_path):
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    for token in ("<|endoftext|>", "</s>", "[CLS]", "[A_1]"):
        remedy = f"special_tokens=[{token!r}], or on the command line --special '{token}=256'"
        vocab = BYTES | {256: token.encode()}
        save_gpt2_files(TokenizerSpec.from_merges(vocab, []), *paths)
        with pytest.raises(UserWarning, match=re.escape(remedy)):
            Tokenizer.from_files(*paths)
        with pytest.warns(UserWarning, match=re.escape(remedy)) as warned:
            Tokenizer(vocab, [])
        assert [warning.filename for warning in warned] == [__file__]
        assert Tokenizer.from_files(*paths, [token]).encode(token) == [256]
    # Those that merges make, or that look ordinary.
    merges = [(b"<", b"s"), (b"<s", b">")]
    learned = {256 + i: left + right for i, (left, right) in enumerate(merges)}
    plain = [b"<>", b"<?>", b"a<s>", b"< s>", b"<<s>", b"[]", b"[a]", b"[0]", b"<|", b"\xff<s>"]
    vocab = BYTES | learned | dict(enumerate(plain, start=258))
    save_gpt2_files(TokenizerSpec.from_merges(vocab, merges), *paths)
    Tokenizer.from_files(*paths)
