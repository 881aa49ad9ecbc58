"""A model folder of Hugging Face, read and written for the ids of `transformers.AutoTokenizer`.

`tokenizer.json` defines the tokenizer; without it, the class of the folder builds one of
`vocab.json` and `merges.txt`. A folder with neither may have a `tekken.json` or SentencePiece's
`tokenizer.model`, which then defines the tokenizer. If a folder has a `tokenizer.json` too, that
counts, and its ids are compared with those of the `tokenizer.model`. Other files of the folder can
change ids in three ways:

- They declare tokens that `tokenizer.json` lacks. `transformers` adds those, and so does this
  module.
- They name a class. For some classes `transformers` 5 ignores the split pattern and the normalizer
  of `tokenizer.json` and builds its own (`_REBUILT`). `transformers` 4 does not, so a folder in
  which the two differ is refused.
- They contain settings (`add_prefix_space`, `add_bos_token`, code to import) which some versions
  follow and others ignore. They are refused by name if they disagree with `tokenizer.json`.

The rules come from the sources of `transformers` 5.24 (`tokenization_auto.py`,
`tokenization_utils_base.py`, `tokenization_utils_tokenizers.py`). Chat templates change no ids;
`chat_template_files` reads them.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.blobs.atomic_files import check_size, read_whole_file, write_whole_file
from tokenizer_core.engines import create_engine
from tokenizer_core.errors import FormatError, TokenizerCoreError
from tokenizer_core.formats.chat_template_files import (
    CHAT_FILE_NAMES,
    CONFIG_FIELD,
    read_chat_templates,
    template_field,
)
from tokenizer_core.formats.gpt2_files import load_merges_txt, render_token
from tokenizer_core.formats.sentencepiece_file import is_sentencepiece, load_sentencepiece
from tokenizer_core.formats.tekken_file import load_tekken
from tokenizer_core.formats.tokenizer_json.added_tokens import assign_added_ids, render_added_tokens
from tokenizer_core.formats.tokenizer_json.document import (
    MAX_FILE_BYTES,
    parse_tokenizer_document,
    parse_tokenizer_table,
    render_tokenizer_json,
)
from tokenizer_core.formats.tokenizer_json.fields import render_byte_level
from tokenizer_core.formats.tokenizer_json.pre_tokenizer import render_pattern
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.spec.alphabet import MissingBytes
from tokenizer_core.spec.chat_templates import MAX_MODEL_LENGTH, SIDES
from tokenizer_core.spec.document_end import find_eos_token
from tokenizer_core.specials.matchers import matcher_of_spec
from tokenizer_core.specials.parts import normalized_parts
from tokenizer_core.splitting.patterns import (
    CLIP,
    DIGITS_THEN_GPT2,
    PATTERNS,
    PUBLISHED,
    SplitPattern,
)
from tokenizer_core.strict_json import parse_strict_json

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from tokenizer_core.spec import TokenizerSpec

TOKENIZER: Final = "tokenizer.json"
CONFIG: Final = "tokenizer_config.json"
SPECIAL_TOKENS: Final = "special_tokens_map.json"
ADDED_TOKENS: Final = "added_tokens.json"
MODEL_CONFIG: Final = "config.json"
GENERATION_CONFIG: Final = "generation_config.json"
VOCAB, MERGES, TEKKEN = "vocab.json", "merges.txt", "tekken.json"
SENTENCEPIECE: Final = "tokenizer.model"
FILE_NAMES: Final = (
    *(TOKENIZER, CONFIG, SPECIAL_TOKENS, ADDED_TOKENS, MODEL_CONFIG, GENERATION_CONFIG),
    *(VOCAB, MERGES, TEKKEN, SENTENCEPIECE, *CHAT_FILE_NAMES),
)
"""The files that are read, as patterns."""

WRITTEN: Final = (TOKENIZER, CONFIG, SPECIAL_TOKENS)
"""The files that `save_model_folder` writes."""

_NAMED: Final = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_RANKS: Final = ("tiktoken.model", SENTENCEPIECE)
_FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")
_END: Final = "<|endoftext|>"


class _DisputedIdsError(FormatError):
    """Releases of `transformers` read a folder differently, or it is not known how."""


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    """What a class sets itself.

    - `pattern` (None: that of its merges), `normalizer`, `steps`, `word_suffix`: as in a spec.
    - `contents`: the named tokens that have a default, without `_token`, and their content.
    - `models`: those of the class, for a folder that names none.
    - `ends`: the tokens that its post-processor puts before and after a text, by name or content.
    """

    pattern: SplitPattern | None
    normalizer: str
    contents: Mapping[str, str]
    models: str = ""
    drops_post_processor: bool = False
    makes_named_special: bool = False
    steps: tuple[NormalizerStep, ...] = ()
    word_suffix: bytes = b""
    ends: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    @property
    def named(self) -> dict[str, str]:
        """Name -> content of the named tokens that have a default."""
        pairs = self.contents.items()
        return {f"{name}_token": text for names, text in pairs for name in names.split()}


_GPT2: Final = PATTERNS["gpt2"]
_ROBERTA: Final = _Rebuilt(
    _GPT2,
    "none",
    {
        "bos": "<s>",
        "eos sep": "</s>",
        "cls": "<s>",
        "unk": "<unk>",
        "pad": "<pad>",
        "mask": "<mask>",
    },
    "bart roberta roberta-prelayernorm",
    ends=(("cls_token",), ("sep_token",)),
)
_REBUILT: Final = MappingProxyType(
    {
        "GPT2Tokenizer": _Rebuilt(
            _GPT2,
            "none",
            {"unk bos eos": _END},
            "codegen dbrx gpt2 gpt_neo gptj jais2 opt phi starcoder2",
        ),
        "RobertaTokenizer": _ROBERTA,
        "BartTokenizer": _ROBERTA,
        "CLIPTokenizer": _Rebuilt(
            CLIP,
            "steps",
            {"unk": _END, "bos": "<|startoftext|>", "eos pad": _END},
            "clip clipseg xclip",
            steps=(
                NormalizerStep("NFC"),
                NormalizerStep("Replace", r"\s+", is_regex=True, content=" "),
                NormalizerStep("Lowercase"),
            ),
            word_suffix=b"</w>",
            ends=(("bos_token",), ("eos_token",)),
        ),
        "CodeGenTokenizer": _Rebuilt(
            _GPT2, "none", {"unk bos eos": _END}, drops_post_processor=True
        ),
        "WhisperTokenizer": _Rebuilt(
            _GPT2,
            "none",
            {"unk bos eos": _END},
            "whisper",
            ends=(("<|startoftranscript|>", "<|notimestamps|>"), ("eos_token",)),
        ),
        "GemmaTokenizer": _Rebuilt(
            None,
            "metaspace",
            {"unk": "<unk>", "bos": "<bos>", "eos": "<eos>", "pad": "<pad>", "mask": "<mask>"},
            "diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma "
            "shieldgemma2 t5gemma zaya",
        ),
        "GPTNeoXTokenizer": _Rebuilt(
            _GPT2,
            "nfc",
            {"unk bos eos": _END, "pad": "<|padding|>"},
            "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm",
            drops_post_processor=True,
        ),
        "Qwen2Tokenizer": _Rebuilt(
            PATTERNS["qwen2"],
            "nfc",
            {"unk eos pad": _END},
            "qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_next "
            "qwen3_omni_moe qwen3_vl qwen3_vl_moe",
            makes_named_special=True,
        ),
        "Qwen3_5Tokenizer": _Rebuilt(
            PUBLISHED["qwen3_5"], "nfc", {"unk eos pad": _END}, "qwen3_5_text"
        ),
        "CohereTokenizer": _Rebuilt(
            DIGITS_THEN_GPT2[True],
            "nfc",
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
        ),
    }
)

# What they put around a text, or their model, is in no vocab.json and merges.txt.
_OF_ONE_FILE: Final = frozenset({"WhisperTokenizer", "GemmaTokenizer"})
_PROMPT_SETTINGS: Final = ("language", "task", "predict_timestamps")
_GENERIC: Final = "TokenizersBackend"
# Without `Fast`. LlamaTokenizer: transformers 5 reads a byte-level file of this class as it is.
_AS_IN_FILE: Final = frozenset(
    {_GENERIC, "PreTrainedTokenizer", "LlamaTokenizer", "BloomTokenizer"}
)

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


def load_model_folder(folder: str | os.PathLike[str], *, file_ids: bool = False) -> TokenizerSpec:
    """The spec of a folder with a `tokenizer.json`, or `vocab.json` and `merges.txt`, and the files
    that belong to it. A folder with neither may have a `tekken.json` or a `tokenizer.model`, read
    as that file. A `tokenizer.model` beside a `tokenizer.json` that gives other ids is a
    UserWarning with the first text.

    With `file_ids`, `tokenizer.json` alone defines the ids, and the other files only the chat
    templates and the tokens that these name. No folder is then refused for what versions of
    `transformers` make of it.

    Raises:
        FormatError: none of these; a file is malformed; a setting is not supported, or
            versions of `transformers` give different ids (the setting is named).
        InvalidSpecError: vocabulary, merges and tokens do not form a tokenizer.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    if not _has_hugging_face_files(folder) and has_vocabulary(folder):
        config = _read_table(folder, CONFIG)
        config |= _special_tokens_of_file(folder, config)
        if (folder / TEKKEN).is_file():
            return _with_chat(load_tekken(folder / TEKKEN), folder, config)
        return _load_sentencepiece_of(folder, config)
    has_file = (folder / TOKENIZER).is_file()
    if file_ids:
        if not has_file:
            raise FormatError(
                f"the folder {folder} has no {TOKENIZER} whose ids could be meant; leave file_ids "
                f"(--file-ids) out"
            )
        spec = _load_file_of(folder)
        _name_difference(spec, folder)
        return spec
    try:
        spec = _load_as_transformers(folder, has_file=has_file)
    except _DisputedIdsError as error:
        if not has_file:
            raise
        way_on = f"; {SENTENCEPIECE} beside it, imported as a file, gives those of SentencePiece"
        raise FormatError(
            f"{error}; with file_ids=True (tokenizer import --file-ids) the folder gives the ids "
            f"of its {TOKENIZER} alone{way_on if _has_sentencepiece(folder) else ''}"
        ) from None
    if has_file:
        _name_difference(spec, folder)
    return spec


