"""Conversion: it checks the output before publishing it, and keeps the old files until then."""

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import tiktoken.load

import tokenizer_core
from tests.conftest import REPOSITORY
from tests.tokenizer_core.formats.small_specs import (
    BYTES,
    TRAINING_TEXT,
    chain_spec,
    character_spec,
    trained_spec,
    wild_ranks,
)
from tests.tokenizer_core.formats.tokenizer_json.normalizer_files import file_of
from tests.tokenizer_core.formats.tokenizer_json.test_model import clip
from tokenizer_core import Tokenizer
from tokenizer_core.blobs import atomic_files as whole_files
from tokenizer_core.conversion import (
    FILE_NAMES,
    convert_spec,
    loading_lines,
    not_carried,
    output_paths,
)
from tokenizer_core.errors import ConversionError, FormatError
from tokenizer_core.formats import any_format
from tokenizer_core.formats.any_format import load_spec
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.spec import AddedToken, Alphabet, MissingBytes, TokenizerSpec
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.splitting.patterns import SplitPattern

END = "<|endoftext|>"
SPEC = trained_spec()
OTHER = trained_spec(60)
RANKS = TokenizerSpec.from_ranks(dict(SPEC.token_to_id), {"<|endoftext|>": 356}, pattern="gpt2")


def contents(folder):
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
    text = TRAINING_TEXT + END
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


def test_a_file_that_appears_during_the_conversion_is_not_overwritten(tmp_path, monkeypatch):
    target = tmp_path / "x.json"

    def render(spec):
        target.write_text("somebody else's")
        return (render_tokenizer_json(spec),)

    monkeypatch.setattr(any_format, "_RENDERERS", {"tokenizer.json": render})
    with pytest.raises(ConversionError, match="is there already"):
        convert_spec(SPEC, "tokenizer.json", target)
    assert contents(tmp_path) == {"x.json": b"somebody else's"}


def failing_calls(patch, error):
    """Count the calls of fsync and of renaming; call number `last` raises the error."""
    calls = {"n": 0, "last": None}

    def failing(function):
        def call(*arguments):
            calls["n"] += 1
            if calls["n"] == calls["last"]:
                raise error
            return function(*arguments)

        return call

    patch.setattr(whole_files.os, "fsync", failing(os.fsync))
    patch.setattr(Path, "rename", failing(Path.rename))
    patch.setattr(Path, "replace", failing(Path.replace))
    return calls


@pytest.mark.parametrize("target", ["tiktoken", "transformers"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), KeyboardInterrupt()])
def test_a_failure_anywhere_leaves_what_was_there(target, error, tmp_path, monkeypatch):
    """Dies at each fsync and each rename in turn, during the whole conversion."""
    output = tmp_path / "out"
    if isinstance(error, OSError):
        convert_spec(OTHER, target, output)
    before = contents(tmp_path)
    calls = failing_calls(monkeypatch, error)
    for last in range(1, 50):
        calls.update(n=0, last=last)
        try:
            convert_spec(SPEC, target, output, overwrite=True)
        except type(error):
            assert contents(tmp_path) == before, last
        else:
            break
    assert last > 3
    assert contents(tmp_path) != before


@pytest.mark.parametrize(
    ("spec", "lie"),
    [
        (SPEC, OTHER),
        (SPEC, replace(SPEC, pattern=trained_spec(pattern="llama3").pattern)),
        (SPEC, replace(SPEC, merges=(SPEC.merges[1], SPEC.merges[0], *SPEC.merges[2:]))),
        (SPEC, replace(SPEC, added_tokens=(AddedToken(END, 356, special=False),))),
        (RANKS, replace(SPEC, merges=())),
        (RANKS, replace(SPEC, ignore_merges=True, merges=SPEC.merges[::-1])),
        (RANKS, replace(SPEC, ignore_merges=True, prefix_ids=(356,))),
    ],
)
def test_a_file_that_is_another_tokenizer_when_read_back_is_not_kept(
    spec, lie, tmp_path, monkeypatch
):
    renderers = {"tokenizer.json": lambda _: (render_tokenizer_json(lie),)}
    monkeypatch.setattr(any_format, "_RENDERERS", renderers)
    with pytest.raises(ConversionError, match="read back"):
        convert_spec(spec, "tokenizer.json", tmp_path / "x.json")
    renderers["tiktoken"] = lambda _: (b"YQ== 0\n",)
    with pytest.raises(ConversionError, match="cannot be read back: the vocabulary has no token"):
        convert_spec(spec, "tiktoken", tmp_path / "x")
    assert contents(tmp_path) == {}


