"""Conversion: it checks the output before publishing it, and keeps the old files until then."""

import errno
import json
import os
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
import tiktoken
import tokenizers
from tiktoken_ext import openai_public

import tokenizer_core
from tests.conftest import REPOSITORY
from tests.tokenizer_core.formats.normalizer_files import file_of
from tests.tokenizer_core.formats.small_specs import (
    BYTES,
    TRAINING_TEXT,
    chain_spec,
    character_spec,
    trained_spec,
    wild_ranks,
)
from tests.tokenizer_core.formats.test_tokenizer_json_clip import clip
from tokenizer_core import Tokenizer, conversion
from tokenizer_core.blobs import atomic_files as whole_files
from tokenizer_core.chat_templates import ChatTemplates
from tokenizer_core.conversion import (
    FILE_NAMES,
    convert_spec,
    loading_lines,
    not_carried,
    output_paths,
)
from tokenizer_core.errors import ConversionError, FormatError
from tokenizer_core.formats import load_spec, save_tokenizer_json
from tokenizer_core.formats.tokenizer_json import parse_tokenizer_json
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.spec import AddedToken, MissingBytes, TokenizerSpec

END = "<|endoftext|>"
SPEC = trained_spec()
OTHER = trained_spec(60)
RANKS = TokenizerSpec.from_ranks(dict(SPEC.token_to_id), {"<|endoftext|>": 356}, pattern="gpt2")
PAIRS = [target for target, names in FILE_NAMES.items() if len(names) == 2]
SINGLE = [target for target, names in FILE_NAMES.items() if len(names) == 1]


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden files too."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("target", FILE_NAMES)
@pytest.mark.parametrize("spec", [SPEC, RANKS], ids=["merges", "ranks"])
def test_the_line_that_is_printed_loads_it(target, spec, tmp_path):
    paths, is_same = convert_spec(spec, target, tmp_path)
    assert [path.name for path in paths] == list(FILE_NAMES[target])
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    line = loading_lines(spec, target, paths)[0]
    again = eval(line.removeprefix("tokenizer_core."), {"Tokenizer": Tokenizer})
    assert (again.spec.fingerprint == spec.fingerprint) is is_same
    assert is_same is ((spec.kind == "ranks") == (target == "tiktoken"))
    text = TRAINING_TEXT + "<|endoftext|>"
    assert again.encode(text) == Tokenizer.from_spec(spec).encode(text)


@pytest.mark.parametrize("target", FILE_NAMES)
def test_nothing_is_overwritten_unasked(target, tmp_path):
    convert_spec(OTHER, target, tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ConversionError, match="is there already"):
        convert_spec(SPEC, target, tmp_path)
    assert contents(tmp_path) == before
    convert_spec(SPEC, target, tmp_path, overwrite=True)
    changed = contents(tmp_path)
    assert changed.keys() == before.keys()
    same = {"special_tokens_map.json"}  # both tokenizers have the same special token
    assert all(changed[name] != before[name] for name in before if name not in same)


def test_what_comes_to_stand_there_meanwhile_is_not_overwritten(tmp_path, monkeypatch):
    target = tmp_path / "x.json"

    def write(spec, path):
        save_tokenizer_json(spec, path)
        target.write_text("somebody else's")

    monkeypatch.setattr(conversion, "_WRITERS", {"tokenizer.json": write})
    with pytest.raises(ConversionError, match="is there already"):
        convert_spec(SPEC, "tokenizer.json", target)
    assert contents(tmp_path) == {"x.json": b"somebody else's"}


class Stop(BaseException):
    """Like an interrupt: not an Exception."""


@pytest.mark.parametrize("target", FILE_NAMES)
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "overwriting"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), Stop()])
def test_a_failure_anywhere_leaves_what_was_there(target, is_there, error, tmp_path, monkeypatch):
    """Dies at each fsync and each rename in turn, during the whole conversion."""
    output = tmp_path / ("out" if target in PAIRS else "out.file")
    if is_there:
        convert_spec(OTHER, target, output)
    before = contents(tmp_path)
    calls = {"n": 0, "last": None}

    def failing(function):
        def call(*arguments):
            calls["n"] += 1
            if calls["n"] == calls["last"]:
                raise error
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(whole_files.os, "fsync", failing(os.fsync))
        patch.setattr(Path, "rename", failing(Path.rename))
        patch.setattr(Path, "replace", failing(Path.replace))
        convert_spec(SPEC, target, tmp_path / "trial" if target in PAIRS else tmp_path / "trial.x")
        n_calls = calls["n"] + (len(FILE_NAMES[target]) if is_there and target in PAIRS else 0)
    assert n_calls >= 3
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        if "trial" in str(path.relative_to(tmp_path)):
            path.rmdir() if path.is_dir() else path.unlink()
    for last in range(1, n_calls + 1):
        calls.update(n=0, last=last)
        with monkeypatch.context() as patch:
            patch.setattr(whole_files.os, "fsync", failing(os.fsync))
            patch.setattr(Path, "rename", failing(Path.rename))
            patch.setattr(Path, "replace", failing(Path.replace))
            with pytest.raises(type(error)):
                convert_spec(SPEC, target, output, overwrite=True)
        assert contents(tmp_path) == before, last