def _load_sentencepiece_of(folder: Path, config: dict[str, Any]) -> TokenizerSpec:
    """The spec of the folder's `tokenizer.model`, which must have all tokens that it declares, with
    the ids that `add_bos_token` and `add_eos_token` put around a text."""
    spec = load_sentencepiece(folder / SENTENCEPIECE)
    ids = spec.added_ids
    has_decoder = "added_tokens_decoder" in config
    added_file = {} if has_decoder else _read_table(folder, ADDED_TOKENS)
    named = list(_special_tokens_of(config))
    for token in (*_declared_tokens(config, added_file, named), *named):
        content = token["content"]
        if content not in ids or token.get("id", ids[content]) != ids[content]:
            raise FormatError(
                f"{folder.name} declares the token {content!r:.60}, and {SENTENCEPIECE} has no "
                f"such special token, or with another id; save a {TOKENIZER} with it, or import "
                f"{SENTENCEPIECE} as a file for its ids alone"
            )
    config = {**(spec.chat.variables or {}), **config}
    variables = _template_variables(config)
    around: list[tuple[int, ...]] = []
    for name in ("bos", "eos"):
        is_added = config.get(f"add_{name}_token") is True
        if is_added and f"{name}_token" not in variables:
            raise FormatError(
                f"{CONFIG}: add_{name}_token is true, and no {name}_token is named; name one"
            )
        around.append((ids[variables[f"{name}_token"]],) if is_added else ())
    return _with_chat(replace(spec, prefix_ids=around[0], suffix_ids=around[1]), folder, config)