CUSTOM = replace(SPEC, pattern=SplitPattern("custom", r"\s+|\S+"))
UNREACHED = TokenizerSpec.from_ranks(wild_ranks(3), pattern="gpt2")
NESTED = trained_spec(special_tokens=["<|a|>", "<|a|><|a|>"])
LEARNED = trained_spec(special_tokens=["the"])
FOREIGN = trained_spec(special_tokens=["<中>"])
SHADOWED = trained_spec(special_tokens=[AddedToken("<", 356)])
STEPS = parse_tokenizer_json(file_of({"type": "Lowercase"}, []))
IDLE = replace(SPEC, vocab={**SPEC.vocab, 400: "中".encode()}, alphabet=Alphabet(idle_ids=(400,)))
SUFFIXED = replace(
    parse_tokenizer_json(clip("byte-level")),
    normalizer="none",
    added_tokens=(),
)
NFC = trained_spec(normalizer="nfc")
PREFIX_SPACE = trained_spec(normalizer="prefix-space")
FLAGGED = trained_spec(special_tokens=[AddedToken("<m>", 356, lstrip=True)])
LACKING = TokenizerSpec.from_merges(
    {id_: token for id_, token in BYTES.items() if id_ != 4},
    [],
    alphabet=Alphabet(missing=MissingBytes((4,))),
)
TRUNCATION = {"direction": "Left", "max_length": 9, "strategy": "OnlyFirst", "stride": 0}
BATCHED = replace(SPEC, batch_settings={"truncation": TRUNCATION})
WHOLE = trained_spec(ignore_merges=True)

CONTENT = trained_spec(special_tokens=[AddedToken("<b>", 356, special=False)])
AROUND = trained_spec(prefix_ids=(356,), suffix_ids=(356,))
BERT = {"type": "BertProcessing", "cls": [END, 356], "sep": [END, 356]}
OF_PAIRS = replace(AROUND, post_processor=BERT)
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
    "gaps in the ids": (trained_spec(special_tokens=[AddedToken("<|a|>", 900)]), "gaps"),
    "merges in their order": (SPEC, ""),
    "ranks": (RANKS, ""),
    "ranks with tokens that no merge makes": (UNREACHED, "not made by any merge"),
    "whole pre-tokens first (`ignore_merges`)": (WHOLE, "whole pre-token"),
    "merges that ranks do not reproduce": (REORDERED, "cannot hold these merges"),
    "split pattern `gpt2`": (SPEC, ""),
    "the other named patterns": (trained_spec(pattern="cl100k"), "cl100k"),
    "a custom pattern in Oniguruma's dialect": (
        replace(SPEC, pattern=SplitPattern("custom", r"\h+|\H", "oniguruma")),
        "split pattern",
    ),
    "one of another dialect that Oniguruma reads alike (Tekken, Kimi K2)": (CUSTOM, "split patt"),
    "another custom pattern": (trained_spec(pattern=r"\w+|\W"), "split pattern"),
    "normalizer NFC": (NFC, "normalized"),
    "a space before each part of a text (`add_prefix_space`)": (PREFIX_SPACE, "normalized"),
    "flags of added tokens (`lstrip`, `rstrip`, `single_word`, `normalized`)": (FLAGGED, "lstrip"),
    "other normalizers ([steps](#normalizers))": (STEPS, "normalized"),
    "a suffix at the end of words (CLIP's `</w>`)": (SUFFIXED, "words end"),
    "characters with byte fallback (Llama 2)": (character_spec(), "normalized|pickle"),
    "bytes of UTF-8 without a token (SmolLM)": (LACKING, "lacks"),
    "entries outside the alphabet of bytes (Cohere's emoji)": (IDLE, "400"),
    "special tokens": (SPEC, ""),
    "special tokens that begin with one another": (NESTED, "one begins with the other"),
    "special tokens that are learned tokens too": (LEARNED, "learned token as well"),
    "special tokens outside visible ASCII": (FOREIGN, "spells otherwise"),
    "special tokens spelt as another id's token": (SHADOWED, "spelt like|same bytes|learned"),
    "an empty token (Whisper)": (EMPTY, ""),
    "two special tokens with one id (o200k_harmony)": (TWO_NAMES, "shares its id"),
    "other tokens with two ids": (TokenizerSpec.from_merges(BYTES | {256: b"a"}, []), "same bytes"),
    "which added tokens are content (`special: false`)": (CONTENT, ""),
    "saved `truncation` and `padding`": (BATCHED, ""),
    "ids put around a text (the post-processor)": (AROUND, ""),
    "the template for pairs of texts": (OF_PAIRS, ""),
    "merges that begin with `#version`": (VERSION, "looks like the line of the version"),
}