@pytest.mark.parametrize("target", SINGLE)
def test_one_file_is_exchanged_in_one_step(target, tmp_path, monkeypatch):
    """A concurrent reader finds the old file or the new one."""
    convert_spec(OTHER, target, tmp_path / "x")
    before = (tmp_path / "x").read_bytes()
    replaced = Path.replace

    def replace_seen(path, other):
        if other == tmp_path / "x":
            assert other.read_bytes() == before
        return replaced(path, other)

    monkeypatch.setattr(Path, "replace", replace_seen)
    monkeypatch.delattr(Path, "rename")
    convert_spec(SPEC, target, tmp_path / "x", overwrite=True)
    assert (tmp_path / "x").read_bytes() != before


def other_flags(spec):
    return replace(spec, added_tokens=(AddedToken("<|endoftext|>", 356, special=False),))


@pytest.mark.parametrize(
    ("spec", "lie"),
    [
        (SPEC, OTHER),
        (SPEC, replace(SPEC, pattern=trained_spec(pattern="llama3").pattern)),
        (SPEC, replace(SPEC, normalizer="nfc")),
        (SPEC, replace(SPEC, ignore_merges=True)),
        (SPEC, replace(SPEC, prefix_ids=(356,))),
        (SPEC, replace(SPEC, merges=(SPEC.merges[1], SPEC.merges[0], *SPEC.merges[2:]))),
        (SPEC, other_flags(SPEC)),
        (RANKS, replace(SPEC, merges=())),
        (RANKS, replace(SPEC, ignore_merges=True, merges=SPEC.merges[::-1])),
        (RANKS, replace(SPEC, ignore_merges=True, prefix_ids=(356,))),
    ],
)
def test_what_is_another_tokenizer_when_read_back_is_not_kept(spec, lie, tmp_path, monkeypatch):
    writers = {"tokenizer.json": lambda _, path: save_tokenizer_json(lie, path)}
    monkeypatch.setattr(conversion, "_WRITERS", writers)
    with pytest.raises(ConversionError, match="read back"):
        convert_spec(spec, "tokenizer.json", tmp_path / "x.json")
    assert contents(tmp_path) == {}


def test_what_cannot_be_read_back_is_not_kept(tmp_path, monkeypatch):
    writers = {"tiktoken": lambda _, path: path.write_bytes(b"YQ== 0\n")}
    monkeypatch.setattr(conversion, "_WRITERS", writers)
    with pytest.raises(ConversionError, match="cannot be read back: the vocabulary has no token"):
        convert_spec(SPEC, "tiktoken", tmp_path / "x")
    assert contents(tmp_path) == {}


CUSTOM = replace(SPEC, pattern=SplitPattern("custom", r"\s+|\S+"))
UNREACHED = TokenizerSpec.from_ranks(wild_ranks(3), pattern="gpt2")
GAPS = trained_spec(special_tokens=[AddedToken("<|a|>", 900)])
NESTED = trained_spec(special_tokens=["<|a|>", "<|a|><|a|>"])
LEARNED = trained_spec(special_tokens=["the"])
FOREIGN = trained_spec(special_tokens=["<中>"])
TWICE = TokenizerSpec.from_merges(BYTES | {256: b"a"}, [])
SHADOWED = trained_spec(special_tokens=[AddedToken("<", 356)])
STEPS = parse_tokenizer_json(file_of({"type": "Lowercase"}, []))
IDLE = replace(SPEC, vocab={**SPEC.vocab, 400: "中".encode()}, idle_ids=(400,))
SUFFIXED = replace(
    parse_tokenizer_json(clip("byte-level")),
    normalizer="none",
    normalizer_steps=(),
    added_tokens=(),
)
NFC = trained_spec(normalizer="nfc")
PREFIX_SPACE = trained_spec(normalizer="prefix-space")
FLAGGED = trained_spec(special_tokens=[AddedToken("<m>", 356, lstrip=True)])
CHARACTERS = character_spec()
LACKING = TokenizerSpec.from_merges(
    {id_: token for id_, token in BYTES.items() if id_ != 4}, [], missing=MissingBytes((4,))
)
TRUNCATION = {"direction": "Left", "max_length": 9, "strategy": "OnlyFirst", "stride": 0}
BATCHED = replace(SPEC, batch_settings={"truncation": TRUNCATION})
WHOLE = trained_spec(ignore_merges=True)
CL100K = trained_spec(pattern="cl100k")

