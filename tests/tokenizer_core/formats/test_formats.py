"""Detect the format of a file, and read any format to a spec; GPT-2's vocab.json and merges.txt."""

import json
import pickle
import re
import warnings

import pytest

from tests.tokenizer_core.formats.small_specs import BYTES, small_tekken, trained_spec, wild_ranks
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.any_format import (
    detect_file,
    load_files_spec,
    load_spec,
    load_vocab_and_merges,
    write_files,
)
from tokenizer_core.formats.gpt2_files import (
    parse_merges_txt,
    parse_vocab_json,
)
from tokenizer_core.formats.manifest_fields import MANIFEST, render_spec_fields
from tokenizer_core.formats.pickle_files import render_pickle
from tokenizer_core.formats.tekken_file import parse_tekken
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.splitting.patterns import SplitPattern

SPEC = trained_spec()


@pytest.fixture
def files(tmp_path):
    write_files("pickle", SPEC, tmp_path / "vocab.pkl", tmp_path / "merges.pkl")
    write_files("gpt2", SPEC, tmp_path / "vocab.json", tmp_path / "merges.txt")
    write_files("tiktoken", SPEC, tmp_path / "x.tiktoken")
    write_files("tokenizer.json", SPEC, tmp_path / "tokenizer.json")
    (tmp_path / "tekken.json").write_text(json.dumps(small_tekken(["<s>"], n_special=7)))
    return tmp_path


def test_formats_are_told_apart_by_content(files):
    wanted = {"vocab.pkl": "pickle", "vocab.json": "gpt2", "merges.txt": "gpt2"}
    wanted |= {"x.tiktoken": "tiktoken", "tokenizer.json": "tokenizer_json"}
    wanted |= {"tekken.json": "tekken"}
    contents = [((files / name).read_bytes(), kind) for name, kind in wanted.items()]
    contents += [(pickle.dumps(dict(SPEC.vocab), protocol), "pickle") for protocol in range(3)]
    contents += [("Ġ t\nh e\n".encode(), "gpt2")]
    # A vocabulary with the words config and vocab is GPT-2's.
    of_words = {f"{byte:c}": byte - 33 for byte in range(33, 99)} | {"config": 900, "vocab": 901}
    contents += [(json.dumps(of_words).encode(), "gpt2")]
    for data, kind in contents:
        (files / "no_name").write_bytes(data)
        assert detect_file(files / "no_name").format == kind
    for data in (b"", b"one", b"PK\x03\x04zip"):
        (files / "no_name").write_bytes(data)
        with pytest.raises(FormatError):
            detect_file(files / "no_name")
    for text, message in (
        ('{"pat_str": "a", "bpe_ranks": "! 5 IQ=="}', "as Anthropic publishes them; write its"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "with git lfs pull"),
    ):
        (files / "no_name").write_text(text)
        with pytest.raises(FormatError, match=message):
            detect_file(files / "no_name")


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
    write_files("gpt2", ranks, files / "v", files / "m")
    assert load_vocab_and_merges(files / "v", files / "m")[1] == list(SPEC.merges)
    for alone in ("tokenizer.json", "tekken.json"):
        with pytest.raises(FormatError, match="one file alone"):
            load_vocab_and_merges(files / alone, files / "merges.txt")
    tekken = files / "tekken.json"
    assert load_spec([tekken]) == parse_tekken(tekken.read_bytes()) == Tokenizer.load(tekken).spec


@pytest.mark.parametrize(
    ("names", "arguments", "message"),
    [
        ([], {}, "give one file"),
        (["vocab.pkl"], {}, "belongs to a second one"),
        (["x.tiktoken", "merges.txt"], {}, "needs no second file"),
        (["x.tiktoken"], {}, "not the published file of a preset"),
        (["x.tiktoken"], {"pattern": "gpt2", "special_tokens": ["<|x|>"]}, "a mapping"),
        (["tokenizer.json"], {"pattern": "gpt2"}, "leave pattern"),
        (["tekken.json"], {"pattern": "gpt2"}, r"tekken\.json says itself how text is split"),
        (["tekken.json"], {"special_tokens": ["<s>"]}, r"tekken\.json says itself how text"),
        (["tekken.json"] * 2, {}, "tekken needs no second file"),
        (["vocab.pkl", "vocab.pkl"], {}, "this is a dict"),
        (["vocab.json", "merges.pkl"], {}, "not UTF-8|line 1"),
    ],
)
def test_wrong_arguments_are_named(names, arguments, message, files):
    with pytest.raises(FormatError, match=message):
        load_spec([files / name for name in names], **arguments)


def test_given_ids_are_those_of_the_tokens_or_refused(files):
    paths, content = (files / "vocab.json", files / "merges.txt"), "<|x|>"
    id_ = Tokenizer.from_files(*paths, [content]).token_to_id(content)
    assert Tokenizer.from_files(*paths, {content: id_}).special_tokens == {content: id_}
    with pytest.raises(FormatError, match="is to have id 999"):
        Tokenizer.from_files(*paths, {content: 999})
    with pytest.raises(InvalidSpecError, match="list of strings"):
        Tokenizer(SPEC.vocab, SPEC.merges, {content: 999})


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
    (folder / "manifest.json").write_bytes(MANIFEST.render(fields))
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
    others = tmp_path / "v.pkl", tmp_path / "m.pkl"
    write_files("pickle", SPEC, *others)
    assert load_files_spec(*others, ["<|endoftext|>"]).fingerprint == SPEC.fingerprint
    (tmp_path / "copies").mkdir()
    for folder in (tmp_path, tmp_path / "copies"):
        others = folder / "v.pkl", folder / "m.pkl"
        for other, path in zip(others, paths, strict=True):
            other.write_bytes(path.read_bytes())
        assert load_files_spec(paths[0], others[1]) == load_files_spec(others[0], paths[1]) == RICH
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
    write_files("pickle", SPEC, *paths)
    assert load_files_spec(*paths, ["<|endoftext|>"]).fingerprint == SPEC.fingerprint


