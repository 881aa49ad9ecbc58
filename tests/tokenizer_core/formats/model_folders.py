"""Model folders made from a small vocabulary, for the tests of their reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

Change = Callable[[dict[str, Any]], object]


def template(*ids: tuple[str, int], after: bool = False) -> dict[str, Any]:
    """A post-processor that puts these tokens before the text, or after it."""
    names = [{"SpecialToken": {"id": name, "type_id": 0}} for name, _ in ids]
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    single = [*text, *names] if after else [*names, *text]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in ids},
    }


def make_folder(
    folder: Path,
    change: Change = lambda _: None,
    *,
    nfc: bool = False,
    pattern: str = "gpt2",
    **files: dict[str, Any],
) -> Path:
    """A folder whose `tokenizer.json` has 258 model tokens, `<|endoftext|>` (258) and `<bos>`.

    `files` maps names without `.json` to their content.
    """
    merges = [(b"l", b"o"), (b"lo", b"w")]
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"lo", 257: b"low"}
    folder.mkdir(exist_ok=True)
    path = folder / "tokenizer.json"
    Tokenizer(vocab, merges, [END, "<bos>"], pattern=pattern).save_tokenizer_json(path)
    table = json.loads(path.read_text(encoding="utf-8"))
    if nfc:
        table["normalizer"] = {"type": "NFC"}
    change(table)
    path.write_text(json.dumps(table), encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def _bos(table: dict[str, Any]) -> None:
    table["post_processor"] = template(("<bos>", 259))


def _whisper(table: dict[str, Any]) -> None:
    names = ["<|startoftranscript|>", "<|notimestamps|>"]
    ids = list(zip(names, (260, 261), strict=True))
    table["added_tokens"] += [{"id": id_, **added_token(name)} for name, id_ in ids]
    table["post_processor"] = template(*ids)
    table["post_processor"]["single"].append({"SpecialToken": {"id": END, "type_id": 0}})
    table["post_processor"]["special_tokens"][END] = {"id": END, "ids": [258], "tokens": [END]}


def _prefix_space(table: dict[str, Any]) -> None:
    table["pre_tokenizer"]["add_prefix_space"] = True


def _without_a_byte(table: dict[str, Any]) -> None:
    vocab = table["model"]["vocab"]
    vocab["unused"] = vocab.pop("!")


def _fast(**config: Any) -> dict[str, Any]:
    return {"tokenizer_class": "PreTrainedTokenizerFast", **config}


def _roberta(table: dict[str, Any]) -> None:
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


_MASK = {"__type": "AddedToken", **added_token("<mask>", lstrip=True)}
_LISTED = {"258": added_token(END), "259": added_token("<bos>")}

ACCEPTED: dict[str, dict[str, Any]] = {
    "generic": {"tokenizer_config": _fast()},
    "adds_bos": {"change": _bos, "tokenizer_config": _fast(add_bos_token=True, bos_token="<bos>")},
    "added_tokens_decoder": {
        "tokenizer_config": _fast(
            added_tokens_decoder={
                **_LISTED,
                "260": added_token("<extra>"),
                "261": added_token("<tool>", special=False),
            }
        )
    },
    "added_tokens_with_flags": {
        "tokenizer_config": _fast(
            added_tokens_decoder={
                **_LISTED,
                "260": added_token("<extra>", rstrip=True),
                "261": added_token("<tool>", lstrip=True, single_word=True),
            }
        )
    },
    "added_token_of_the_model": {
        "tokenizer_config": _fast(added_tokens_decoder={**_LISTED, "257": added_token("low")})
    },
    "added_tokens_file": {
        "tokenizer_config": _fast(),
        "added_tokens": {"<extra>": 260, "<tool>": 261},
        "special_tokens_map": {"additional_special_tokens": ["<extra>"]},
    },
    "named_content": {
        "change": lambda t: [token.update(special=False) for token in t["added_tokens"]],
        "tokenizer_config": _fast(eos_token=END, extra_special_tokens={"start_token": "<bos>"}),
    },
    "named_tokens": {
        "tokenizer_config": _fast(pad_token="<pad>", extra_special_tokens=["<extra>", "<tool>"])
    },
    "named_token_of_the_model": {"tokenizer_config": _fast(bos_token="<bos>", pad_token="low")},
    "model_specific": {
        "tokenizer_config": _fast(
            tool_token="<tool>", extra_special_tokens={"extra_token": "<extra>"}
        )
    },
    "special_tokens_map": {
        "tokenizer_config": _fast(),
        "special_tokens_map": {"pad_token": added_token("<pad>"), "bos_token": "<bos>"},
    },
    "gpt2": {"tokenizer_config": {"tokenizer_class": "GPT2Tokenizer"}},
    "gpt2_adds_bos": {"change": _bos, "tokenizer_config": {"tokenizer_class": "GPT2TokenizerFast"}},
    "gpt_neox": {"nfc": True, "tokenizer_config": {"tokenizer_class": "GPTNeoXTokenizerFast"}},
    "qwen2": {
        "nfc": True,
        "pattern": "qwen2",
        "tokenizer_config": {"tokenizer_class": "Qwen2Tokenizer", "pad_token": "<pad>"},
    },
    "qwen3_without_a_class": {
        "nfc": True,
        "pattern": "qwen2",
        "tokenizer_config": {},
        "config": {"model_type": "qwen3"},
    },
    "roberta": {
        "change": _roberta,
        "tokenizer_config": {"tokenizer_class": "RobertaTokenizer", "mask_token": _MASK},
    },
    "roberta_without_a_configuration": {
        "change": _roberta,
        "config": {"model_type": "roberta"},
    },
    "bart_without_a_class": {
        "change": _roberta,
        "tokenizer_config": {"add_prefix_space": False, "mask_token": _MASK},
        "config": {"model_type": "bart"},
    },
    "gpt2_class_of_olmo2": {
        "pattern": "cl100k",
        "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer"},
        "config": {"model_type": "olmo2"},
    },
    "gpt2_with_a_prefix_space": {
        "change": _prefix_space,
        "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True},
    },
    "roberta_with_a_prefix_space": {
        "change": lambda table: (_roberta(table), _prefix_space(table)),
        "tokenizer_config": {
            "tokenizer_class": "RobertaTokenizer",
            "mask_token": _MASK,
            "add_prefix_space": True,
        },
    },
    "generic_with_a_prefix_space": {
        "change": _prefix_space,
        "tokenizer_config": _fast(add_prefix_space=True),
    },
    "generic_with_steps_that_have_no_prefix_space": {
        "pattern": "llama3",
        "tokenizer_config": _fast(add_prefix_space=True),
    },
    "gpt2_without_a_byte": {
        "change": _without_a_byte,
        "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer"},
    },
    "whisper": {
        "change": _whisper,
        "tokenizer_config": {"tokenizer_class": "WhisperTokenizer", "add_bos_token": False},
    },
    "whisper_without_a_class": {"change": _whisper, "config": {"model_type": "whisper"}},
    "codegen": {
        "tokenizer_config": {
            "tokenizer_class": "CodeGenTokenizer",
            "add_prefix_space": False,
            "unk_token": END,
            "bos_token": END,
        },
        "config": {"model_type": "phi"},
    },
    "llama_class": {
        "pattern": "llama3",
        "change": _bos,
        "tokenizer_config": {"tokenizer_class": "LlamaTokenizerFast"},
        "config": {"model_type": "llama"},
    },
}
"""Arguments of `make_folder`, for folders that are read."""

REFUSED: dict[str, dict[str, Any]] = {
    "add_bos_token is true": {"tokenizer_config": _fast(add_bos_token=True, bos_token=END)},
    "add_bos_token is false": {
        "change": _bos,
        "tokenizer_config": _fast(add_bos_token=False, bos_token="<bos>"),
    },
    "add_eos_token is true": {"tokenizer_config": _fast(add_eos_token=True, eos_token=END)},
    "its pre_tokenizer by that of GPT2Tokenizer": {
        "pattern": "cl100k",
        "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer"},
    },
    "its model by that of GPT2Tokenizer": {
        "change": lambda table: (
            _without_a_byte(table),
            table["model"].update(unk_token="low", fuse_unk=False),
        ),
        "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer"},
    },
    "its normalizer by that of Qwen2Tokenizer": {
        "pattern": "qwen2",
        "tokenizer_config": {"tokenizer_class": "LlamaTokenizerFast"},
        "config": {"model_type": "qwen2"},
    },
    "its ignore_merges by that of GPT2Tokenizer": {
        "change": lambda table: table["model"].update(ignore_merges=True),
        "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer"},
    },
    "its post_processor by that of GPTNeoXTokenizer": {
        "nfc": True,
        "change": _bos,
        "tokenizer_config": {"tokenizer_class": "GPTNeoXTokenizer"},
    },
    "puts cls_token and sep_token around": {
        "change": lambda table: (_roberta(table), table.update(post_processor=None)),
        "tokenizer_config": {"tokenizer_class": "RobertaTokenizer", "mask_token": _MASK},
    },
    "<|notimestamps|> and eos_token around": {
        "tokenizer_config": {"tokenizer_class": "WhisperTokenizer"},
    },
    "language changes what WhisperTokenizer puts": {
        "change": _whisper,
        "tokenizer_config": {"tokenizer_class": "WhisperTokenizer", "language": "german"},
    },
    "without its token '<bos>'": {
        "tokenizer_config": {
            "tokenizer_class": "GPT2Tokenizer",
            "added_tokens_decoder": {"258": added_token(END)},
        },
    },
    "with id 300, but": {
        "tokenizer_config": _fast(added_tokens_decoder={**_LISTED, "300": added_token("<extra>")})
    },
    "describe the token '<bos>' differently": {
        "tokenizer_config": _fast(
            added_tokens_decoder={"258": added_token(END), "259": added_token("<bos>", lstrip=True)}
        )
    },
    "auto_map": {"tokenizer_config": {"auto_map": {"AutoTokenizer": ["code.Theirs", None]}}},
    "tokenizer_class 'BertTokenizer'": {
        "tokenizer_config": {"tokenizer_class": "BertTokenizerFast"}
    },
    "model_type 'unheard_of'": {"config": {"model_type": "unheard_of"}},
    "add_prefix_space is true, which some": {"tokenizer_config": _fast(add_prefix_space=True)},
    "its normalizer by that of GPT2Tokenizer": {
        "change": _prefix_space,
        "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer"},
    },
    "add_prefix_space is true, .* does not put": {
        "pattern": "qwen2",
        "nfc": True,
        "tokenizer_config": {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": True},
    },
    "split_special_tokens changes ids": {"tokenizer_config": _fast(split_special_tokens=True)},
    "fast_tokenizer_files": {"tokenizer_config": _fast(fast_tokenizer_files=["a.json"])},
    "different extra special tokens": {
        "tokenizer_config": _fast(extra_special_tokens=["<extra>"]),
        "special_tokens_map": {"additional_special_tokens": ["<tool>"]},
    },
    "the token '<mask>' twice, with different": {
        "tokenizer_config": _fast(pad_token="<mask>", mask_token=_MASK)
    },
    "builds Qwen2Tokenizer without its token '<mask>', or with other settings": {
        "pattern": "qwen2",
        "nfc": True,
        "tokenizer_config": {"tokenizer_class": "Qwen2Tokenizer", "mask_token": _MASK},
    },
    "pad_token is 7": {"tokenizer_config": _fast(pad_token=7)},
    "added_tokens_decoder is no object": {"tokenizer_config": _fast(added_tokens_decoder=[])},
    "'x', no id with a token": {"tokenizer_config": _fast(added_tokens_decoder={"x": {}})},
    "'<extra>' has no id": {"tokenizer_config": _fast(), "added_tokens": {"<extra>": "1"}},
}
"""Part of the error -> arguments of `make_folder`."""