def _name_difference(spec: TokenizerSpec, folder: Path) -> None:
    """Warn if a `tokenizer.model` in the folder gives other ids than `spec`: for each of its pieces
    as a text, and for spaces."""
    try:
        other = load_sentencepiece(folder / SENTENCEPIECE) if _has_sentencepiece(folder) else spec
    except TokenizerCoreError:
        return  # of other files no ids are known
    learned = other.token_to_id.keys() - {bytes([byte]) for byte in range(0x80, 0x100)}
    texts = ["a  b", " a", "a ", "a", *map(bytes.decode, sorted(learned))] if other != spec else []
    for text, mine, theirs in zip(texts, _ids_of(spec, texts), _ids_of(other, texts), strict=True):
        if mine != theirs:
            warnings.warn(
                f"{TOKENIZER} of the folder {folder.name} gives {text!a:.60} the ids "
                f"{mine!s:.80}, and {SENTENCEPIECE} beside it {theirs!s:.80}; {TOKENIZER} counts. "
                f"For the ids of SentencePiece import {SENTENCEPIECE} as a file",
                stacklevel=4,
            )
            return


def _ids_of(spec: TokenizerSpec, texts: list[str]) -> Iterator[list[int]]:
    engine = create_engine(spec, "auto")
    matcher = matcher_of_spec(
        spec, {token.content for token in spec.added_tokens if not token.special}
    )
    for text in texts:
        found: list[int] = []
        for plain, token in normalized_parts(spec, matcher, text):
            found += engine.encode(plain)
            found += [] if token is None else [spec.added_ids[token]]
        yield found


def _load_file_of(folder: Path) -> TokenizerSpec:
    """The spec of the file `tokenizer.json`, with the chat templates of its folder, and the tokens
    that `transformers` passes to them."""
    spec = parse_tokenizer_table(_read_table(folder, TOKENIZER))
    config = _read_table(folder, CONFIG)
    if "added_tokens_decoder" not in config:
        config |= _read_table(folder, SPECIAL_TOKENS)
    with contextlib.suppress(_DisputedIdsError):  # of an unknown class no defaults are known
        rebuilt = _REBUILT.get(_class_of(config, _read_table(folder, MODEL_CONFIG)))
        config = {**(rebuilt.named if rebuilt else {}), **config}
    return _with_names(spec, folder, config)