@pytest.mark.filterwarnings("error")
def test_tokens_that_look_special_and_are_not_declared_are_a_warning(tmp_path):
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    for token in ("<|endoftext|>", "</s>", "[CLS]", "[A_1]"):
        remedy = f"special_tokens=[{token!r}], or on the command line --special '{token}=256'"
        vocab = BYTES | {256: token.encode()}
        write_files("gpt2", TokenizerSpec.from_merges(vocab, []), *paths)
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
    write_files("gpt2", TokenizerSpec.from_merges(vocab, merges), *paths)
    Tokenizer.from_files(*paths, pattern="gpt2")


@pytest.mark.parametrize("merge", [(b";", b"\n"), (b"w</", b"w>"), (b"1", b"a")])
def test_merges_across_pre_tokens_of_gpt2_need_a_pattern(merge, tmp_path):
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    vocab = BYTES | dict(enumerate([b"w</", b"w>", b"".join(merge)], start=256))
    write_files("gpt2", TokenizerSpec.from_merges(vocab, [merge]), *paths)
    with pytest.raises(FormatError, match="which the split pattern gpt2 cuts"):
        Tokenizer.from_files(*paths)
    with warnings.catch_warnings(action="error"):
        spec = Tokenizer.from_files(*paths, pattern="cl100k").spec
        assert Tokenizer(spec.vocab, spec.merges, pattern="cl100k").spec == spec
    with pytest.warns(UserWarning, match=r"the split pattern gpt2 cuts, so no text gives it"):
        Tokenizer(spec.vocab, spec.merges)


def test_a_part_of_a_token_may_be_cut(tmp_path):
    vocab, merges = BYTES | {256: b"'l", 257: b"'ll"}, [(b"'", b"l"), (b"'l", b"l")]
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    write_files("gpt2", TokenizerSpec.from_merges(vocab, merges), *paths)
    assert Tokenizer.from_files(*paths).encode("he'll")[-1] == 257


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_vocab_json, '{"a": 0, "a": 1}', "key 'a' twice"),
        (parse_vocab_json, '{"a": 0, "b": 0}', "id 0 stands for two tokens"),
        (parse_vocab_json, '{"a": 1048576}', "no integer"),
        (parse_vocab_json, '{"a b": 1}', "byte alphabet"),
        (parse_vocab_json, "[]", "JSON object"),
        (parse_vocab_json, "{", "not JSON"),
        (parse_vocab_json, "\ufeff{}", "byte order mark"),
        (parse_merges_txt, "#version: 0.2\na b\na\n", "line 3"),
        (parse_merges_txt, "a b c\n", "line 1"),
        (parse_merges_txt, " a\n", "line 1"),
        (parse_merges_txt, "a b\r\r\nc d\r\n", "line 1"),
        # Hugging Face takes such a merge for a comment.
        (parse_merges_txt, "a b\n#version s\n", "line 2, '#version s', begins with #version"),
        (parse_merges_txt, "a €\n", "line 1"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(parse, text, message):
    with pytest.raises(FormatError, match=message):
        parse(text.encode())


def test_merges_without_version_or_last_newline_and_of_number_signs():
    assert parse_merges_txt(b"# #\n## ##") == [(b"#", b"#"), (b"##", b"##")]
    assert parse_merges_txt(b"#version: 0.2\n") == []
    assert parse_merges_txt(b"#version: 0.2\r\na b\r\n# #\n") == [(b"a", b"b"), (b"#", b"#")]
    assert parse_vocab_json(b'{"": 1, "a": 0}') == {1: b"", 0: b"a"}
    with pytest.raises(FormatError, match="not UTF-8: invalid bytes at offset 2"):
        parse_vocab_json(b'{"\xff": 1}')
    with pytest.raises(FormatError, match="not UTF-8"):
        parse_merges_txt(b"a \xff\n")


@pytest.mark.parametrize("special", ["<|début|>", "é"])
def test_a_special_token_that_vocab_json_spells_as_it_is_has_no_other_id(special, tmp_path):
    """`tokenizers` writes it so, where the alphabet would spell its UTF-8."""
    spec = trained_spec(20, special_tokens=[])
    write_files("gpt2", spec, tmp_path / "vocab.json", tmp_path / "merges.txt")
    table = json.loads((tmp_path / "vocab.json").read_bytes())
    table.setdefault(special, len(table))
    (tmp_path / "vocab.json").write_text(json.dumps(table))
    with pytest.raises(FormatError, match=f"'{re.escape(special)}' is an entry of vocab.json"):
        Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", [special])
    others = ["<|début|é>", "中"]  # not in the file: they get ids of their own
    spec = load_files_spec(tmp_path / "vocab.json", tmp_path / "merges.txt", others)
    assert list(spec.special_tokens.values()) == [len(table), len(table) + 1]
