"""Model folders made from a small vocabulary, for the tests of their reader."""

import json
from typing import Any, NamedTuple

from tests.tokenizer_core.formats.small_specs import added_token
from tokenizer_core import Tokenizer

END = "<|endoftext|>"
TEXTS = [
    "low lower",
    "lowlow 12 34",
    "low <extra>  low <tool> low<tool>",
    f"low{END}low",
    "low<bos>low<extra>er<tool>",
    "e\u0301 \u212b",
    "<pad> <|padding|>",
    "<s>low <mask> lower</s>",
]


def template(*ids):
    """A post-processor that puts these tokens before the text."""
    names = [{"SpecialToken": {"id": name, "type_id": 0}} for name, _ in ids]
    single = [*names, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in ids},
    }


def make_folder(folder, change=lambda _: None, *, nfc=False, pattern="gpt2", **files):
    """A folder whose `tokenizer.json` has 258 model tokens, `<|endoftext|>` (258) and `<bos>`.

    `files` maps names without `.json` to their content.
    """
    merges = [(b"l", b"o"), (b"lo", b"w")]
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"lo", 257: b"low"}
    folder.mkdir(exist_ok=True)
    path = folder / "tokenizer.json"
    Tokenizer(vocab, merges, [END, "<bos>"], pattern=pattern).save(path)
    table = json.loads(path.read_text(encoding="utf-8"))
    if nfc:
        table["normalizer"] = {"type": "NFC"}
    change(table)
    path.write_text(json.dumps(table), encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def _bos(table):
    table["post_processor"] = template(("<bos>", 259))


def _whisper(table):
    names = ["<|startoftranscript|>", "<|notimestamps|>"]
    ids = list(zip(names, (260, 261), strict=True))
    table["added_tokens"] += [{"id": id_, **added_token(name)} for name, id_ in ids]
    table["post_processor"] = template(*ids)
    table["post_processor"]["single"].append({"SpecialToken": {"id": END, "type_id": 0}})
    table["post_processor"]["special_tokens"][END] = {"id": END, "ids": [258], "tokens": [END]}


def _prefix_space(table):
    table["pre_tokenizer"]["add_prefix_space"] = True


def _without_a_byte(table):
    vocab = table["model"]["vocab"]
    vocab["unused"] = vocab.pop("!")


def _folder(config=None, *, kind="PreTrainedTokenizerFast", model_type=None, **arguments):
    """Arguments of `make_folder`: `tokenizer_config.json` of this class, and of this model."""
    of_kind = {} if kind is None else {"tokenizer_class": kind}
    files = {} if model_type is None else {"config": {"model_type": model_type}}
    return {"tokenizer_config": {**of_kind, **(config or {})}, **files, **arguments}


def _roberta(table):
    names = ["<s>", "</s>", "<unk>", "<pad>", "<mask>"]
    table["added_tokens"] += [
        {"id": 260 + index, **added_token(name, lstrip=name == "<mask>")}
        for index, name in enumerate(names)
    ]
    table["post_processor"] = {
        "type": "RobertaProcessing",
        "sep": ["</s>", 261],
        "cls": ["<s>", 260],
        "trim_offsets": True,
        "add_prefix_space": False,
    }


def _characters(rule):
    """A vocabulary of characters, which writes spaces by this rule."""

    def change(table):
        # That module has templates of this one.
        from tests.tokenizer_core.formats.tokenizer_json.test_metaspace import table_of

        table.clear()
        table.update(table_of(rule))

    return change


def _digits(table):
    steps = [{"type": "Digits", "individual_digits": True}, table["pre_tokenizer"]]
    table["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}


def _cohere(table):
    _bos(table)
    _digits(table)


_MASK = {"__type": "AddedToken", **added_token("<mask>", lstrip=True)}
_ONE = {"258": added_token(END)}
_LISTED = {**_ONE, "259": added_token("<bos>")}
_SPACE = {"add_prefix_space": True}
_QWEN = {"kind": "Qwen2Tokenizer", "nfc": True, "pattern": "qwen2"}
_QWEN3_5 = {"kind": "Qwen3_5Tokenizer", "nfc": True, "pattern": "qwen3_5"}


def _decoder(**tokens):
    """The field with the tokens of the file and these, by `id_N`."""
    others = {name.removeprefix("id_"): token for name, token in tokens.items()}
    return {"added_tokens_decoder": _LISTED | others}


ACCEPTED = {
    "generic": _folder(),
    "adds_bos": _folder({"add_bos_token": True, "bos_token": "<bos>"}, change=_bos),
    "added_tokens_decoder": _folder(
        _decoder(id_260=added_token("<extra>"), id_261=added_token("<tool>", special=False))
    ),
    "added_tokens_with_flags": _folder(
        _decoder(
            id_260=added_token("<extra>", rstrip=True),
            id_261=added_token("<tool>", lstrip=True, single_word=True),
        )
    ),
    "added_token_of_the_model": _folder(_decoder(id_257=added_token("low"))),
    "added_tokens_file": _folder(
        added_tokens={"<extra>": 260, "<tool>": 261},
        special_tokens_map={"additional_special_tokens": ["<extra>"]},
    ),
    "named_content": _folder(
        {"eos_token": END, "extra_special_tokens": {"start_token": "<bos>"}},
        change=lambda t: [token.update(special=False) for token in t["added_tokens"]],
    ),
    "named_token_of_the_model": _folder({"bos_token": "<bos>", "pad_token": "low"}),
    "gpt2": _folder(kind="GPT2Tokenizer"),
    "qwen2": _folder({"pad_token": "<pad>"}, **_QWEN),
    "qwen3_without_a_class": _folder(kind=None, model_type="qwen3", nfc=True, pattern="qwen2"),
    "roberta": _folder({"mask_token": _MASK}, kind="RobertaTokenizer", change=_roberta),
    "gpt2_class_of_olmo2": _folder(kind="GPT2Tokenizer", model_type="olmo2", pattern="cl100k"),
    "gpt2_with_a_prefix_space": _folder(_SPACE, kind="GPT2Tokenizer", change=_prefix_space),
    "generic_with_a_prefix_space": _folder(_SPACE, change=_prefix_space),
    "generic_with_steps_that_have_no_prefix_space": _folder(_SPACE, pattern="llama3"),
    "gpt2_without_a_byte": _folder(kind="GPT2Tokenizer", change=_without_a_byte),
    "whisper": _folder({"add_bos_token": False}, kind="WhisperTokenizer", change=_whisper),
    "codegen": _folder({"unk_token": END}, kind="CodeGenTokenizer", model_type="phi"),
    "add_bos_token": _folder({"add_bos_token": True, "bos_token": END}),
    "add_bos_token_false": _folder({"add_bos_token": False, "bos_token": "<bos>"}, change=_bos),
    "add_eos_token": _folder({"add_eos_token": True, "eos_token": END}),
    "declared_with_another_id": _folder(_decoder(id_300=added_token("<extra>"))),
    "token_with_two_descriptions": _folder(_decoder(id_259=added_token("<bos>", lstrip=True))),
    "gpt2_without_the_setting_of_a_prefix_space": _folder(
        kind="GPT2Tokenizer", change=_prefix_space
    ),
    "mistral": _folder(
        {"legacy": False, **_SPACE},
        kind="LlamaTokenizer",
        model_type="mistral",
        change=_characters("metaspace-first"),
    ),
    "llama": _folder(
        {"legacy": False}, kind="LlamaTokenizer", change=_characters("metaspace-first")
    ),
    "llama_legacy": _folder(
        {"legacy": True}, kind="LlamaTokenizer", change=_characters("metaspace-always")
    ),
}
"""Arguments of `make_folder`, for folders that both releases of transformers read alike."""

DIFFERING = {
    "smollm": _folder(kind="GPT2Tokenizer", change=_digits),
    **{
        f"{kind}_{rule}_{legacy}": _folder(
            {"legacy": legacy, "bos_token": "<s>"},
            kind=kind,
            change=_characters(f"metaspace-{rule}"),
        )
        for kind in ("LlamaTokenizer", "CodeLlamaTokenizer")
        for rule, legacy in (("first", True), ("prepend", False), ("prepend", True))
    },
    "gemma": _folder(kind="GemmaTokenizer", change=_characters("metaspace")),
    "named_tokens": _folder({"pad_token": "<pad>", "extra_special_tokens": ["<extra>", "<tool>"]}),
    "gpt_neox": _folder(kind="GPTNeoXTokenizerFast", nfc=True),
    "qwen3_5": _folder({"pad_token": "<pad>"}, **_QWEN3_5),
    "qwen3_5_without_a_class": _folder(**_QWEN3_5 | {"kind": None, "model_type": "qwen3_5_text"}),
    "cohere": _folder({"bos_token": "<bos>"}, kind="CohereTokenizer", nfc=True, change=_cohere),
    "cohere_without_a_class": _folder(kind=None, model_type="cohere2", nfc=True, change=_cohere),
    "llama_class": _folder(
        kind="LlamaTokenizerFast", model_type="llama", pattern="llama3", change=_bos
    ),
    "gpt2_with_another_pattern": _folder(kind="GPT2Tokenizer", pattern="cl100k"),
    "gpt2_with_an_unknown_token": _folder(
        kind="GPT2Tokenizer",
        change=lambda table: (_without_a_byte(table), table["model"].update(unk_token="low")),
    ),
    "qwen2_without_nfc": _folder(kind=None, model_type="qwen2", pattern="qwen2"),
    "gpt2_with_ignore_merges": _folder(
        kind="GPT2Tokenizer", change=lambda table: table["model"].update(ignore_merges=True)
    ),
    "gpt_neox_with_bos": _folder(kind="GPTNeoXTokenizer", nfc=True, change=_bos),
    "cohere_with_another_pattern": _folder(kind="CohereTokenizer", nfc=True),
    "qwen3_5_with_another_pattern": _folder(**_QWEN | {"kind": "Qwen3_5Tokenizer"}),
    "roberta_without_ends": _folder(kind="RobertaTokenizer"),
    "whisper_without_ends": _folder(kind="WhisperTokenizer"),
    "whisper_with_a_language": _folder(
        {"language": "german"}, kind="WhisperTokenizer", change=_whisper
    ),
    "gpt2_without_a_token": _folder({"added_tokens_decoder": _ONE}, kind="GPT2Tokenizer"),
    "code": _folder({"auto_map": {"AutoTokenizer": ["code.Theirs", None]}}, kind=None),
    "bert": _folder(kind="BertTokenizerFast"),
    "unknown_model": {"config": {"model_type": "unheard_of"}},
    "generic_without_the_prefix_space": _folder(_SPACE),
    "qwen2_with_a_prefix_space": _folder(_SPACE, **_QWEN),
    "split_special_tokens": _folder({"split_special_tokens": True}),
    "fast_tokenizer_files": _folder({"fast_tokenizer_files": ["a.json"]}),
    "two_lists_of_extra_tokens": _folder(
        {"extra_special_tokens": ["<a>"]}, special_tokens_map={"additional_special_tokens": ["<b>"]}
    ),
    "token_named_twice": _folder({"pad_token": "<mask>", "mask_token": _MASK}),
    "qwen2_with_a_flag": _folder({"mask_token": _MASK}, **_QWEN),
    "pad_token_is_a_number": _folder({"pad_token": 7}),
    "decoder_is_a_list": _folder({"added_tokens_decoder": []}),
    "decoder_without_ids": _folder({"added_tokens_decoder": {"x": {}}}),
    "added_tokens_without_ids": _folder(added_tokens={"<extra>": "1"}),
}
"""For folders whose ids differ, or are not known."""


class ChatCase(NamedTuple):
    """A folder with chat templates, and what transformers 5 reads of it."""

    tables: dict[str, dict[str, Any]]
    templates: dict[str, str]
    variables: dict[str, str]
    files: dict[str, bytes] | None = None


_NAMED = {"name": "tool_use", "template": "T"}
_END = {"__type": "AddedToken", **added_token(END)}
_MORE = "additional_chat_templates"

CHAT_CASES = {
    "none": ChatCase(_folder({"eos_token": END}), {}, {"eos_token": END}),
    "string": ChatCase(
        _folder({"chat_template": "X\r\n", "pad_token": None, "image_token": "<bos>"}),
        {"default": "X\r\n"},
        {"image_token": "<bos>"},
    ),
    "list": ChatCase(
        _folder(
            {
                "chat_template": [_NAMED, {"name": "default", "template": "D"}],
                "extra_special_tokens": {"audio_token": "<bos>"},
            }
        ),
        {"default": "D", "tool_use": "T"},
        {"audio_token": "<bos>"},
    ),
    "files": ChatCase(
        _folder({"chat_template": [_NAMED], "eos_token": _END}),
        {"default": "a\nb\nc\n", "rag": "é"},
        {"eos_token": END},
        {"chat_template.jinja": b"a\r\nb\rc\n", f"{_MORE}/rag.jinja": "é".encode()},
    ),
    "default among the others": ChatCase(
        _folder(),
        {"default": "\ufeffother"},
        {},
        {"chat_template.jinja": b"root", f"{_MORE}/default.jinja": b"\xef\xbb\xbfother"},
    ),
    "special_tokens_map.json": ChatCase(
        {
            **_folder({"chat_template": "c"}),
            "special_tokens_map": {
                "eos_token": added_token(END),
                "bos_token": "<bos>",
                "additional_special_tokens": ["<bos>"],
            },
        },
        {"default": "c"},
        {"bos_token": "<bos>", "eos_token": END},
    ),
    "a class that has defaults": ChatCase(
        _folder({"chat_template": "c", **_decoder()}, kind="GPT2Tokenizer"),
        {"default": "c"},
        {"bos_token": END, "eos_token": END, "unk_token": END},
    ),
}


def make_chat_folder(folder, case):
    made = make_folder(folder, **case.tables)
    for name, data in (case.files or {}).items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_bytes(data)
    return made