def documented_cells():
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


@pytest.mark.parametrize("row", ROWS)
def test_a_format_carries_and_refuses_what_is_documented(row, tmp_path):
    assert documented_cells().keys() == {(row, target) for row in ROWS for target in FILE_NAMES}
    spec, words = ROWS[row]
    for target in FILE_NAMES:
        folder = tmp_path / target.replace(".", "_")
        cell = documented_cells()[row, target]
        if cell.startswith("refused"):
            assert words
            with pytest.raises(FormatError, match=words):
                convert_spec(spec, target, folder)
            assert not folder.exists()
        else:
            assert cell.partition(" (")[0] in {"yes", "given", "lost", "as ranks", "as merges"}
            convert_spec(spec, target, folder)


def test_the_report_names_what_a_format_leaves_out():
    ends = {**BERT, "sep": ["<b>", 356], "cls": ["<b>", 356]}
    spec = replace(CONTENT, prefix_ids=(356,), suffix_ids=(356,), post_processor=ends)
    left_out = {target: not_carried(spec, target) for target in FILE_NAMES}
    counts = {"tokenizer.json": 0, "transformers": 0, "tiktoken": 5, "gpt2": 5, "pickle": 4}
    assert {target: len(found) for target, found in left_out.items()} == counts
    for word in (
        "pattern (gpt2)",
        "the special tokens (1)",
        "1 of them",
        "around a text",
        "for pairs",
    ):
        assert word in " ".join(left_out["tiktoken"])
    named = next(iter(SPEC.special_tokens))
    chat = ChatTemplates({"default": "d", "rag": "r"}, None, ("<a>", named), (named,))
    spec = SPEC.with_chat(chat)
    for target in FILE_NAMES:
        declared = {"the stop tokens (2)", "the named control tokens (1)"}
        if target == "transformers":
            declared = {"the stop tokens (1)", "the named control tokens (1)"}  # <a> has no id
        assert declared <= set(not_carried(spec, target))
        is_said = "the chat templates (default, rag)" in not_carried(spec, target)
        assert is_said == (target != "transformers")


def test_the_pattern_is_told_to_the_libraries_that_can_read_it(tmp_path):
    paths, _ = convert_spec(CUSTOM, "tiktoken", tmp_path / "x")
    [line] = loading_lines(CUSTOM, "tiktoken", paths)  # tiktoken may read it otherwise
    assert eval(line, {"tokenizer_core": tokenizer_core}).spec.pattern == CUSTOM.pattern
    theirs = SplitPattern("custom", r"[\w&&[^\d]]+|\W", "fancy-regex", "drop")
    spec = replace(RANKS, pattern=theirs)
    paths, _ = convert_spec(spec, "tiktoken", tmp_path / "y")
    ours, tiktokens = loading_lines(spec, "tiktoken", paths)
    again = eval(ours, {"tokenizer_core": tokenizer_core})
    assert again.spec.pattern == theirs
    text = f"a1b 22 {END}"
    encoding = eval(tiktokens, {"tiktoken": tiktoken})
    assert again.encode(text) == encoding.encode(text, allowed_special="all")


