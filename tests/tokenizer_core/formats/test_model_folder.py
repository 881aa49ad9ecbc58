"""Model folders of Hugging Face: the tokens beside `tokenizer.json`, and what is refused by name.

`tests/integration/parity/test_model_folders.py` compares the ids with `transformers`.
"""

from __future__ import annotations

import base64
import json
import shutil

import pytest
import tokenizers

from tests.tokenizer_core.formats.model_folders import (
    ACCEPTED,
    END,
    REFUSED,
    TEXTS,
    make_folder,
)
from tests.tokenizer_core.formats.small_specs import character_spec, small_tekken, trained_spec
from tokenizer_core import Tokenizer, strict_json
from tokenizer_core.errors import FormatError
from tokenizer_core.formats import load_model_folder, save_gpt2_files
from tokenizer_core.formats.tokenizer_json import render_tokenizer_json


@pytest.mark.parametrize("name", ["adds_bos", "qwen2"])
def test_a_file_gives_the_ids_of_tokenizers(tmp_path, name):
    path = make_folder(tmp_path / "model", **ACCEPTED[name]) / "tokenizer.json"
    theirs = tokenizers.Tokenizer.from_file(str(path))
    ours = Tokenizer.load(path)
    for text in TEXTS:
        assert ours.encode(text, add_special_tokens=True) == theirs.encode(text).ids


def test_tokens_beside_the_file_are_recognised(tmp_path):
    folder = make_folder(tmp_path / "model", **ACCEPTED["added_tokens_decoder"])
    assert Tokenizer.load(folder).encode("low<extra><tool>") == [257, 260, 261]
    assert Tokenizer.load(folder / "tokenizer.json").encode("low<tool>") != [257, 261]
    specials = Tokenizer.load(folder).spec.special_tokens
    assert "<extra>" in specials
    assert "<tool>" not in specials


def test_named_tokens_get_the_next_ids_in_the_order_of_transformers(tmp_path):
    config = {"extra_special_tokens": ["<z>"], "my_token": "<m>", "pad_token": "<p>"}
    config |= {"unk_token": "<u>", "tokenizer_class": "PreTrainedTokenizerFast"}
    folder = make_folder(tmp_path / "model", tokenizer_config=config)
    assert Tokenizer.load(folder).encode("<u><p><m><z>") == [260, 261, 262, 263]


def test_a_token_of_the_file_comes_before_one_of_added_tokens_with_its_id(tmp_path):
    folder = make_folder(tmp_path / "model", added_tokens={"<bos>": 259, "<old>": 258})
    assert Tokenizer.load(folder).encode(END) == [258]


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_accepted_folder_is_read(tmp_path, name):
    tokenizer = Tokenizer.load(make_folder(tmp_path / "model", **ACCEPTED[name]))
    assert tokenizer.decode(tokenizer.encode("low lower")).lstrip() == "low lower"


def test_a_named_token_is_special_also_if_the_file_calls_it_content(tmp_path):
    folder = make_folder(tmp_path / "model", **ACCEPTED["named_content"])
    for file_ids in (False, True):
        tokenizer = Tokenizer.load(folder, file_ids=file_ids)
        ids = tokenizer.encode(f"<bos>low{END}")
        assert ids == [259, 257, 258]
        assert tokenizer.decode(ids, skip_special_tokens=True) == "low"
        assert tokenizer.special_tokens == {END: 258, "<bos>": 259}


@pytest.mark.parametrize("message", REFUSED)
def test_a_folder_that_could_give_other_ids_is_refused_by_name(tmp_path, message):
    folder = make_folder(tmp_path / "model", **REFUSED[message])
    with pytest.raises(FormatError, match=message):
        Tokenizer.load(folder)
    # With `file_ids` such a folder gives the ids of its file.
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    tokenizer = Tokenizer.load(folder, file_ids=True)
    assert tokenizer == Tokenizer.load(folder / "tokenizer.json")
    assert dict(tokenizer.chat_templates) == {"default": "{{ messages }}"}


def test_with_file_ids_a_template_reads_the_named_tokens(tmp_path):
    # Without them AutoTokenizer would add <pad>, and this file does not have it.
    folder = make_folder(
        tmp_path / "model",
        tokenizer_config={"bos_token": "<bos>", "pad_token": "<pad>"},
        special_tokens_map={"eos_token": {"content": END}},
    )
    (folder / "chat_template.jinja").write_text("{{ bos_token }}")
    tokenizer = Tokenizer.load(folder, file_ids=True)
    wanted = {"bos_token": "<bos>", "pad_token": "<pad>", "eos_token": END}
    assert dict(tokenizer.template_variables) == wanted
    assert tokenizer.template_variables == Tokenizer.load(folder).template_variables
    assert tokenizer.token_to_id("<pad>") is None
    assert Tokenizer.load(folder).token_to_id("<pad>") is not None


