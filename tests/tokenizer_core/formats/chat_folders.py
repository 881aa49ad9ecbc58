"""Model folders with chat templates, and what transformers 5 reads of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.tokenizer_core.formats.model_folders import END, make_folder
from tests.tokenizer_core.formats.small_specs import added_token

BOS = "<bos>"


@dataclass(frozen=True)
class Case:
    tables: dict[str, dict[str, Any]]
    templates: dict[str, str]
    variables: dict[str, str]
    files: dict[str, bytes] = field(default_factory=dict)


def _config(**fields: Any) -> dict[str, dict[str, Any]]:
    return {"tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", **fields}}


_NAMED = {"name": "tool_use", "template": "T"}
_DECODER = {"258": added_token(END), "259": added_token(BOS)}

CASES = {
    "none": Case(_config(eos_token=END), {}, {"eos_token": END}),
    "string": Case(
        _config(
            chat_template="X\r\n", bos_token=BOS, eos_token=END, pad_token=None, image_token=BOS
        ),
        {"default": "X\r\n"},
        {"bos_token": BOS, "eos_token": END, "image_token": BOS},
    ),
    "list": Case(
        _config(
            chat_template=[_NAMED, {"name": "default", "template": "D"}],
            extra_special_tokens={"audio_token": BOS},
        ),
        {"default": "D", "tool_use": "T"},
        {"audio_token": BOS},
    ),
    "files": Case(
        _config(chat_template=[_NAMED], eos_token={"__type": "AddedToken", **added_token(END)}),
        {"default": "a\nb\nc\n", "rag": "é"},
        {"eos_token": END},
        {
            "chat_template.jinja": b"a\r\nb\rc\n",
            "additional_chat_templates/rag.jinja": "é".encode(),
        },
    ),
    "default among the others": Case(
        _config(),
        {"default": "\ufeffother"},
        {},
        {
            "chat_template.jinja": b"root",
            "additional_chat_templates/default.jinja": b"\xef\xbb\xbfother",
        },
    ),
    "special_tokens_map.json": Case(
        {
            **_config(chat_template="c"),
            "special_tokens_map": {
                "eos_token": added_token(END),
                "bos_token": BOS,
                "additional_special_tokens": [BOS],
                "video_token": added_token(BOS),
            },
        },
        {"default": "c"},
        {"bos_token": BOS, "eos_token": END, "video_token": BOS},
    ),
    "a class that has defaults": Case(
        {
            "tokenizer_config": {
                "tokenizer_class": "GPT2Tokenizer",
                "chat_template": "c",
                "added_tokens_decoder": _DECODER,
            }
        },
        {"default": "c"},
        {"bos_token": END, "eos_token": END, "unk_token": END},
    ),
}


def make_chat_folder(folder: Path, case: Case) -> Path:
    made = make_folder(folder, **case.tables)
    for name, data in case.files.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_bytes(data)
    return made
