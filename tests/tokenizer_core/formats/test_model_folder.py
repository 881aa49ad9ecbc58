"""Model folders of Hugging Face: the tokens beside `tokenizer.json`, and what is refused by name.

`tests/integration/parity/test_model_folders.py` compares the ids with `transformers`, and
`tests/integration/tokenizer_core/compat/transformers_checks.py` the chat templates.
"""

import base64
import json

import pytest
import tokenizers

from tests.tokenizer_core.formats.model_folders import (
    ACCEPTED,
    CHAT_CASES,
    DIFFERING,
    END,
    ChatCase,
    make_chat_folder,
    make_folder,
)
from tests.tokenizer_core.formats.record_folder_ids import PAIR, RECORDED, TEXTS
from tests.tokenizer_core.formats.small_specs import small_tekken, trained_spec
from tokenizer_core import Tokenizer
from tokenizer_core.conversion import convert_spec
from tokenizer_core.errors import ConversionError, FormatError
from tokenizer_core.formats.any_format import write_files
from tokenizer_core.formats.tokenizer_json.document import render_tokenizer_json
from tokenizer_core.formats.transformers_releases import RELEASES
from tokenizer_core.spec.chat_templates import SETTINGS, ChatTemplates


def test_tokens_beside_the_file_are_recognised(tmp_path):
    # A named token is special, also if the file calls it content.
    folder = make_folder(tmp_path / "content", **ACCEPTED["named_content"])
    for ids in (None, "file"):
        tokenizer = Tokenizer.load(folder, ids=ids)
        assert tokenizer.encode(f"<bos>low{END}") == [259, 257, 258]
        assert tokenizer.decode([259, 257, 258], skip_special_tokens=True) == "low"
        assert tokenizer.special_tokens == {END: 258, "<bos>": 259}
    # A special token of the file stays special, and its padding names one, as in transformers.
    plain = {"special": False, "normalized": False}
    declared = {"258": {"content": END, **plain}, "259": {"content": "<bos>", **plain}}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": declared}
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 259, "pad_type_id": 0, "pad_token": "<bos>"}
    folder = make_folder(
        tmp_path / "padding", lambda table: table.update(padding=padding), tokenizer_config=config
    )
    for ids in RELEASES:
        tokenizer = Tokenizer.load(folder, ids=ids)
        assert tokenizer.decode([257, 258, 259], skip_special_tokens=True) == "low"
        assert dict(tokenizer.template_variables) == {"pad_token": "<bos>"}
    # Named tokens get the next ids, in the order of transformers.
    config = {"extra_special_tokens": ["<z>"], "my_token": "<m>", "pad_token": "<p>"}
    config |= {"unk_token": "<u>", "tokenizer_class": "PreTrainedTokenizerFast"}
    folder = make_folder(tmp_path / "named", tokenizer_config=config)
    tokenizer = Tokenizer.load(folder, ids="transformers5")  # 4 takes no list
    assert tokenizer.encode("<u><p><m><z>") == [260, 261, 262, 263]
    # A token of the file comes before one of added_tokens.json with its id.
    folder = make_folder(tmp_path / "added", added_tokens={"<bos>": 259, "<old>": 258})
    assert Tokenizer.load(folder).encode(END) == [258]


_NOT_KNOWN = {
    "transformers4": {"split_special_tokens", "fast_tokenizer_files"},
    "transformers5": {
        *("split_special_tokens", "fast_tokenizer_files", "whisper_without_ends"),
        *("qwen2_with_a_prefix_space", "unknown_model"),
    },
}
"""Folders that a release reads and this library refuses by name."""