@pytest.mark.parametrize("has_decoder", [False, True])
def test_file_ids_changes_no_variable_of_templates(tmp_path, has_decoder):
    config = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<bos>"}
    if has_decoder:
        config |= ACCEPTED["added_tokens_decoder"]["tokenizer_config"]
        config |= {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<bos>"}
    folder = make_folder(
        tmp_path / "model", tokenizer_config=config, special_tokens_map={"bos_token": END}
    )
    (folder / "chat_template.jinja").write_text("{{ bos_token }}")
    with_file = dict(Tokenizer.load(folder, file_ids=True).template_variables)
    assert with_file == dict(Tokenizer.load(folder).template_variables)
    assert with_file["bos_token"] == ("<bos>" if has_decoder else END)
    assert with_file["eos_token"] == END  # the default of the class


def test_file_ids_needs_a_tokenizer_json(tmp_path):
    folder = make_folder(tmp_path / "model", tokenizer_config={"tokenizer_class": "GPT2Tokenizer"})
    Tokenizer.load(folder).save_gpt2_files(folder / "vocab.json", folder / "merges.txt")
    (folder / "tokenizer.json").unlink()
    assert Tokenizer.load(folder).encode("low")
    with pytest.raises(FormatError, match=r"has no tokenizer.json whose ids .*--file-ids"):
        Tokenizer.load(folder, file_ids=True)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "Theirs"}')
    with pytest.raises(FormatError, match=r"it is not known what .*tokenizer.json$"):
        Tokenizer.load(folder)
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(FormatError, match=r"tokenizer_config.json: it is no object"):
        Tokenizer.load(folder)


def test_a_vocabulary_of_characters_is_read_unless_its_class_replaces_the_normalizer(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(render_tokenizer_json(character_spec()))
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8")
    assert Tokenizer.load(tmp_path).spec == character_spec()
    config.write_text('{"tokenizer_class": "LlamaTokenizerFast"}', encoding="utf-8")
    with pytest.raises(FormatError, match="replaces the normalizer by that of LlamaTokenizer"):
        Tokenizer.load(tmp_path)
    with pytest.raises(FormatError, match=r"; with file_ids=True .* --file-ids\) the folder gives"):
        Tokenizer.load(tmp_path)
    assert Tokenizer.load(tmp_path, file_ids=True).spec == character_spec()


def test_a_folder_of_mistral_is_read_as_its_tekken_json(tmp_path):
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(small_tekken(None, n_special=40)), encoding="utf-8")
    assert Tokenizer.load(tmp_path) == Tokenizer.load(path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer == Tokenizer.load(path)
    assert dict(tokenizer.chat_templates) == {"default": "{{ messages }}"}
    assert dict(tokenizer.template_variables) == {"bos_token": "<s>"}
    make_folder(tmp_path)  # a tokenizer.json goes before it
    assert Tokenizer.load(tmp_path).token_to_id("<|endoftext|>") == 258


@pytest.mark.parametrize("name", ["tiktoken.model", "qwen.tiktoken"])
def test_a_folder_of_ranks_is_refused_with_the_way_on(name, tmp_path):
    ranks = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
    (tmp_path / name).write_bytes(ranks)
    words = f"{name} is not the published file of a preset, .*Tokenizer.from_tiktoken .*--pattern"
    with pytest.raises(FormatError, match=words):
        Tokenizer.load(tmp_path)
    with pytest.raises(FormatError, match=f"load {name} with its pattern and special tokens"):
        load_model_folder(tmp_path)
    (tmp_path / "other.tiktoken").write_bytes(ranks)
    with pytest.raises(FormatError, match="a folder must have one of them"):
        Tokenizer.load(tmp_path)


def test_files_that_need_more_than_a_path_are_refused(tmp_path, small_tokenizer):
    small_tokenizer.save_gpt2_files(tmp_path / "vocab.json", tmp_path / "merges.txt")
    with pytest.raises(FormatError, match="from_files"):
        Tokenizer.load(tmp_path / "vocab.json")
    small_tokenizer.save_tiktoken(tmp_path / "mine.tiktoken")
    with pytest.raises(FormatError, match="from_tiktoken"):
        Tokenizer.load(tmp_path / "mine.tiktoken")


@pytest.fixture
def small_tokenizer():
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"lo"}
    return Tokenizer(vocab, [(b"l", b"o")])


def test_the_class_of_a_folder_of_two_files_builds_the_tokenizer(tmp_path):
    spec = trained_spec(60, special_tokens=["<s>", "</s>", "<unk>", "<pad>", "<mask>"])
    save_gpt2_files(spec, tmp_path / "vocab.json", tmp_path / "merges.txt")
    with pytest.raises(FormatError, match="its class, TokenizersBackend, is none that builds"):
        Tokenizer.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("low<mask>") == Tokenizer.from_spec(spec).encode("low<mask>")
    ends = [spec.special_tokens["<s>"], spec.special_tokens["</s>"]]
    assert tokenizer.encode("", add_special_tokens=True) == ends
    (tmp_path / "vocab.json").write_text("[]")
    with pytest.raises(FormatError, match=r"vocab.json: it is no object"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tekken.json", "model"])
def test_json_is_parsed_once(name, tmp_path, monkeypatch):
    """A million entries take a second each time."""
    folder = make_folder(tmp_path / "model")
    shutil.copy(folder / "tokenizer.json", tmp_path)
    (tmp_path / "tekken.json").write_text(
        json.dumps(small_tekken(None, n_special=40)), encoding="utf-8"
    )
    parsed = []
    parse = strict_json.read_json
    monkeypatch.setattr(strict_json, "read_json", lambda data: parsed.append(data) or parse(data))
    Tokenizer.load(tmp_path / name)
    assert len(parsed) == 1