def _load_as_transformers(folder: Path, *, has_file: bool) -> TokenizerSpec:
    table = _read_table(folder, TOKENIZER) if has_file else _table_of_pair(folder)
    spec = parse_tokenizer_table(table)
    config = _read_table(folder, CONFIG)
    added_file: dict[str, Any] = {}
    if "added_tokens_decoder" not in config:
        config |= _special_tokens_of_file(folder, config)
        # A token of tokenizer.json replaces the one with its id in this file.
        ids = {token.id for token in spec.added_tokens}
        added_file = {c: i for c, i in _read_table(folder, ADDED_TOKENS).items() if i not in ids}
    kind = _class_of(config, _read_table(folder, MODEL_CONFIG))
    rebuilt = _REBUILT.get(kind)
    if spec.alphabet.has_characters and kind == "LlamaTokenizer":
        rebuilt = _llama(config)
    _refuse_settings(config)
    _check_prefix_space(config, table, spec, rebuilt)
    if rebuilt is not None:
        _check_rebuilt(spec, kind, rebuilt, config)
        config = {**rebuilt.named, **config}
    named = list(_special_tokens_of(config))
    listed: list[dict[str, Any]] = table.get("added_tokens", [])
    extra = _missing_tokens(listed, _declared_tokens(config, added_file, named), named)
    if rebuilt is not None:
        _check_rebuilt_tokens(kind, rebuilt, config, [*listed, *extra], named)
    if extra:
        contents = [token["content"] for token in (*listed, *extra)]
        wanted = assign_added_ids(table["model"]["vocab"], contents)[len(listed) :]
        for token, id_ in zip(extra, wanted, strict=True):
            if token.setdefault("id", id_) != id_:
                raise _DisputedIdsError(
                    f"{folder.name} declares the token {token['content']!r:.60} with id "
                    f"{token['id']}, but Hugging Face's tokenizers gives it {id_}; put the token "
                    f"into {TOKENIZER}"
                )
        spec = parse_tokenizer_table({**table, "added_tokens": [*listed, *extra]})
    _check_added_ends(config, spec)
    ends = rebuilt and rebuilt.ends
    if kind == "GemmaTokenizer":
        # transformers 4 puts tokens around a text by these settings, and 5 those of the file.
        ends = (
            ("bos_token",) if config.get("add_bos_token", True) else (),
            ("eos_token",) if config.get("add_eos_token", False) else (),
        )
    if ends:
        _check_ends(config, spec, kind, ends)
    return _with_names(spec, folder, config)


def _llama(config: Mapping[str, Any]) -> _Rebuilt:
    """What LlamaTokenizer sets of a vocabulary of characters. Without `legacy`, transformers 5
    takes it as false, and 4 as true (`_check_prefix_space`)."""
    rule = "metaspace-always" if config.get("legacy") else "metaspace-first"
    # transformers 4 would convert the SentencePiece model again for `add_prefix_space: false`.
    rule = "" if config.get("add_prefix_space") is False else rule
    return _Rebuilt(None, rule, {"unk": "<unk>", "bos": "<s>", "eos": "</s>"})


def _with_names(spec: TokenizerSpec, folder: Path, config: Mapping[str, Any]) -> TokenizerSpec:
    """The spec with the folder's chat templates. The tokens that these can name are special, also
    where `tokenizer.json` calls them content: transformers 5 decodes so, and finds the same ids."""
    variables = _template_variables(config)
    named = set(variables.values())
    added = [
        replace(token, special=token.special or token.content in named)
        for token in spec.added_tokens
    ]
    if added != list(spec.added_tokens):
        spec = replace(spec, added_tokens=tuple(added))
    return _with_chat(spec, folder, config)


def _with_chat(spec: TokenizerSpec, folder: Path, config: Mapping[str, Any]) -> TokenizerSpec:
    """The spec with what the folder declares: chat templates, the stop tokens and control tokens
    that are added tokens, the side that is cut, and the length of the model, unless it stands for
    none."""
    chat = read_chat_templates(folder, config, _template_variables(config))
    ids = _read_table(folder, GENERATION_CONFIG).get("eos_token_id")
    stops = ids if isinstance(ids, list) else [ids]
    controls = config.get("chat_control_tokens")
    controls = controls if isinstance(controls, list) else []
    length = config.get("model_max_length")
    if type(length) is not int or not 0 < length <= MAX_MODEL_LENGTH:
        length = None
    side = config.get("truncation_side")
    if side not in (None, *SIDES):
        raise FormatError(
            f"truncation_side in {folder / CONFIG} must be left or right; transformers refuses "
            f"the folder too"
        )
    return spec.with_chat(
        replace(
            chat,
            stop_tokens=tuple(token.content for token in spec.added_tokens if token.id in stops),
            control_tokens=tuple(t.content for t in spec.added_tokens if t.content in controls),
            model_max_length=length,
            truncation_side=side,
        )
    )