@pytest.mark.parametrize("name", [*ACCEPTED, *DIFFERING])
def test_a_folder_gives_the_ids_of_the_named_release_or_is_refused(name, tmp_path, engine):
    folder = make_folder(tmp_path / "model", **{**ACCEPTED, **DIFFERING}[name])
    recorded = json.loads(RECORDED.read_text())
    found = {}
    for choice, release in RELEASES.items():
        expected = recorded[release][name]
        if expected is None or name in _NOT_KNOWN[choice]:
            with pytest.raises(FormatError, match=rf"transformers {release}: "):
                Tokenizer.load(folder, ids=choice)
            continue
        tokenizer = Tokenizer.load(folder, ids=choice, engine=engine)
        found[choice] = [tokenizer.encode(text, add_special_tokens=True) for text in TEXTS]
        assert found[choice] == expected[:-2]
        if choice == "transformers4" and "CodeLlama" in name:
            continue  # a pair is an infilling prompt there, which no template makes
        written = tokenizers.Tokenizer.from_buffer(render_tokenizer_json(tokenizer.spec))
        pair = written.encode(*PAIR)
        assert [pair.ids, pair.type_ids] == expected[-2:]
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    of_file = Tokenizer.load(folder, ids="file")
    assert of_file.encode(TEXTS[2]) == Tokenizer.load(folder / "tokenizer.json").encode(TEXTS[2])
    assert dict(of_file.chat_templates) == {"default": "{{ messages }}"}
    if name in ACCEPTED:
        tokenizer = Tokenizer.load(folder)
        mine = [tokenizer.encode(text, add_special_tokens=True) for text in TEXTS]
        assert all(ids == mine for ids in found.values())
    else:
        with pytest.raises(FormatError, match=r"--ids\): file, transformers4 or transformers5"):
            Tokenizer.load(folder)


@pytest.mark.parametrize("has_decoder", [False, True])
def test_ids_of_the_file_changes_no_variable_of_templates(tmp_path, has_decoder):
    config = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<bos>", "pad_token": "<pad>"}
    if has_decoder:
        config = {**ACCEPTED["added_tokens_decoder"]["tokenizer_config"], **config}
    folder = make_folder(
        tmp_path / "model", tokenizer_config=config, special_tokens_map={"bos_token": END}
    )
    (folder / "chat_template.jinja").write_text("{{ bos_token }}")
    with_file, without = Tokenizer.load(folder, ids="file"), Tokenizer.load(folder)
    # Without ids, AutoTokenizer would add <pad>, and this file does not have it.
    assert with_file.token_to_id("<pad>") is None
    assert without.token_to_id("<pad>") is not None
    variables = dict(with_file.template_variables)
    assert variables == dict(without.template_variables)
    assert variables["bos_token"] == ("<bos>" if has_decoder else END)
    assert (variables["eos_token"], variables["pad_token"]) == (END, "<pad>")


def test_ids_of_the_file_needs_a_tokenizer_json(tmp_path):
    folder = make_folder(tmp_path / "model", tokenizer_config={"tokenizer_class": "GPT2Tokenizer"})
    Tokenizer.load(folder).save_gpt2_files(folder / "vocab.json", folder / "merges.txt")
    (folder / "tokenizer.json").unlink()
    assert Tokenizer.load(folder).encode("low")
    with pytest.raises(FormatError, match=r"has no tokenizer.json whose ids .*--ids"):
        Tokenizer.load(folder, ids="file")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "Theirs"}')
    with pytest.raises(FormatError, match=r"it is not known what .*tokenizer.json$"):
        Tokenizer.load(folder)
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(FormatError, match=r"tokenizer_config.json: it is no object"):
        Tokenizer.load(folder)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"special_tokens_map": {"eos_token": {}}}, "which has no content"),
        ({"tokenizer_config": {"added_tokens_decoder": {"9" * 5000: {"content": "<x>"}}}},
         "no id with a token"),
        ({"tokenizer_config": {"model_specific_special_tokens": [1]}}, "is no object"),
        ({"tokenizer_config": {"model_specific_special_tokens": 1, "extra_special_tokens": {}}},
         "is no object"),
    ],
)  # fmt: skip
def test_what_is_no_special_token_is_refused_by_name(tmp_path, files, message):
    with pytest.raises(FormatError, match=message):
        Tokenizer.load(make_folder(tmp_path / "model", **files))