CONTENT = trained_spec(special_tokens=[AddedToken("<b>", 356, special=False)])
AROUND = trained_spec(prefix_ids=(356,), suffix_ids=(356,))
REORDERED = replace(SPEC, merges=SPEC.merges[::-1])
VERSION = chain_spec("#versions")

EMPTY = TokenizerSpec.from_merges(
    {**SPEC.vocab, SPEC.largest_id + 1: b""}, SPEC.merges, SPEC.added_tokens
)
TWO_NAMES = replace(
    SPEC,
    added_tokens=(*SPEC.added_tokens, replace(SPEC.added_tokens[0], content="<|another|>")),
)

# The rows of the table in docs/formats.md: a tokenizer with the row's feature, and the words that
# name the feature where a format refuses it.
ROWS = {
    "vocabulary with its ids": (SPEC, ""),
    "gaps in the ids": (GAPS, "gaps"),
    "merges in their order": (SPEC, ""),
    "ranks": (RANKS, ""),
    "ranks with tokens that no merge makes": (UNREACHED, "not made by any merge"),
    "whole pre-tokens first (`ignore_merges`)": (WHOLE, "whole pre-token"),
    "merges that ranks do not reproduce": (REORDERED, "cannot hold these merges"),
    "split pattern `gpt2`": (SPEC, ""),
    "the other named patterns": (CL100K, "cl100k"),
    "a custom pattern in Oniguruma's dialect": (
        replace(SPEC, pattern=SplitPattern("custom", r"\h+|\H", "oniguruma")),
        "split pattern",
    ),
    "another custom pattern": (CUSTOM, "split pattern"),
    "normalizer NFC": (NFC, "normalized"),
    "a space before each part of a text (`add_prefix_space`)": (PREFIX_SPACE, "normalized"),
    "flags of added tokens (`lstrip`, `rstrip`, `single_word`, `normalized`)": (
        FLAGGED,
        "has the flag lstrip",
    ),
    "other normalizers ([steps](#normalizers))": (STEPS, "normalized"),
    "a suffix at the end of words (CLIP's `</w>`)": (SUFFIXED, "words end"),
    "characters with byte fallback (Llama 2)": (CHARACTERS, "normalized|pickle"),
    "bytes of UTF-8 without a token (SmolLM)": (LACKING, "lacks"),
    "entries outside the alphabet of bytes (Cohere's emoji)": (IDLE, "400"),
    "special tokens": (SPEC, ""),
    "special tokens that begin with one another": (NESTED, "one begins with the other"),
    "special tokens that are learned tokens too": (LEARNED, "learned token as well"),
    "special tokens outside visible ASCII": (FOREIGN, "spells otherwise"),
    "special tokens spelt as another id's token": (SHADOWED, "spelt like|same bytes|learned"),
    "an empty token (Whisper)": (EMPTY, ""),
    "two special tokens with one id (o200k_harmony)": (TWO_NAMES, "shares its id"),
    "other tokens with two ids": (TWICE, "same bytes"),
    "which added tokens are content (`special: false`)": (CONTENT, ""),
    "saved `truncation` and `padding`": (BATCHED, ""),
    "ids put around a text (the post-processor)": (AROUND, ""),
    "merges that begin with `#version`": (VERSION, "looks like the line of the version"),
}