def save_model_folder(
    spec: TokenizerSpec,
    tokenizer_json: str | os.PathLike[str],
    config_json: str | os.PathLike[str],
    special_tokens_json: str | os.PathLike[str],
) -> None:
    """Write the files of WRITTEN, which `AutoTokenizer` of transformers 4 and 5 reads as they are.
    The chat templates are in the second.

    Raises:
        FormatError: as `save_tokenizer_json`.
        OSError: a file cannot be written.
    """
    rendered = render_tokenizer_json(spec)
    check_size(rendered, MAX_FILE_BYTES, "the tokenizer.json")
    listed = render_added_tokens(spec)
    named: dict[str, Any] = {**_named_with_flags(spec, listed), **named_special_tokens(spec)}
    config: dict[str, Any] = {
        "added_tokens_decoder": {
            str(token["id"]): {name: token[name] for name in ("content", *_FLAGS)}
            for token in listed
        },
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
    }
    if spec.chat.model_max_length is not None:
        config["model_max_length"] = spec.chat.model_max_length
    if spec.chat.truncation_side is not None:
        config["truncation_side"] = spec.chat.truncation_side
    if spec.chat.sources:
        config[CONFIG_FIELD] = template_field(spec.chat.sources)
    write_whole_file(tokenizer_json, rendered)
    write_whole_file(config_json, _render(config))
    write_whole_file(special_tokens_json, _render(named))


def _render(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(table, ensure_ascii=False, indent=2) + "\n").encode()


def _named_with_flags(spec: TokenizerSpec, listed: list[dict[str, Any]]) -> dict[str, Any]:
    """The named tokens with flags (RoBERTa's `mask_token`), as transformers writes them."""
    known = {token["content"]: token for token in listed if token["special"]}
    return {
        name: {"__type": "AddedToken"} | {key: known[value][key] for key in ("content", *_FLAGS)}
        for name, value in (spec.chat.variables or {}).items()
        if value in known and name.removesuffix("_token") in _NAMED
    }


def named_special_tokens(spec: TokenizerSpec) -> dict[str, str]:
    """The tokens that transformers names (`bos_token` ...): those that the chat templates read, or
    else `bos_token`, `eos_token` and `unk_token`, if known. Only special tokens without flags:
    transformers adds a named token again, without flags.

    Example:
        >>> from tokenizer_core import TokenizerSpec
        >>> vocab = {i: bytes([i]) for i in range(256)}
        >>> named_special_tokens(TokenizerSpec.from_merges(vocab, [], ["<|endoftext|>"]))
        {'eos_token': '<|endoftext|>'}
    """
    plain = {
        token.id: token.content
        for token in reversed(spec.added_tokens)
        if token.special and not token.flags
    }
    if spec.chat.variables:
        contents = set(plain.values())
        return {name: value for name, value in spec.chat.variables.items() if value in contents}
    eos, missing = find_eos_token(spec), spec.alphabet.missing
    found = {
        "bos_token": plain.get(spec.prefix_ids[0]) if spec.prefix_ids else None,
        "eos_token": eos if eos in plain.values() else None,
        "unk_token": plain.get(missing.unk_id) if missing and missing.unk_id is not None else None,
    }
    return {name: content for name, content in found.items() if content is not None}


def _table_of_pair(folder: Path) -> dict[str, Any]:
    """What the class of a folder without `tokenizer.json` builds of `vocab.json` and `merges.txt`,
    as a `tokenizer.json`."""
    if not has_vocabulary(folder):
        raise FormatError(
            f"the folder {folder} has no {TOKENIZER}, no {VOCAB} with {MERGES}, no {TEKKEN}, and "
            f"no {SENTENCEPIECE} of SentencePiece; a folder must have one of them"
        )
    config, vocab = _read_table(folder, CONFIG), _read_table(folder, VOCAB)
    kind = _class_of(config, _read_table(folder, MODEL_CONFIG))
    rebuilt = _REBUILT.get(kind)
    if rebuilt is None or rebuilt.pattern is None or kind in _OF_ONE_FILE:
        known = ", ".join(name for name in _REBUILT if name not in _OF_ONE_FILE)
        raise FormatError(
            f"the folder {folder} has no {TOKENIZER}, and its class, {kind}, is none that builds "
            f"one of {VOCAB} and {MERGES} ({known}); name such a class in {CONFIG}, or give the "
            f"two files ({VOCAB},{MERGES}; Tokenizer.from_files)"
        )
    merges = load_merges_txt(folder / MERGES, vocab)
    pre_tokenizer = render_pattern(rebuilt.pattern)
    if pre_tokenizer["type"] == "ByteLevel" and config.get("add_prefix_space"):
        pre_tokenizer["add_prefix_space"] = True
    steps = (NormalizerStep("NFC"),) if rebuilt.normalizer == "nfc" else rebuilt.steps
    around = None
    if rebuilt.ends:
        named = {**rebuilt.named, **config}
        (first,), (last,) = (_contents(named, names) for names in rebuilt.ends)
        around = {
            "type": "BertProcessing",
            "cls": [first, vocab.get(first)],
            "sep": [last, vocab.get(last)],
        }
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [step.fields() for step in steps]},
        "pre_tokenizer": pre_tokenizer,
        "post_processor": around,
        "decoder": render_byte_level(),
        "model": {
            "type": "BPE",
            "end_of_word_suffix": rebuilt.word_suffix.decode(),
            "vocab": vocab,
            "merges": [list(map(render_token, pair)) for pair in merges],
        },
    }