def test_a_folder_of_mistral_is_read_as_its_tekken_json(tmp_path):
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(small_tekken(None, n_special=40)), encoding="utf-8")
    assert Tokenizer.load(tmp_path) == Tokenizer.load(path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    tokenizer = Tokenizer.load(tmp_path)
    assert dict(tokenizer.chat_templates) == {"default": "{{ messages }}"}
    assert dict(tokenizer.template_variables) == {"bos_token": "<s>"}
    make_folder(tmp_path)  # a tokenizer.json goes before it
    assert Tokenizer.load(tmp_path, ids="file").token_to_id("<|endoftext|>") == 258


def test_ranks_and_two_files_are_refused_with_the_way_on(tmp_path):
    name = "qwen.tiktoken"
    ranks = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
    (tmp_path / name).write_bytes(ranks)
    words = f"{name} is not the published file of a preset, .*--pattern .*; Tokenizer.from_tiktoken"
    with pytest.raises(FormatError, match=words):
        Tokenizer.load(tmp_path)
    with pytest.raises(FormatError, match="from_tiktoken"):
        Tokenizer.load(tmp_path / name)
    (tmp_path / "other.tiktoken").write_bytes(ranks)
    with pytest.raises(FormatError, match="a folder must have one of them"):
        Tokenizer.load(tmp_path)
    write_files("gpt2", trained_spec(1, special_tokens=[]), tmp_path / "v.json", tmp_path / "m.txt")
    with pytest.raises(FormatError, match="from_files"):
        Tokenizer.load(tmp_path / "v.json")


def test_the_class_of_a_folder_of_two_files_builds_the_tokenizer(tmp_path):
    spec = trained_spec(60, special_tokens=["<s>", "</s>", "<unk>", "<pad>", "<mask>"])
    write_files("gpt2", spec, tmp_path / "vocab.json", tmp_path / "merges.txt")
    with pytest.raises(FormatError, match="its class, TokenizersBackend, is none that builds"):
        Tokenizer.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("low<mask>") == Tokenizer.from_spec(spec).encode("low<mask>")
    ends = [spec.special_tokens["<s>"], spec.special_tokens["</s>"]]
    assert tokenizer.encode("", add_special_tokens=True) == ends
    adds = {"add_bos_token": True, "add_eos_token": True}
    named = {"bos_token": "<s>", "eos_token": "</s>"}
    config_file = tmp_path / "tokenizer_config.json"
    for kind, config, expected in (
        ("GPT2Tokenizer", adds | named, ends),
        ("GPTNeoXTokenizer", named | {"add_bos_token": True}, ends[:1]),
        ("Qwen2Tokenizer", {"add_bos_token": True}, []),  # it has none
    ):
        config_file.write_text(json.dumps(config | {"tokenizer_class": kind}))
        found = Tokenizer.load(tmp_path).encode("", add_special_tokens=True)
        assert found == expected
    for kind, words in (
        ("RobertaTokenizer", "save_pretrained"),
        ("Qwen3_5Tokenizer", "is none that"),
    ):
        config_file.write_text(json.dumps(adds | {"tokenizer_class": kind}))
        with pytest.raises(FormatError, match=words):
            Tokenizer.load(tmp_path)
    config_file.unlink()
    for text, message in (
        ("[]", r"vocab.json: it is no object"),
        ("version https://git-lfs.github.com/spec/v1\n", r"vocab.json' is a pointer of Git LFS"),
    ):
        (tmp_path / "vocab.json").write_text(text)
        with pytest.raises(FormatError, match=message):
            Tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", CHAT_CASES)
def test_chat_templates_are_read_as_by_transformers(name, tmp_path):
    case = CHAT_CASES[name]
    tokenizer = Tokenizer.load(make_chat_folder(tmp_path / "model", case))
    assert dict(tokenizer.chat_templates) == case.templates
    assert dict(tokenizer.template_variables) == case.variables
    assert tokenizer == Tokenizer.load(make_folder(tmp_path / "plain", **case.tables))


def test_the_template_of_a_processor_is_read_last(tmp_path):
    config = {"chat_template": None}
    folder = make_folder(tmp_path / "m", tokenizer_config=config, chat_template={})
    with pytest.raises(FormatError, match=r"chat_template\.json: chat_template is neither"):
        Tokenizer.load(folder)
    (folder / "chat_template.json").write_text('{"chat_template": "p"}')
    assert dict(Tokenizer.load(folder).chat_templates) == {"default": "p"}
    (folder / "chat_template.jinja").write_text("j")
    assert dict(Tokenizer.load(folder).chat_templates) == {"default": "j"}


@pytest.mark.parametrize(
    ("ids", "length", "side", "declared"),
    [
        ([259, 7, 258], 4096, "left", ((END, "<bos>"), 4096, "left")),
        (258, 10**30, "right", ((END,), None, "right")),
        (None, None, None, ((), None, None)),
    ],
)
def test_what_a_folder_declares_is_read(ids, length, side, declared, tmp_path):
    controls = [END, "<none>", 7]
    folder = make_folder(
        tmp_path / "m",
        generation_config={"eos_token_id": ids},
        tokenizer_config={
            "model_max_length": length,
            "chat_control_tokens": controls,
            "truncation_side": side,
        },
    )
    chat = Tokenizer.load(folder).spec.chat
    assert (chat.stop_tokens, chat.model_max_length, chat.truncation_side) == declared
    assert chat.control_tokens == (END,)
    saved = tmp_path / "saved"
    Tokenizer.load(folder).save(saved)
    again = Tokenizer.load(saved).spec.chat
    assert (again.stop_tokens, again.model_max_length, again.truncation_side) == declared
    assert (saved / "generation_config.json").exists() == bool(again.stop_tokens)
    wrong = make_folder(tmp_path / "wrong", tokenizer_config={"truncation_side": "middle"})
    with pytest.raises(FormatError, match="must be left or right"):
        Tokenizer.load(wrong)


@pytest.mark.parametrize(
    ("config", "model", "written"),
    [
        ({}, None, {}),
        (
            {
                "model_input_names": ["input_ids", "token_type_ids"],
                "padding_side": "left",
                "additional_special_tokens": [{"content": "<bos>"}, END],
                "response_template": {"a": [1]},
            },
            None,
            {
                "model_input_names": ["input_ids", "token_type_ids"],
                "padding_side": "left",
                "additional_special_tokens": ["<bos>", END],
                "response_template": {"a": [1]},
            },
        ),
        ({"extra_special_tokens": [END]}, None, {"additional_special_tokens": [END]}),
        (
            {
                "extra_special_tokens": {"image_token": END},
                "additional_special_tokens": [{"content": "<bos>"}],
            },
            None,
            {"additional_special_tokens": ["<bos>"]},
        ),
        ({"tokenizer_class": "CohereTokenizer"}, "cohere", {"padding_side": "left"}),
        (
            {"tokenizer_class": "CohereTokenizer", "padding_side": "right"},
            "cohere",
            {"padding_side": "right"},
        ),
    ],
)
def test_the_settings_of_a_folder_are_written(config, model, written, tmp_path):
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    folder = make_folder(
        tmp_path / "m", tokenizer_config=kind | config, config={"model_type": model}
    )
    tokenizer = Tokenizer.load(folder, ids="file")
    chat = tokenizer.spec.chat
    assert ChatTemplates.from_json(chat.to_json()) == chat
    for name in ("one", "two"):  # and read back
        tokenizer.save(tmp_path / name)
        found = json.loads((tmp_path / name / "tokenizer_config.json").read_text())
        names = found.keys() & {*SETTINGS}
        expected = {"model_input_names": ["input_ids", "attention_mask"]} | written
        assert {name: found[name] for name in names} == expected
        tokenizer = Tokenizer.load(tmp_path / name)


def test_the_settings_of_a_model_are_never_replaced(tmp_path):
    model = make_folder(tmp_path / "m", generation_config={"eos_token_id": [258], "top_p": 0.9})
    settings = (model / "generation_config.json").read_bytes()
    tokenizer = Tokenizer.load(model)
    tokenizer.save(model)
    convert_spec(tokenizer.spec, "transformers", model, overwrite=True)
    other = make_folder(tmp_path / "other", generation_config={"eos_token_id": 259})
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    for write in (
        tokenizer.save,
        lambda folder: convert_spec(tokenizer.spec, "transformers", folder, overwrite=True),
    ):
        with pytest.raises(ConversionError, match=r"declares other stop tokens than \[258\]"):
            write(other)
    assert {path.name: path.read_bytes() for path in other.iterdir()} == before
    assert (model / "generation_config.json").read_bytes() == settings


TOO_MANY = {f"additional_chat_templates/{i}.jinja": b"a" for i in range(17)}


@pytest.mark.parametrize(
    ("value", "files", "words"),
    [
        (1, {}, "chat_template is neither a text nor a list"),
        (["a"], {}, "an entry without name or template"),
        ([{"name": "../a", "template": "x"}], {}, r"model: the name '\.\./a' of a chat template"),
        (None, {"chat_template.jinja": b"a\xff"}, r"chat_template\.jinja is not UTF-8 at byte 1"),
        (None, {"chat_template.jinja": b"a" * ((1 << 20) + 1)}, "1048576"),
        (None, TOO_MANY, "model has 17 chat templates; keep 16"),
    ],
)
def test_malformed_chat_templates_are_refused(value, files, words, tmp_path):
    tables = {"tokenizer_config": {"chat_template": value}}
    folder = make_chat_folder(tmp_path / "model", ChatCase(tables, {}, {}, files))
    with pytest.raises(FormatError, match=words):
        Tokenizer.load(folder)
