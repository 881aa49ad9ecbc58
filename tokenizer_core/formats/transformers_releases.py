"""What two releases of `transformers` build of a model folder with a `tokenizer.json`, as the
`tokenizer.json` that the release then has in memory.

`AutoTokenizer` of both chooses a class (`_class_in_4`, `_class_in_5`). Release 4 reads the file and
changes its prefix space and post-processor by the settings of the class (`_CLASSES_IN_4`). Release
5 takes for some classes only vocabulary, merges and post-processor of the file, and the class sets
the rest (`_CLASSES_IN_5`). Then both add the tokens that the folder declares (`_added_tokens`).

What is not known of a release is an `UnknownIdsError`; what the release itself refuses, a
`NotReadError`. The rules come from the sources of the two releases.
"""

from __future__ import annotations

import contextlib
import copy
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.tokenizer_json.added_tokens import assign_added_ids
from tokenizer_core.formats.tokenizer_json.decoder import OF_CHARACTERS, STRIP
from tokenizer_core.formats.tokenizer_json.fields import kind_of, render_byte_level, steps_of
from tokenizer_core.formats.tokenizer_json.normalizer import SPACE_TO_META
from tokenizer_core.formats.tokenizer_json.post_processor import Pairs, render_template
from tokenizer_core.formats.tokenizer_json.pre_tokenizer import (
    AT_SPACES,
    render_metaspace,
    render_pattern,
)
from tokenizer_core.normalizers.spaces import METASPACE_CHARACTER
from tokenizer_core.spec.added_tokens import ADDED_TOKEN_FLAGS
from tokenizer_core.splitting.patterns import (
    CLIP,
    DIGITS_THEN_GPT2,
    PATTERNS,
    PUBLISHED,
    SplitPattern,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RELEASES: Final = MappingProxyType({"transformers4": "4.57.6", "transformers5": "5.24.0"})
"""The releases whose ids a folder can have, by the name of the choice."""

CONFIG: Final = "tokenizer_config.json"
TOKENIZER: Final = "tokenizer.json"
SPECIAL_TOKENS: Final = "special_tokens_map.json"
FLAGS: Final = (*ADDED_TOKEN_FLAGS, "special")
NAMED: Final = tuple(f"{n}_token" for n in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_END: Final = "<|endoftext|>"
_BY_NAME: Final = "model_specific_special_tokens"
_GENERIC: Final = "TokenizersBackend"
_PROMPT_SETTINGS: Final = ("language", "task", "predict_timestamps")

Token = dict[str, Any]
"""An added token as in `tokenizer.json`, without its id."""


class UnknownIdsError(FormatError):
    """It is not known which ids a release of `transformers` gives."""


class NotReadError(FormatError):
    """A release of `transformers` refuses the folder."""


@dataclass(frozen=True, slots=True)
class FolderTables:
    """The files of a folder that decide its ids, parsed; empty where there is none.

    - `has_file`: whether `table` is that of `tokenizer.json`, not of `vocab.json` and `merges.txt`.
    - `names_byte_level`: whether the text of `tokenizer.json` has the name "ByteLevel".
    - `has_tokenizer_model`: whether there is a file `tokenizer.model`, of whatever kind.
    """

    table: Mapping[str, Any]
    config: Mapping[str, Any]
    special_tokens: Mapping[str, Any]
    added_tokens: Mapping[str, Any]
    model: Mapping[str, Any]
    has_file: bool = True
    names_byte_level: bool = True
    has_tokenizer_model: bool = False


def table_in_release(files: FolderTables, ids: str) -> dict[str, Any]:
    """The `tokenizer.json` that the release of RELEASES has in memory after loading the folder.

    Raises:
        NotReadError: the release refuses the folder.
        UnknownIdsError: it is not known what the release does with a setting or class (named).
        FormatError: a file is malformed.
    """
    for name in ("split_special_tokens", "fix_mistral_regex", "fast_tokenizer_files"):
        if files.config.get(name):
            raise UnknownIdsError(f"{CONFIG}: {name} changes ids and is not supported")
    return _table_in_4(files) if ids == "transformers4" else _table_in_5(files)


# Release 4 reads the file ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ClassIn4:
    """What a class of release 4 changes.

    - `named`: its named tokens, without `_token` -> what it takes if the folder names none. An
      object also gives its flags to a text that the folder names; "" stands for none.
    - `models`: the models of the class, for a folder that names none.
    - `adds_by_default`: whether it puts `bos_token` and `eos_token` around a text if no setting
      says so; None if the post-processor of the file decides.
    """

    named: Mapping[str, Any]
    models: str = ""
    adds_by_default: tuple[bool, bool] | None = None


def _plain(content: str, **flags: bool) -> Token:
    return {"content": content} | dict.fromkeys(FLAGS, False) | {"special": True} | flags


_GPT2_NAMES: Final = {"unk": _END, "bos": _END, "eos": _END}
_LLAMA_NAMES: Final = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
_ROBERTA_NAMES: Final = {
    **{"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>"},
    "mask": "<mask>",
}
_CODE_LLAMA_NAMES: Final = {
    f"{name}_token": f"{METASPACE_CHARACTER}<{content}>"
    for name, content in {"prefix": "PRE", "middle": "MID", "suffix": "SUF", "eot": "EOT"}.items()
}
_CLASSES_IN_4: Final = MappingProxyType(
    {
        "PreTrainedTokenizer": _ClassIn4(
            {},
            "bitnet blt csm falcon glm glm4 glm4_moe glm4v glm4v_moe gpt_oss helium modernbert "
            "moonshine moshi nemotron pixtral smollm3 voxtral",
        ),
        "GPT2Tokenizer": _ClassIn4(
            _GPT2_NAMES,
            "dbrx emu3 exaone4 flex_olmo gpt2 gpt_bigcode gpt_neo gptj minimax olmo3 opt "
            "starcoder2",
        ),
        "CodeGenTokenizer": _ClassIn4(_GPT2_NAMES, "codegen phi"),
        "WhisperTokenizer": _ClassIn4({name: _plain(_END) for name in _GPT2_NAMES}, "whisper"),
        "Qwen2Tokenizer": _ClassIn4(
            {"unk": _plain(_END), "bos": _plain(""), "eos": _plain(_END), "pad": _plain(_END)},
            "qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_moe "
            "qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe",
        ),
        "GPTNeoXTokenizer": _ClassIn4(
            {**_GPT2_NAMES, "pad": None},
            "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmo2 olmoe rwkv stablelm xlstm",
            adds_by_default=(False, False),
        ),
        "LlamaTokenizer": _ClassIn4(
            _LLAMA_NAMES,
            "arcee aria code_llama deepseek_v2 deepseek_v3 diffllama ernie4_5 ernie4_5_moe "
            "idefics3 jamba jetmoe llama llama4 llama4_text llava llava_next llava_onevision "
            "ministral mistral mistral3 mixtral mllama paligemma phi3 phimoe vipllava zamba "
            "zamba2",
            adds_by_default=(True, False),
        ),
        "CodeLlamaTokenizer": _ClassIn4(_LLAMA_NAMES, adds_by_default=(True, False)),
        "GemmaTokenizer": _ClassIn4(
            {"unk": "<unk>", "bos": "<bos>", "eos": "<eos>", "pad": "<pad>"},
            "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 "
            "siglip2 t5gemma",
            adds_by_default=(True, False),
        ),
        "CohereTokenizer": _ClassIn4(
            {"unk": "<UNK>", "bos": "<BOS_TOKEN>", "eos": "<|END_OF_TURN_TOKEN|>"},
            "aya_vision cohere cohere2",
            adds_by_default=(True, False),
        ),
        "BloomTokenizer": _ClassIn4({**_LLAMA_NAMES, "pad": "<pad>"}, "bloom"),
        "RobertaTokenizer": _ClassIn4(
            {**_ROBERTA_NAMES, "mask": _plain("<mask>", lstrip=True, special=False)},
            "roberta roberta-prelayernorm",
        ),
        "BartTokenizer": _ClassIn4(
            {**_ROBERTA_NAMES, "mask": _plain("<mask>", lstrip=True, normalized=True)},
            "bart",
        ),
        "CLIPTokenizer": _ClassIn4(
            {"unk": _END, "bos": "<|startoftext|>", "eos": _END, "pad": _END}, "clip clipseg xclip"
        ),
    }
)
# Its AutoTokenizer knows no such class.
_NOT_IN_4: Final = frozenset({_GENERIC, "Qwen3_5Tokenizer", "PythonBackend"})


# Release 5 builds some classes --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ClassIn5:
    """What a class of release 5 sets itself.

    - `named`: as of `_ClassIn4`; `own`: further tokens with names; `models`.
    - `pattern` (None: of a vocabulary of characters), `normalizer`, `word_suffix`.
    - `around`: the tokens that it puts around a text, by name or content; None if the
      post-processor of the file decides. `pairs`: what has them in a pair of texts.
    - `adds_again`: whether it adds its special tokens once more, and thereby changes their flags:
      "plain" without flags, "as named" with those of their names.
    """

    pattern: SplitPattern | None
    normalizer: Mapping[str, Any] | None
    named: Mapping[str, str | None]
    models: str = ""
    around: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    pairs: Pairs = "each"
    own: Mapping[str, str] = field(default_factory=dict)
    adds_again: str = ""
    word_suffix: str = ""

    @property
    def defaults(self) -> dict[str, str | None]:
        """Name -> content of the named tokens that have a default."""
        return {f"{name}_token": content for name, content in self.named.items()}


_NFC: Final = {"type": "NFC"}
_JOIN_SPACES: Final = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
_QWEN_NAMES: Final = {"unk": _END, "eos": _END, "pad": _END}
_ROBERTA: Final = _ClassIn5(
    PATTERNS["gpt2"],
    None,
    _ROBERTA_NAMES,
    "bart roberta roberta-prelayernorm",
    around=(("cls_token",), ("sep_token",)),
    pairs="roberta",
)
_CLASSES_IN_5: Final = MappingProxyType(
    {
        "GPT2Tokenizer": _ClassIn5(
            PATTERNS["gpt2"],
            None,
            {**_GPT2_NAMES, "pad": None},
            "codegen dbrx gpt2 gpt_neo gptj jais2 opt phi starcoder2",
        ),
        "CodeGenTokenizer": _ClassIn5(PATTERNS["gpt2"], None, {**_GPT2_NAMES, "pad": None}),
        "WhisperTokenizer": _ClassIn5(
            PATTERNS["gpt2"],
            None,
            _GPT2_NAMES,
            "whisper",
            around=(("<|startoftranscript|>", "<|notimestamps|>"), ("eos_token",)),
            pairs="whole",
        ),
        "RobertaTokenizer": _ROBERTA,
        "BartTokenizer": _ROBERTA,
        "CLIPTokenizer": _ClassIn5(
            CLIP,
            {"type": "Sequence", "normalizers": [_NFC, _JOIN_SPACES, {"type": "Lowercase"}]},
            {"unk": _END, "bos": "<|startoftext|>", "eos": _END, "pad": _END},
            "clip clipseg xclip",
            around=(("bos_token",), ("eos_token",)),
            pairs="roberta",
            word_suffix="</w>",
        ),
        "GPTNeoXTokenizer": _ClassIn5(
            PATTERNS["gpt2"],
            _NFC,
            {**_GPT2_NAMES, "pad": "<|padding|>"},
            "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm",
            around=((), ()),
        ),
        "Qwen2Tokenizer": _ClassIn5(
            PATTERNS["qwen2"],
            _NFC,
            _QWEN_NAMES,
            "qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_next "
            "qwen3_omni_moe qwen3_vl qwen3_vl_moe",
            adds_again="plain",
        ),
        "Qwen3_5Tokenizer": _ClassIn5(PUBLISHED["qwen3_5"], _NFC, _QWEN_NAMES, "qwen3_5_text"),
        "CohereTokenizer": _ClassIn5(
            DIGITS_THEN_GPT2[True],
            _NFC,
            {
                "unk": "<UNK>",
                "bos": "<BOS_TOKEN>",
                "eos": "<|END_OF_TURN_TOKEN|>",
                "pad": "<PAD>",
                "cls": "<CLS>",
                "sep": "<SEP>",
                "mask": "<MASK_TOKEN>",
            },
            "aya_vision cohere cohere2",
            adds_again="as named",
        ),
        "LlamaTokenizer": _ClassIn5(None, None, _LLAMA_NAMES, "idefics idefics2"),
        "CodeLlamaTokenizer": _ClassIn5(
            None,
            None,
            _LLAMA_NAMES,
            around=(("bos_token",), ()),
            own={**_CODE_LLAMA_NAMES, "fill_token": "<FILL_ME>"},
        ),
        "GemmaTokenizer": _ClassIn5(
            None,
            SPACE_TO_META,
            {"unk": "<unk>", "bos": "<bos>", "eos": "<eos>", "pad": "<pad>", "mask": "<mask>"},
            "diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma "
            "shieldgemma2 t5gemma zaya",
        ),
    }
)
_PADS_ON_THE_LEFT: Final = (
    "CodeLlamaTokenizer",
    "CohereTokenizer",
    "GemmaTokenizer",
    "LlamaTokenizer",
)
# Qwen's reads no vocab.json, and gives no ids at all without a tokenizer.json.
_NEED_A_FILE: Final = ("Qwen3_5Tokenizer", "WhisperTokenizer")
# Without `Fast`: the release reads the file.
_AS_IN_FILE: Final = frozenset({_GENERIC, "PreTrainedTokenizer", "BloomTokenizer"})

# For these models transformers reads tokenizer.json as it is, whatever class the folder names.
_GENERIC_MODELS: Final = """
    arctic aria chatlm ernie4_5 ernie4_5_moe flex_olmo glm glm4 glm4_moe glm4_moe_lite glm4v
    glm4v_moe glm_image glmasr got_ocr2 gpt_bigcode granite granitemoe granitemoehybrid
    granitemoeshared h2ovl_chat hyperclovax hyperclovax_vlm internlm2 internlm3 iquestcoder jamba
    kimi_k25 kimi_linear llava llava_next mimo_v2_flash minicpm3 minicpmv minicpmv4_6 minicpmv4_7
    minimax_m2 ministral ministral3 mistral mistral3 mistral_large4 mixtral modernbert
    modernbert-decoder molmo molmo2 nemotron nvfp4 olmo2 olmo3 olmo_hybrid opencua phi3 phi3_v
    phimoe pixtral smolvlm stablelm step3_vl vipllava voxtral voxtral_realtime
"""
# Only if the folder names no class.
_GENERIC_WITHOUT_CLASS: Final = """
    arcee bitnet blt code_llama deepseek_v2 deepseek_v3 diffllama exaone4 falcon gpt_oss helium
    jetmoe llama llama4 llama4_text minimax smollm3 zamba zamba2
"""
# For these models transformers takes this class, whatever class the folder names.
_FORCED: Final = MappingProxyType(
    {
        "qwen2": "Qwen2Tokenizer",
        "hyperclovax_vision_v2": "GPT2Tokenizer",
        "qwen3_5": "Qwen3_5Tokenizer",
        "qwen3_5_moe": "Qwen3_5Tokenizer",
        "qwen3_5_moe_text": "Qwen3_5Tokenizer",
        "qwen4_exp": "Qwen3_5Tokenizer",
        "siglip2": "Siglip2Tokenizer",
    }
)


def _class_in_4(files: FolderTables) -> str:
    named, model_type = _names_of_class(files)
    if named is None and not model_type:
        raise NotReadError("it finds no class for the folder")
    if named is None:
        found = (kind for kind, of in _CLASSES_IN_4.items() if model_type in of.models.split())
        kind = next(found, "")
    else:
        kind = named.removesuffix("Fast")
    if kind in _NOT_IN_4:
        raise NotReadError(f"it has no class {kind}")
    return _known(kind, model_type, _CLASSES_IN_4)


def _class_in_5(files: FolderTables) -> str:
    named, model_type = _names_of_class(files)
    if model_type in _GENERIC_MODELS.split():
        return _GENERIC
    if model_type in _FORCED:
        kind = _FORCED[model_type]
    elif named is not None:
        kind = named.removesuffix("Fast")
    else:
        found = (kind for kind, of in _CLASSES_IN_5.items() if model_type in of.models.split())
        is_generic = not model_type or model_type in _GENERIC_WITHOUT_CLASS.split()
        kind = next(found, _GENERIC if is_generic else "")
    if kind in _AS_IN_FILE or (kind == "LlamaTokenizer" and files.names_byte_level):
        return _GENERIC
    return _known(kind, model_type, _CLASSES_IN_5)


def _names_of_class(files: FolderTables) -> tuple[str | None, str]:
    """The class and the model that the folder names."""
    code = files.config.get("auto_map")
    if isinstance(code, list) or (isinstance(code, dict) and code.get("AutoTokenizer")):
        raise UnknownIdsError(
            f"{CONFIG}: auto_map names code of the folder as its tokenizer; this service runs no "
            f"code of a model"
        )
    named = files.config.get("tokenizer_class") or files.model.get("tokenizer_class")
    model_type = files.model.get("model_type") or ""
    if not isinstance(named, str | None) or not isinstance(model_type, str):
        raise FormatError(f"{CONFIG}: tokenizer_class, or model_type in config.json, is no text")
    return named, model_type


def _known(kind: str, model_type: str, classes: Mapping[str, object]) -> str:
    if kind not in classes:
        what = f"tokenizer_class {kind!r:.60}" if kind else f"model_type {model_type!r:.60}"
        raise UnknownIdsError(f"{CONFIG}: it is not known what {what} does with {TOKENIZER}")
    return kind


def _table_in_4(files: FolderTables) -> dict[str, Any]:
    kind = _class_in_4(files)
    rule = _CLASSES_IN_4[kind]
    if not files.has_file:
        raise UnknownIdsError(f"without a {TOKENIZER} the ids of this release are not known")
    config, declared, known = _declared(files, is_4=True)
    table = {**files.table, "pre_tokenizer": copy.deepcopy(files.table.get("pre_tokenizer"))}
    if kind == "CodeGenTokenizer" and config.get("add_bos_token"):
        raise NotReadError("it refuses add_bos_token of CodeGenTokenizer")
    if kind == "CLIPTokenizer" and kind_of(table["pre_tokenizer"]) != "Sequence":
        raise NotReadError(f"it refuses the pre_tokenizer of {TOKENIZER} for CLIPTokenizer")
    _set_space_in_4(table["pre_tokenizer"], kind, config, files.has_tokenizer_model)
    named = _named_of(files, config, known, {f"{n}_token": v for n, v in rule.named.items()})
    extra = list(_listed(config, "additional_special_tokens"))
    if kind == "CodeLlamaTokenizer":
        extra += [_value(config.get(n, text), n) for n, text in _CODE_LLAMA_NAMES.items()]
    own = config.get("extra_special_tokens", {})
    if not isinstance(own, dict):
        raise NotReadError("it takes extra_special_tokens as names with tokens, and this is a list")
    extra += [_value(value, name) for name, value in own.items()]
    specials = [*named.values(), *extra]
    added = added_tokens_of(files.table)
    adds: list[Token | str] = list(declared)
    contents = {_content(token) for token in (*added, *adds)}
    seen: set[str] = set()
    for value in specials:
        is_there = value in contents if isinstance(value, str) else value in adds
        if _content(value) not in seen and not is_there:
            adds.append(value)
        seen.add(_content(value))
    by_content = {token["content"]: token for token in added}
    batch = [_as_special(value, seen) for value in adds]
    first = {token["content"]: token for token in reversed(batch)}
    for token in batch:
        # Of two in one batch its library keeps the first, unless that one was there before.
        known = by_content.get(token["content"], token)
        if first[token["content"]] != token or known["normalized"] != token["normalized"]:
            raise UnknownIdsError(
                f"the folder describes the token {token['content']!r:.60} twice, with other flags"
            )
    added = _with_added(added, batch)
    if rule.adds_by_default is not None:
        around: list[list[str]] = []
        for name, default in zip(("bos_token", "eos_token"), rule.adds_by_default, strict=True):
            is_put = bool(config.get(f"add_{name}", default))
            if is_put and name not in named:
                raise NotReadError(f"it refuses add_{name} without {name}")
            around.append([_content(named[name])] if is_put else [])
        return _finished(table, added, around)
    return _finished(table, added)


def _set_space_in_4(
    pre_tokenizer: object, kind: str, config: Mapping[str, Any], has_tokenizer_model: bool
) -> None:
    """Set `add_prefix_space` as the class does: in a ByteLevel outside a Sequence, of two classes
    also in one."""
    space = config.get("add_prefix_space", None if kind == "LlamaTokenizer" else False)
    if kind == "LlamaTokenizer" and space is not None:
        if not has_tokenizer_model:
            raise NotReadError(f"{CONFIG}: add_prefix_space is set, so it needs a tokenizer.model")
        raise UnknownIdsError(
            f"{CONFIG}: add_prefix_space is set, so it converts tokenizer.model in place of "
            f"{TOKENIZER}"
        )
    steps = [pre_tokenizer]
    if kind_of(pre_tokenizer) == "Sequence":
        is_nested = space is True and kind in ("CohereTokenizer", "BloomTokenizer")
        steps = steps_of(pre_tokenizer, "pretokenizers") if is_nested else []
    for step in steps:
        if isinstance(step, dict) and isinstance(space, bool) and kind_of(step) == "ByteLevel":
            step["add_prefix_space"] = space


def _table_in_5(files: FolderTables) -> dict[str, Any]:
    kind = _class_in_5(files)
    rule = _CLASSES_IN_5.get(kind)
    is_null = files.config.get("add_prefix_space", False) is None
    if is_null and rule and rule.pattern and not kind.startswith(("Qwen", "CLIP")):
        raise NotReadError(f"it refuses add_prefix_space: null of {kind}")
    if not files.has_file:
        built = [k for k, of in _CLASSES_IN_5.items() if of.pattern and k not in _NEED_A_FILE]
        if kind not in built:
            raise UnknownIdsError(
                f"the folder has no {TOKENIZER}, and its class, {kind}, is none that builds one of "
                f"vocab.json and merges.txt ({', '.join(built)}); name such a class in {CONFIG}, "
                f"or give the two files (vocab.json,merges.txt; Tokenizer.from_files)"
            )
        is_put = any(files.config.get(f"add_{name}_token") for name in ("bos", "eos"))
        if is_put and any(_CLASSES_IN_5[kind].around or ()):
            raise UnknownIdsError(
                f"{CONFIG}: it is not known what {kind} does with add_bos_token and add_eos_token "
                f"without a {TOKENIZER}; write one with transformers (save_pretrained)"
            )
    config, declared, known = _declared(files, is_4=False)
    named = _named_of(files, config, known, rule.defaults if rule else {})
    own: dict[str, Token | str] = dict(rule.own) if rule else {}
    for is_text in (False, True):
        own |= {
            name: _value(value, name)
            for name, value in config.items()
            if name.endswith("_token") and name not in NAMED
            if isinstance(value, str) == is_text and isinstance(value, str | dict)
        }
    own |= {name: _value(value, name) for name, value in _by_name(config).items()}
    is_listed = "extra_special_tokens" in config
    extra = list(_listed(config, f"{'extra' if is_listed else 'additional'}_special_tokens"))
    if rule and not is_listed:
        extra += rule.own.values()
    specials = [*named.values(), *own.values()]
    added = [] if rule else added_tokens_of(files.table)
    adds: list[Token | str] = list(declared)
    contents = {_content(token) for token in (*added, *adds)}
    for value in (*specials, *extra):
        if _content(value) not in contents and value not in adds:
            adds.append(value)
    of_names = set(map(_content, specials))
    added = _with_added(added, [_as_special(value, of_names) for value in adds])
    if rule is None:
        return _finished(dict(files.table), added)
    for value in (*specials, *extra) if rule.adds_again else ():
        is_plain = rule.adds_again == "plain" or isinstance(value, str)
        again = _as_special(_content(value) if is_plain else value, {_content(value)})
        added = _with_added(added, [again])
    contents_of = {name: _content(value) for name, value in named.items()}
    table = {**files.table, **_parts_in_5(kind, rule, files.table, config, contents_of)}
    if not files.has_file:
        put = [
            [contents_of[name]] if config.get(f"add_{name}") and name in contents_of else []
            for name in ("bos_token", "eos_token")
        ]
        if any(put):
            return _finished(table, added, put)
    if rule.around is None:
        return _finished(table, added)
    if kind == "WhisperTokenizer" and any(map(config.get, _PROMPT_SETTINGS)):
        raise UnknownIdsError(
            f"{CONFIG}: {' or '.join(_PROMPT_SETTINGS)} changes what {kind} puts before a text and "
            f"is not supported"
        )
    around = [[contents_of.get(name, name) for name in names] for names in rule.around]
    return _finished(table, added, around, rule.pairs)


def _parts_in_5(
    kind: str,
    rule: _ClassIn5,
    table: Mapping[str, Any],
    config: Mapping[str, Any],
    named: Mapping[str, str],
) -> dict[str, Any]:
    """The parts of the tokenizer that the class sets."""
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": rule.word_suffix,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": table["model"]["vocab"],
        "merges": table["model"]["merges"],
    }
    if kind in ("CLIPTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"):
        model["unk_token"] = named.get("unk_token")
    parts = {"normalizer": rule.normalizer, "model": model}
    space = config.get("add_prefix_space")
    if rule.pattern is not None:
        pre_tokenizer = render_pattern(rule.pattern)
        steps = steps_of(pre_tokenizer, "pretokenizers")
        if space and kind != "CLIPTokenizer" and isinstance(steps[-1], dict):
            steps[-1]["add_prefix_space"] = True
        return {**parts, "pre_tokenizer": pre_tokenizer, "decoder": render_byte_level()}
    model |= {"fuse_unk": True, "byte_fallback": True}
    is_put = kind != "GemmaTokenizer" and space is not False
    scheme = "first" if kind == "CodeLlamaTokenizer" or not config.get("legacy") else "always"
    after = [*OF_CHARACTERS, STRIP] if is_put or kind == "CodeLlamaTokenizer" else OF_CHARACTERS
    pre_tokenizer = render_metaspace(scheme if is_put else "never")
    return {
        **parts,
        "pre_tokenizer": AT_SPACES if kind == "GemmaTokenizer" else pre_tokenizer,
        "decoder": {"type": "Sequence", "decoders": after},
    }


# What both share ----------------------------------------------------------------------------------


def _declared(
    files: FolderTables, *, is_4: bool
) -> tuple[dict[str, Any], list[Token], dict[str, Token]]:
    """The configuration with `special_tokens_map.json`, the declared tokens in the order of their
    ids, and those that give a named token of their content its flags."""
    config = dict(files.config)
    extra = "additional_special_tokens" if is_4 else "extra_special_tokens"
    if not is_4:
        if not config.get(extra) and "additional_special_tokens" in config:
            config[extra] = config.pop("additional_special_tokens")
        _name_extra(config)
    if "added_tokens_decoder" in config:
        declared = tokens_of_decoder(config["added_tokens_decoder"])
        known = {token["content"]: token for token in declared.values()}
        if len(known) < len(declared):
            raise UnknownIdsError(f"{CONFIG}: added_tokens_decoder has a token twice")
        return config, [declared[id_] for id_ in sorted(declared)], known
    for key, value in files.special_tokens.items():
        if isinstance(value, dict) and key != "extra_special_tokens":
            value = _as_token({**value, "special": True})
        elif key == extra and isinstance(value, list):
            mine = list(_listed(config, key))
            values = [
                _as_token({**v, "special": True}) if isinstance(v, dict) else v for v in value
            ]
            value = mine + [entry for entry in values if entry not in mine]
        config[key] = value
    if not is_4:
        _name_extra(config)
    specials = {_content(_value(config[name], name)) for name in NAMED if config.get(name)}
    if isinstance(config.get(extra), list):
        specials.update(map(_content, _listed(config, extra)))
    found: dict[int, Token] = {}
    for content, id_ in files.added_tokens.items():
        if type(id_) is not int:
            raise FormatError(f"added_tokens.json: {content!r:.60} has no id")
        found[id_] = _plain(
            content, special=content in specials, normalized=content not in specials
        )
    of_file = {} if is_4 else {token["content"]: token for token in found.values()}
    listed = files.table.get("added_tokens", ())
    for token, entry in zip(added_tokens_of(files.table), listed, strict=True):
        found[entry["id"]] = of_file[token["content"]] = token
    return config, [found[id_] for id_ in sorted(found)], of_file


def _name_extra(config: dict[str, Any]) -> None:
    """Move extra special tokens that have names to their own entry, as release 5 does."""
    if isinstance(config.get("extra_special_tokens"), dict):
        named = config.pop("extra_special_tokens")
        config[_BY_NAME] = {**_by_name(config), **named}


def _by_name(config: Mapping[str, Any]) -> dict[str, Any]:
    named = config.get(_BY_NAME)
    if named is None:
        return {}
    if not isinstance(named, dict):
        raise FormatError(f"{CONFIG}: {_BY_NAME} is no object")
    return named


def config_defaults(files: FolderTables) -> dict[str, str]:
    """What release 5 takes where the configuration says nothing: the named tokens of the class, and
    the side that it pads on."""
    with contextlib.suppress(UnknownIdsError):
        kind = _class_in_5(files)
        rule = _CLASSES_IN_5.get(kind)
        defaults = _with_padding(files, rule.defaults if rule else {})
        if kind in _PADS_ON_THE_LEFT and not files.table.get("padding"):  # which has a side
            defaults["padding_side"] = "left"
        return {name: content for name, content in defaults.items() if content is not None}
    return {}


def _with_padding(files: FolderTables, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A padding of `tokenizer.json` names a pad token unless the class does."""
    return {"pad_token": (files.table.get("padding") or {}).get("pad_token"), **defaults}


def token_content(value: object, where: str = "extra_special_tokens") -> str:
    """The content of a token that the configuration names."""
    return _content(_value(value, where))


def tokens_of_decoder(value: object) -> dict[int, Token]:
    """The tokens of `added_tokens_decoder` by id."""
    if not isinstance(value, dict):
        raise FormatError(f"{CONFIG}: added_tokens_decoder is no object")
    declared = {}
    for id_, token in value.items():
        if (
            not re.fullmatch("[0-9]{1,9}", id_)
            or not isinstance(token, dict)
            or "content" not in token
        ):
            raise FormatError(f"{CONFIG}: added_tokens_decoder has {id_!r:.60}, no id with a token")
        declared[int(id_)] = _as_token(token)
    return declared


def _named_of(
    files: FolderTables,
    config: Mapping[str, Any],
    known: Mapping[str, Token],
    defaults: Mapping[str, Any],
) -> dict[str, Token | str]:
    """Name -> token, of `NAMED` that have one."""
    defaults = _with_padding(files, defaults)
    named: dict[str, Token | str] = {}
    for name in NAMED:
        default = defaults.get(name)
        value = None if name in config else default
        if config.get(name) is not None:
            value = _value(config[name], name)
            value = known.get(_content(value), value)
            if isinstance(value, str) and isinstance(default, dict):
                value = {**default, "content": value}
        if value is not None and _content(value):
            named[name] = value
    return named


def _value(value: object, where: str) -> Token | str:
    """A token that the configuration names: a text, or an object with its flags."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise FormatError(f"{CONFIG}: {where} is {value!a:.60}, no token")
    return _as_token(value)


def _listed(config: Mapping[str, Any], name: str) -> Iterator[Token | str]:
    values = config.get(name) or []
    if not isinstance(values, list):
        raise FormatError(f"{CONFIG}: {name} is no list")
    for value in values:
        yield _value(value, name)


def _as_token(table: Mapping[str, Any]) -> Token:
    if not isinstance(table.get("content"), str):
        raise FormatError(f"a special token is {table!a:.60}, which has no content")
    special = bool(table.get("special"))
    flags = {flag: bool(table.get(flag)) for flag in FLAGS}
    flags["normalized"] = bool(table.get("normalized", not special))
    return {"content": table["content"], **flags}


def _as_special(value: Token | str, specials: set[str]) -> Token:
    if isinstance(value, str):
        return _plain(value)
    return {**value, "special": value["special"] or value["content"] in specials}


def _content(value: Token | str) -> str:
    return value if isinstance(value, str) else str(value["content"])


def added_tokens_of(table: Mapping[str, Any]) -> list[Token]:
    """The added tokens of `tokenizer.json`, without ids."""
    return [_as_token(token) for token in table.get("added_tokens") or ()]


def _with_added(added: list[Token], tokens: list[Token]) -> list[Token]:
    """Add tokens as `tokenizers` does: one with a known content only changes its flags, and stays
    special."""
    known: dict[str, Token] = {}
    for token in (*added, *tokens):
        before = known.get(token["content"], token)
        known[token["content"]] = {**token, "special": token["special"] or before["special"]}
    return list(known.values())


def _finished(
    table: dict[str, Any],
    added: list[Token],
    around: list[list[str]] | None = None,
    pairs: Pairs = "each",
) -> dict[str, Any]:
    """The table with these added tokens, and with a post-processor that puts `around` a text."""
    vocab = table["model"]["vocab"]
    contents = [token["content"] for token in added]
    ids = dict(zip(contents, assign_added_ids(vocab, contents), strict=True))
    table["added_tokens"] = [{"id": ids[token["content"]], **token} for token in added]
    if around is None:
        return table
    before, after = around
    for content in (*before, *after):
        if content not in ids and content not in vocab:
            raise UnknownIdsError(f"it puts {content!r:.60} around a text, which is no token")
        ids[content] = ids[content] if content in ids else vocab[content]
    table["post_processor"] = render_template(before, after, ids, pairs)
    return table