def sole_rank_file(folder: str | os.PathLike[str]) -> Path | None:
    """The `.tiktoken` file (or `tiktoken.model`, or a `tokenizer.model` that is one, as Llama 3's)
    of a folder that has no other vocabulary; None where there are several or none."""
    folder = Path(folder)
    if has_vocabulary(folder):
        return None
    found = [path for path in folder.iterdir() if path.suffix == ".tiktoken"]
    found += [path for path in map(folder.joinpath, _RANKS) if path.is_file()]
    return found[0] if len(found) == 1 else None


def has_vocabulary(folder: Path) -> bool:
    """Whether the folder has a vocabulary that `load_model_folder` reads."""
    has_other = (folder / TEKKEN).is_file() or _has_sentencepiece(folder)
    return has_other or _has_hugging_face_files(folder)


def _has_sentencepiece(folder: Path) -> bool:
    path = folder / SENTENCEPIECE
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_sentencepiece(file.read(256))


def _has_hugging_face_files(folder: Path) -> bool:
    """Whether the folder has a vocabulary in a format of Hugging Face."""
    has_pair = all((folder / name).is_file() for name in (VOCAB, MERGES))
    return has_pair or (folder / TOKENIZER).is_file()


def _read_table(folder: Path, name: str) -> dict[str, Any]:
    """The object in a file of the folder; empty if there is no such file."""
    path = folder / name
    if not path.is_file():
        return {}
    parse = parse_tokenizer_document if name == TOKENIZER else parse_strict_json
    table = parse(read_whole_file(path, max_bytes=MAX_FILE_BYTES), name)
    if not isinstance(table, dict):
        raise FormatError(f"{name}: it is no object")
    return table