def documented_cells() -> dict[tuple[str, str], str]:
    """(row, format) -> its word, from the table of what each format carries."""
    page = (REPOSITORY / "docs" / "formats.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.count("|") == 6]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    formats = [re.findall("`([^`]+)`", cell) for cell in rows[0][1:]]
    return {
        (row[0], target): cell
        for row in rows[2:]
        for targets, cell in zip(formats, row[1:], strict=True)
        for target in targets
    }


def test_the_documented_table_is_whole():
    assert set(documented_cells()) == {(row, target) for row in ROWS for target in FILE_NAMES}
    assert {cell.partition(" (")[0] for cell in documented_cells().values()} == {
        "yes", "given", "lost", "refused", "as ranks", "as merges",
    }  # fmt: skip


@pytest.mark.parametrize("target", FILE_NAMES)
@pytest.mark.parametrize("row", ROWS)
def test_what_a_format_carries_and_refuses_is_what_is_documented(row, target, tmp_path):
    spec, words = ROWS[row]
    if documented_cells()[row, target].startswith("refused"):
        assert words
        with pytest.raises(FormatError, match=words):
            convert_spec(spec, target, tmp_path / "out")
        assert contents(tmp_path) == {}
    else:
        convert_spec(spec, target, tmp_path / "out")


def test_a_merge_of_version_is_no_comment_in_a_tokenizer_json(tmp_path):
    paths, _ = convert_spec(VERSION, "tokenizer.json", tmp_path / "x")
    theirs = tokenizers.Tokenizer.from_file(str(paths[0]))
    assert theirs.encode("#versions").ids == Tokenizer.from_spec(VERSION).encode("#versions")


def test_what_is_left_out_is_said():
    spec = replace(CONTENT, prefix_ids=(356,))
    content = "that 1 of them are content, whatever special tokens are allowed"
    around = "the ids put around a text on request (add_special_tokens)"
    which = "which tokens are special (1)"
    pattern = "the split pattern (gpt2)"
    assert not_carried(spec, "tokenizer.json") == not_carried(spec, "transformers") == []
    assert not_carried(spec, "tiktoken") == [pattern, "the special tokens (1)", content, around]
    assert not_carried(spec, "gpt2") == [pattern, which, content, around]
    assert not_carried(spec, "pickle") == [which, content, around]
    assert not_carried(trained_spec(special_tokens=[]), "pickle") == []


def test_a_pattern_of_ones_own_is_told_as_an_expression(tmp_path):
    paths, _ = convert_spec(CUSTOM, "tiktoken", tmp_path / "x")
    lines = loading_lines(CUSTOM, "tiktoken", paths)
    assert len(lines) == 1  # how tiktoken's engine would read it is unknown
    again = eval(lines[0], {"tokenizer_core": tokenizer_core})
    assert again.spec.pattern == CUSTOM.pattern


def test_a_pattern_of_tiktoken_is_told_to_both_libraries(tmp_path):
    theirs = SplitPattern("custom", r"[\w&&[^\d]]+|\W", "fancy-regex", "drop")
    spec = replace(RANKS, pattern=theirs)
    paths, _ = convert_spec(spec, "tiktoken", tmp_path / "x")
    ours, tiktokens = loading_lines(spec, "tiktoken", paths)
    again = eval(ours, {"tokenizer_core": tokenizer_core})
    assert again.spec.pattern == theirs
    text = "a1b 22 <|endoftext|>"
    encoding = eval(tiktokens, {"tiktoken": tiktoken})
    assert again.encode(text) == encoding.encode(text, allowed_special="all")


def test_tiktoken_is_told_the_pattern_as_it_spells_it(tmp_path):
    line = loading_lines(RANKS, "tiktoken", [tmp_path / "x"])[1]
    assert f"pat_str={openai_public.r50k_pat_str!r}, " in line


@pytest.mark.parametrize("target", PAIRS)
def test_a_pair_goes_into_a_folder(target, tmp_path):
    convert_spec(SPEC, target, tmp_path / "made")
    assert sorted(contents(tmp_path / "made")) == sorted(FILE_NAMES[target])
    (tmp_path / "file").write_text("")
    with pytest.raises(ConversionError, match="give a folder"):
        convert_spec(SPEC, target, tmp_path / "file", overwrite=True)
    with pytest.raises(ConversionError, match=r"no folder .*missing; make it first"):
        convert_spec(SPEC, target, tmp_path / "missing" / "deep")


@pytest.mark.parametrize("target", SINGLE)
def test_a_file_has_the_name_that_was_asked_for(target, tmp_path):
    assert convert_spec(SPEC, target, tmp_path / "name")[0] == [tmp_path / "name"]
    assert output_paths(target, tmp_path) == [tmp_path / FILE_NAMES[target][0]]
    with pytest.raises(ConversionError, match=r"no folder .*missing; make it first"):
        convert_spec(SPEC, target, tmp_path / "missing" / "name")


@pytest.mark.parametrize("target", FILE_NAMES)
def test_what_is_no_file_is_never_replaced(target, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    place = output_paths(target, folder)[-1]
    os.mkfifo(place)
    with pytest.raises(ConversionError, match="no regular file"):
        convert_spec(SPEC, target, folder, overwrite=True)
    assert place.is_fifo()


def test_pickles_do_not_go_beside_a_manifest_that_means_others(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ConversionError, match=r"manifest\.json"):
        convert_spec(SPEC, "pickle", tmp_path, overwrite=True)
    assert list(contents(tmp_path)) == ["manifest.json"]


def test_the_course_s_pickles_are_plain(tmp_path):
    vocab, merges = (p.read_bytes() for p in convert_spec(RANKS, "pickle", tmp_path)[0])
    assert pickle.loads(vocab) == dict(SPEC.vocab)
    assert pickle.loads(merges) == list(SPEC.merges)


def test_a_folder_for_transformers_names_the_tokens_it_knows(tmp_path):
    spec = trained_spec(special_tokens=["<|endoftext|>", AddedToken("<m>", 400, lstrip=True)])
    spec = spec.with_chat(ChatTemplates({"default": "{{ 'é' }}"}))
    paths, is_same = convert_spec(spec, "transformers", tmp_path / "m")
    assert is_same
    config, special = (json.loads(path.read_text("utf-8")) for path in paths[1:])
    assert special == {"eos_token": "<|endoftext|>"}
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["eos_token"] == "<|endoftext|>"
    assert config["added_tokens_decoder"]["400"]["lstrip"] is True
    assert list(config["added_tokens_decoder"]) == ["356", "400"]
    assert config["chat_template"] == "{{ 'é' }}"
    assert load_spec([tmp_path / "m"]).chat.sources == spec.chat.sources
    around = replace(AROUND, suffix_ids=())
    paths, _ = convert_spec(around, "transformers", tmp_path / "b")
    assert json.loads(paths[2].read_text()) == {
        "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
    }  # fmt: skip
    paths, _ = convert_spec(FLAGGED, "transformers", tmp_path / "f")
    assert json.loads(paths[2].read_text()) == {}


def test_chat_templates_and_their_variables_are_written_for_transformers(tmp_path):
    spec = trained_spec(special_tokens=[END, AddedToken("<m>", 400, lstrip=True)])
    variables = {"eos_token": END, "pad_token": END, "mask_token": "<m>", "x_token": "none"}
    spec = spec.with_chat(ChatTemplates({"rag": "r", "default": "d"}, variables))
    paths, is_same = convert_spec(spec, "transformers", tmp_path / "m")
    assert is_same
    config = json.loads(paths[1].read_text("utf-8"))
    assert config["chat_template"] == [
        {"name": "default", "template": "d"}, {"name": "rag", "template": "r"},
    ]  # fmt: skip
    # transformers would add "none" as a new token, and `<m>` again if its flags were not there.
    kept = {"eos_token": END, "pad_token": END}
    flags = dict.fromkeys(("single_word", "rstrip", "normalized"), False)
    mask = {"__type": "AddedToken", "content": "<m>", "lstrip": True, "special": True, **flags}
    assert json.loads(paths[2].read_text()) == kept | {"mask_token": mask}
    again = load_spec([tmp_path / "m"])
    assert (again, again.chat) == (
        spec,
        ChatTemplates(spec.chat.sources, kept | {"mask_token": "<m>"}),
    )


def test_a_file_that_would_replace_the_templates_is_refused(tmp_path):
    for name in ("chat_template.jinja", "additional_chat_templates/rag.jinja"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
        with pytest.raises(ConversionError, match=f"{name} would replace the chat templates"):
            convert_spec(SPEC, "transformers", tmp_path, overwrite=True)
        (tmp_path / name).unlink()
    convert_spec(SPEC, "transformers", tmp_path, overwrite=True)


@pytest.mark.parametrize("target", FILE_NAMES)
def test_other_formats_leave_chat_templates_out(target):
    spec = SPEC.with_chat(ChatTemplates({"default": "d", "rag": "r"}))
    words = "the chat templates (default, rag)"
    assert (words in not_carried(spec, target)) == (target != "transformers")