@pytest.mark.parametrize("target", FILE_NAMES)
def test_where_the_files_are_written_and_what_they_never_replace(target, tmp_path):
    names = FILE_NAMES[target]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConversionError, match=r"no folder .*missing; make it first"):
        convert_spec(SPEC, target, tmp_path / "missing" / "deep")
    paths, _ = convert_spec(SPEC, target, tmp_path / "made")
    if len(names) == 1:
        assert paths == [tmp_path / "made"]
        assert output_paths(SPEC, target, tmp_path) == [tmp_path / names[0]]
    else:
        assert paths == [tmp_path / "made" / name for name in names]
        with pytest.raises(ConversionError, match="give a folder"):
            convert_spec(SPEC, target, tmp_path / "file", overwrite=True)
    folder = tmp_path / "out"
    folder.mkdir()
    place = output_paths(SPEC, target, folder)[-1]
    os.mkfifo(place)
    with pytest.raises(ConversionError, match="no regular file"):
        convert_spec(SPEC, target, folder, overwrite=True)
    assert place.is_fifo()


@pytest.mark.parametrize(
    ("target", "name", "words"),
    [
        ("pickle", "manifest.json", r"manifest\.json"),
        ("transformers", "chat_template.jinja", "would replace the chat templates"),
        ("transformers", "additional_chat_templates/rag.jinja", "would replace the chat templates"),
    ],
)
def test_files_do_not_go_beside_one_that_means_others(target, name, words, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    before = contents(tmp_path)
    with pytest.raises(ConversionError, match=words):
        convert_spec(SPEC, target, tmp_path, overwrite=True)
    assert contents(tmp_path) == before
    (tmp_path / name).unlink()
    convert_spec(SPEC, target, tmp_path, overwrite=True)


def test_a_folder_for_transformers_names_the_tokens_it_knows(tmp_path):
    spec = trained_spec(special_tokens=[END, AddedToken("<m>", 400, lstrip=True)])
    variables = {"eos_token": END, "pad_token": END, "mask_token": "<m>", "x_token": "none"}
    spec = spec.with_chat(ChatTemplates({"rag": "r", "default": "d"}, variables))
    paths, is_same = convert_spec(spec, "transformers", tmp_path / "m")
    assert is_same
    config, special = (json.loads(path.read_text("utf-8")) for path in paths[1:])
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["eos_token"] == END
    assert list(config["added_tokens_decoder"]) == ["356", "400"]
    assert config["chat_template"] == [
        {"name": "default", "template": "d"},
        {"name": "rag", "template": "r"},
    ]
    # transformers would add "none" as a new token, and `<m>` again if its flags were not there.
    kept = {"eos_token": END, "pad_token": END}
    flags = dict.fromkeys(("single_word", "rstrip", "normalized"), False)
    mask = {"__type": "AddedToken", "content": "<m>", "lstrip": True, "special": True, **flags}
    assert special == kept | {"mask_token": mask}
    again = load_spec([tmp_path / "m"])
    assert again == spec
    assert again.chat == ChatTemplates(spec.chat.sources, kept | {"mask_token": "<m>"})
    one = SPEC.with_chat(ChatTemplates({"default": "{{ 'é' }}"}))
    paths, _ = convert_spec(one, "transformers", tmp_path / "one")
    assert json.loads(paths[1].read_text("utf-8"))["chat_template"] == "{{ 'é' }}"
    spec = replace(SPEC, prefix_ids=(356,))
    paths, _ = convert_spec(spec, "transformers", tmp_path / "around")
    assert json.loads(paths[2].read_text()) == {"bos_token": END, "eos_token": END}