def _special_tokens_of_file(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `special_tokens_map.json` that go before those of the configuration."""
    found = {}
    for key, value in _read_table(folder, SPECIAL_TOKENS).items():
        if key in ("additional_special_tokens", "extra_special_tokens"):
            known = _extra_values(config)
            tokens = _extra_values({key: value})
            contents = [_token(token, key)["content"] for token in known]
            if known and [_token(token, key)["content"] for token in tokens] != contents:
                raise FormatError(
                    f"{SPECIAL_TOKENS} and {CONFIG} list different extra special tokens, and "
                    f"versions of transformers choose differently; give both the same list"
                )
            found[key] = value
        else:
            found[key] = {**value, "special": True} if isinstance(value, dict) else value
    return found


def _class_of(config: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """The class that transformers chooses, without `Fast`."""
    code = config.get("auto_map")
    if isinstance(code, list) or (isinstance(code, dict) and code.get("AutoTokenizer")):
        raise _DisputedIdsError(
            f"{CONFIG}: auto_map names code of the folder as its tokenizer; this service runs no "
            f"code of a model"
        )
    named = config.get("tokenizer_class") or model.get("tokenizer_class")
    model_type = model.get("model_type") or ""
    if not isinstance(named, str | None) or not isinstance(model_type, str):
        raise FormatError(f"{CONFIG}: tokenizer_class, or model_type in {MODEL_CONFIG}, is no text")
    if model_type in _GENERIC_MODELS.split():
        return _GENERIC
    if model_type in _FORCED:
        kind = _FORCED[model_type]
    elif named is not None:
        kind = named.removesuffix("Fast")
    else:
        found = (kind for kind, of in _REBUILT.items() if model_type in of.models.split())
        kind = next(found, "" if model_type else _GENERIC)
    if kind not in _AS_IN_FILE and kind not in _REBUILT:
        what = f"tokenizer_class {kind!r:.60}" if kind else f"model_type {model_type!r:.60}"
        raise _DisputedIdsError(
            f"{CONFIG}: it is not known what {what} of transformers does with {TOKENIZER}"
        )
    return kind


def _refuse_settings(config: Mapping[str, Any]) -> None:
    """Refuse settings that change ids in some version of transformers."""
    for name in ("split_special_tokens", "fix_mistral_regex"):
        if config.get(name):
            raise _DisputedIdsError(f"{CONFIG}: {name} changes ids and is not supported")
    if "fast_tokenizer_files" in config:
        raise FormatError(
            f"{CONFIG}: fast_tokenizer_files selects a file by the version of transformers; load "
            f"the file that you want"
        )


def _check_prefix_space(
    config: Mapping[str, Any],
    table: Mapping[str, Any],
    spec: TokenizerSpec,
    rebuilt: _Rebuilt | None,
) -> None:
    """Refuse `add_prefix_space: true` if a version of transformers would follow it where the file
    does not.

    A class that is rebuilt follows it. Of others, transformers 5 reads the file as it is;
    transformers 4 sets it in a ByteLevel outside a Sequence, and converts the SentencePiece model
    of a Llama class again, by `legacy`.
    """
    if not config.get("add_prefix_space"):
        return
    if spec.alphabet.has_characters:
        rule = "metaspace-first" if config.get("legacy") is False else "metaspace-prepend"
        named = config.get("tokenizer_class")
        is_same = not str(named).startswith("Llama") or spec.normalizer.name == rule
    else:
        is_free = rebuilt is None and table["pre_tokenizer"]["type"] == "Sequence"
        is_same = is_free or spec.normalizer.name == "prefix-space"
    if not is_same:
        raise _DisputedIdsError(
            f"{CONFIG}: add_prefix_space is true, which some versions of transformers follow, and "
            f"{TOKENIZER} does not put such a space before a text"
        )


def _check_rebuilt(
    spec: TokenizerSpec, kind: str, rebuilt: _Rebuilt, config: Mapping[str, Any]
) -> None:
    """Refuse a file from which the class would build another tokenizer."""
    normalizer, missing = rebuilt.normalizer, spec.alphabet.missing
    if normalizer == "none" and config.get("add_prefix_space"):
        normalizer = "prefix-space"
    steps = [step.fields() for step in rebuilt.steps]
    found = {
        "pre_tokenizer": rebuilt.pattern in (None, spec.pattern),
        "normalizer": spec.normalizer.name == normalizer and spec.normalizer.fields() == steps,
        "ignore_merges": not spec.ignore_merges,
        # The class leaves out missing bytes: it gives its model no unknown token.
        "model": missing == (missing and MissingBytes(missing.values))
        and spec.alphabet.word_suffix == rebuilt.word_suffix,
        "post_processor": not (
            rebuilt.drops_post_processor and (spec.prefix_ids or spec.suffix_ids)
        ),
    }
    for field, is_same in found.items():
        if not is_same:
            raise _DisputedIdsError(
                f"{TOKENIZER}: transformers 5 replaces its {field} by that of {kind}, and "
                f"transformers 4 does not, so their ids differ"
            )


def _check_ends(
    config: Mapping[str, Any],
    spec: TokenizerSpec,
    kind: str,
    ends: tuple[tuple[str, ...], tuple[str, ...]],
) -> None:
    """Refuse a post-processor that does not put the named tokens around a text."""
    first, last = (tuple(map(spec.added_ids.get, _contents(config, names))) for names in ends)
    for name in _PROMPT_SETTINGS if kind == "WhisperTokenizer" else ():
        if config.get(name):
            raise _DisputedIdsError(
                f"{CONFIG}: {name} changes what {kind} puts before a text and is not supported"
            )
    if (spec.prefix_ids, spec.suffix_ids) != (first, last):
        raise _DisputedIdsError(
            f"{TOKENIZER}: transformers 5 replaces its post_processor by that of {kind}, which "
            f"puts {' and '.join(filter(None, map(' '.join, ends)))} around a text"
        )


def _contents(config: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """The contents of tokens that are given by name, or by content if that is no name."""
    return [_token(config[name], name)["content"] if name in config else name for name in names]


def _check_rebuilt_tokens(
    kind: str,
    rebuilt: _Rebuilt,
    config: Mapping[str, Any],
    listed: list[dict[str, Any]],
    named: list[dict[str, Any]],
) -> None:
    """Refuse tokens that the class would lose or change, because it adds them itself."""
    declared = _declared_tokens(config, {}, []) if "added_tokens_decoder" in config else listed
    kept = {token["content"] for token in (*declared, *named)}
    specials = {token["content"] for token in named}
    for token in listed:
        is_changed = rebuilt.makes_named_special and _flags(token) != _flags(_token("x", ""))
        if token["content"] not in kept or (token["content"] in specials and is_changed):
            raise _DisputedIdsError(
                f"{TOKENIZER}: transformers 5 builds {kind} without its token "
                f"{token['content']!r:.60}, or with other settings; declare it in "
                f"added_tokens_decoder of {CONFIG}"
            )


def _special_tokens_of(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The tokens that the configuration names, in the order in which transformers adds them."""
    names = [f"{name}_token" for name in _NAMED]
    for name in names:
        if config.get(name) is not None:
            yield _token(config[name], name) | {"special": True}
    for name, value in config.items():
        is_token = isinstance(value, str) or (isinstance(value, dict) and "__type" in value)
        if name.endswith("_token") and name not in names and is_token:
            yield _token(value, name)
    for value in _extra_values(config):
        yield _token(value, "extra_special_tokens") | {"special": True}


def _template_variables(config: Mapping[str, Any]) -> dict[str, str]:
    """Name -> content of the tokens that transformers 5 passes to a chat template."""
    extra = _extra_special_tokens(config)
    named = {name: value for name, value in config.items() if name.endswith("_token")}
    named |= extra if isinstance(extra, dict) else {}
    return {
        name: _token(value, name)["content"]
        for name, value in named.items()
        if isinstance(value, str) or (isinstance(value, dict) and "content" in value)
    }


def _extra_special_tokens(config: Mapping[str, Any]) -> Any:
    return config.get("extra_special_tokens") or config.get("additional_special_tokens") or []


def _extra_values(config: Mapping[str, Any]) -> list[Any]:
    values = _extra_special_tokens(config)
    if isinstance(values, dict):
        return list(values.values())
    if not isinstance(values, list):
        raise FormatError(f"{CONFIG}: extra_special_tokens is neither a list nor an object")
    return values


def _token(value: object, where: str) -> dict[str, Any]:
    """A token as `tokenizer.json` has it, but without its id."""
    if isinstance(value, str):
        value = {"content": value, "special": True}
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise FormatError(f"{CONFIG}: {where} is {value!a:.60}, no token")
    table = {"content": value["content"]} | {flag: bool(value.get(flag)) for flag in _FLAGS}
    table["normalized"] = bool(value.get("normalized", not table["special"]))
    return table


def _flags(token: Mapping[str, Any]) -> list[Any]:
    return [token.get(flag) for flag in _FLAGS]


def _declared_tokens(
    config: Mapping[str, Any], added_file: Mapping[str, Any], named: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The tokens with ids that stand beside `tokenizer.json`, by id."""
    declared = []
    decoder = config.get("added_tokens_decoder", {})
    if not isinstance(decoder, dict):
        raise FormatError(f"{CONFIG}: added_tokens_decoder is no object")
    for id_, value in decoder.items():
        if not id_.isdecimal() or not isinstance(value, dict):
            raise FormatError(f"{CONFIG}: added_tokens_decoder has {id_!r:.60}, no id with a token")
        declared.append(_token(value, f"added_tokens_decoder[{id_}]") | {"id": int(id_)})
    specials = {token["content"] for token in named}
    for content, id_ in added_file.items():
        if not isinstance(id_, int) or isinstance(id_, bool):
            raise FormatError(f"{ADDED_TOKENS}: {content!r:.60} has no id")
        is_special = content in specials
        token = {"content": content, "special": is_special, "normalized": not is_special}
        declared.append(_token(token, ADDED_TOKENS) | {"id": id_})
    return sorted(declared, key=lambda token: token["id"])


def _missing_tokens(
    listed: list[dict[str, Any]], declared: list[dict[str, Any]], named: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The tokens that `tokenizer.json` does not list, in the order in which they are added.

    Raises:
        FormatError: a declared token contradicts the one in `tokenizer.json`, or two named ones
            each other.
    """
    known = {token["content"]: token for token in listed}
    missing: list[dict[str, Any]] = []
    for token in declared:
        content = token["content"]
        mine = known.setdefault(content, token)
        if mine is token:
            missing.append(token)
            continue
        if mine["id"] != token["id"] or _flags(mine) != _flags(token):
            raise _DisputedIdsError(
                f"{TOKENIZER} and the files beside it describe the token {content!r:.60} "
                f"differently (its id, or one of {', '.join(_FLAGS)}); make them agree"
            )
    by_name: dict[str, dict[str, Any]] = {}
    for token in named:
        content = token["content"]
        if content not in known:
            by_name.setdefault(content, token)
            if _flags(by_name[content]) != _flags(token):
                raise _DisputedIdsError(
                    f"{CONFIG} or {SPECIAL_TOKENS} names the token {content!r:.60} twice, with "
                    f"different {', '.join(_FLAGS)}; make them agree"
                )
    return [*missing, *by_name.values()]


def _check_added_ends(config: Mapping[str, Any], spec: TokenizerSpec) -> None:
    """Refuse `add_bos_token` and `add_eos_token` that contradict the post-processor."""
    for name, around in (("bos", spec.prefix_ids), ("eos", spec.suffix_ids)):
        wanted = config.get(f"add_{name}_token")
        token = config.get(f"{name}_token")
        if not isinstance(wanted, bool) or token is None:
            continue
        is_added = spec.added_ids.get(_token(token, f"{name}_token")["content"]) in around
        if wanted != is_added:
            raise _DisputedIdsError(
                f"{CONFIG}: add_{name}_token is {str(wanted).lower()} and the post_processor of "
                f"{TOKENIZER} does {'' if is_added else 'not '}add the token; versions of "
                f"transformers follow one or the other. Change one of the two"
            )
