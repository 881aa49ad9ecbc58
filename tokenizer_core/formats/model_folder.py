"""A model folder of Hugging Face, read and written for the ids of `transformers.AutoTokenizer`.

`tokenizer.json` defines the tokenizer; without it, the class of the folder builds one of
`vocab.json` and `merges.txt`. A folder with neither may have a `tekken.json` or SentencePiece's
`tokenizer.model`, which then defines the tokenizer. If a folder has a `tokenizer.json` too, that
counts, and its ids are compared with those of the `tokenizer.model`.

Other files of the folder declare tokens, name a class and contain settings, and releases of
`transformers` follow them in different ways (`transformers_releases`). So a folder can have three
tokenizers: that of the file alone, and one of each of two releases. Chat templates change no ids;
`chat_template_files` reads them.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.blobs.atomic_files import read_whole_file
from tokenizer_core.engines import create_engine
from tokenizer_core.errors import ConversionError, FormatError, TokenizerCoreError
from tokenizer_core.formats.chat_template_files import (
    CHAT_FILE_NAMES,
    CONFIG_FIELD,
    existing_template_file,
    read_chat_templates,
    template_field,
)
from tokenizer_core.formats.folder_contradictions import contradictions
from tokenizer_core.formats.gpt2_files import load_merges_txt, render_token
from tokenizer_core.formats.sentencepiece_file import is_sentencepiece, load_sentencepiece
from tokenizer_core.formats.tekken_file import parse_tekken
from tokenizer_core.formats.tokenizer_json.added_tokens import render_added_tokens
from tokenizer_core.formats.tokenizer_json.document import (
    MAX_FILE_BYTES,
    parse_tokenizer_document,
    parse_tokenizer_table,
    render_tokenizer_json,
)
from tokenizer_core.formats.transformers_releases import (
    CONFIG,
    FLAGS,
    NAMED,
    RELEASES,
    SPECIAL_TOKENS,
    TOKENIZER,
    FolderTables,
    NotReadError,
    config_defaults,
    table_in_release,
    token_content,
    tokens_of_decoder,
)
from tokenizer_core.spec.chat_templates import MAX_MODEL_LENGTH, SETTINGS, SIDES
from tokenizer_core.spec.document_end import find_eos_token
from tokenizer_core.specials.matchers import matcher_of_spec
from tokenizer_core.specials.parts import normalized_parts
from tokenizer_core.strict_json import parse_strict_json

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from tokenizer_core.spec import TokenizerSpec

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
"""The files of `render_model_folder`; GENERATION_CONFIG follows if it declares stop tokens."""

MODEL_INPUT_NAMES: Final = ["input_ids", "attention_mask"]
"""Those of transformers 5 for a folder that names none. Release 4 would give `token_type_ids` too,
which GPT-2's model adds to its inputs."""

_RANKS: Final = ("tiktoken.model", SENTENCEPIECE)

IDS: Final = ("file", *RELEASES)
"""Whose ids a folder can have: those of `tokenizer.json` alone, or of a release of RELEASES."""

_PROBES: Final = (
    "a  b",
    " a",
    "a ",
    "a",
    "  a",
    "a\nb",
    "12 345",
    "a1",
    "don't",
    "\u00e9",
    "e\u0301",
)
"""Texts on which the ids of a folder differ most often."""


@dataclass(frozen=True, slots=True)
class FolderIds:
    """What a folder gives.

    - `found`: for each of IDS its spec, or why there is none.
    - `difference`: the first text of some thousand on which two specs differ, and the ids of each;
      None if all are equal or no such text was found.
    - `parts`: what differs between the specs, in words.
    - `contradictions`: where the files of the folder contradict each other, as sentences.
    """

    found: Mapping[str, TokenizerSpec | FormatError]
    difference: tuple[str, Mapping[str, list[int]]] | None = None
    parts: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()

    def groups(self) -> dict[str, str]:
        """Each choice that has a spec -> the first one with the same ids."""
        parts = {choice: _parts_of(spec) for choice, spec in self.specs.items()}
        return {c: next(other for other in parts if parts[other] == parts[c]) for c in parts}

    @property
    def specs(self) -> dict[str, TokenizerSpec]:
        """The specs there are."""
        return {c: spec for c, spec in self.found.items() if not isinstance(spec, FormatError)}


def load_model_folder(folder: str | os.PathLike[str], *, ids: str | None = None) -> TokenizerSpec:
    """The spec of a folder; see the module. A `tokenizer.model` that gives other ids than the
    `tokenizer.json` beside it is a UserWarning with the first text.

    `ids` is one of IDS. With `file`, the other files give only the chat templates and the tokens
    that these name. Without it, a folder is read if both releases give it the same ids. A release
    that refuses the folder does not count, and then the file does.

    Raises:
        FormatError: none of these; a file is malformed; a setting is not supported, or
            the choices give different ids (the first text is named).
        InvalidSpecError: vocabulary, merges and tokens do not form a tokenizer.
    """
    folder = Path(folder)
    if ids is not None and ids not in IDS:
        raise FormatError(f"ids must be one of {', '.join(IDS)}, not {ids!r:.40}")
    if not _has_hugging_face_files(folder) and has_vocabulary(folder):
        if ids is not None and ids in RELEASES:
            raise FormatError(
                f"the folder {folder} has no {TOKENIZER}, and the ids of transformers "
                f"{RELEASES[ids]} for its other files are not known; leave ids (--ids) out"
            )
        config = _read_table(folder, CONFIG) | _read_table(folder, SPECIAL_TOKENS)
        if (folder / TEKKEN).is_file():
            data = read_whole_file(folder / TEKKEN, max_bytes=MAX_FILE_BYTES)
            return _with_chat(parse_tekken(data), folder, config)
        return _load_sentencepiece_of(folder, config)
    files = _read_tables(folder)
    if ids is None:
        spec = _agreed_spec(files, folder)
    else:
        found = _specs_of(files, (ids,))[ids]
        if isinstance(found, FormatError):
            raise FormatError(f"{ids_label(ids)}: {found}") from found
        spec = found
    spec = _with_names(spec, folder, files)
    if files.has_file:
        for text in _sentencepiece_difference(spec, folder):
            warnings.warn(text, stacklevel=3)
    return spec


def ids_of_folder(folder: str | os.PathLike[str]) -> FolderIds:
    """What each of IDS gives for a folder with a `tokenizer.json`, or `vocab.json` and
    `merges.txt`; raises as `load_model_folder`, but not for a difference."""
    folder = Path(folder)
    files = _read_tables(folder)
    compared = _compared(_specs_of(files, IDS))
    found = list(contradictions(files))
    if files.has_file and "file" in compared.specs:
        found += _sentencepiece_difference(compared.specs["file"], folder)
    return replace(compared, contradictions=tuple(found))


def _agreed_spec(files: FolderTables, folder: Path) -> TokenizerSpec:
    """The spec that both releases give, or one and the file."""
    if not files.has_file:
        found = _specs_of(files, ("transformers5",))
    else:
        found = _specs_of(files, tuple(RELEASES))
        if any(isinstance(spec, NotReadError) for spec in found.values()):
            found |= _specs_of(files, ("file",))
    way_on = f"; choose whose ids with ids= (tokenizer import --ids): file, {' or '.join(RELEASES)}"
    if _has_sentencepiece(folder):
        way_on += f"; {SENTENCEPIECE} beside it, imported as a file, gives those of SentencePiece"
    unknown = [
        f"{ids_label(choice)}: {error}"
        for choice, error in found.items()
        if isinstance(error, FormatError) and not isinstance(error, NotReadError)
    ]
    if unknown:
        raise FormatError("; ".join(unknown) + (way_on if files.has_file else ""))
    compared = _compared(found)
    if compared.parts:
        raise FormatError(f"the folder {folder.name} {describe_difference(compared)}{way_on}")
    return compared.specs.get("transformers5") or next(iter(compared.specs.values()))


def describe_difference(compared: FolderIds) -> str:
    """How the ids differ, in words after "the folder NAME"."""
    parts = ", ".join(compared.parts)
    if compared.difference is None:
        return f"has more than one tokenizer, which differ in {parts}"
    text, ids = compared.difference
    given = ", ".join(f"{ids_label(choice)} {found!s:.80}" for choice, found in ids.items())
    return f"has more than one tokenizer ({parts}): {text!a:.60} is {given}"


def ids_label(choice: str) -> str:
    """Whose ids a choice of IDS gives."""
    return f"transformers {RELEASES[choice]}" if choice in RELEASES else TOKENIZER


def _specs_of(
    files: FolderTables, choices: tuple[str, ...]
) -> dict[str, TokenizerSpec | FormatError]:
    """The spec of each choice, or why there is none; tables that mean the same are parsed once."""
    found: dict[str, TokenizerSpec | FormatError] = {}
    parsed: list[tuple[Mapping[str, Any], TokenizerSpec]] = []
    if files.has_file:
        parsed.append((files.table, parse_tokenizer_table(dict(files.table))))
    for choice in choices:
        try:
            if choice == "file" and not files.has_file:
                raise NotReadError(
                    f"the folder has no {TOKENIZER} whose ids could be meant; leave ids (--ids) out"
                )
            table = files.table if choice == "file" else table_in_release(files, choice)
            meaning = _meaning(table)
            spec = next((spec for known, spec in parsed if _meaning(known) == meaning), None)
            if spec is None:
                spec = parse_tokenizer_table(dict(table))
                parsed.append((table, spec))
            found[choice] = spec
        except FormatError as error:
            found[choice] = error
    return found


def _meaning(value: Any, name: str = "") -> Any:
    """A table or a part of it without what changes no ids: how the same is written."""
    if isinstance(value, list):
        return [_meaning(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if name == "":
        return {key: _meaning(part, key) for key, part in value.items()}
    if name == "model":
        return {key: part for key, part in value.items() if part not in (None, False, "")}
    if value.get("type") == "ByteLevel" and name in ("decoder", "post_processor"):
        return None if name == "post_processor" else "ByteLevel"
    steps = value.get(name.replace("pre_", "pre") + "s")
    if isinstance(steps, list):
        meant = [_meaning(step, name) for step in steps]
        return meant[0] if len(meant) == 1 else meant
    return {key: part for key, part in value.items() if key != "trim_offsets"}


def _compared(found: Mapping[str, TokenizerSpec | FormatError]) -> FolderIds:
    specs = FolderIds(found).specs
    of_specs = [_parts_of(spec) for spec in specs.values()] or [{}]
    parts = [name for name in of_specs[0] if any(of[name] != of_specs[0][name] for of in of_specs)]
    difference = None
    texts = list(dict.fromkeys(_texts_of(specs))) if parts else []
    streams = [_ids_of(spec, texts) for spec in specs.values()]
    for text, *ids in zip(texts, *streams, strict=True):
        if any(mine != ids[0] for mine in ids):
            difference = (text, dict(zip(specs, ids, strict=True)))
            break
    return FolderIds(found, difference, tuple(parts))


def _parts_of(spec: TokenizerSpec) -> dict[str, object]:
    """What decides the ids of a spec, by its name in words."""
    return {
        "the split pattern": spec.pattern,
        "the normalizer": (spec.normalizer.name, spec.normalizer.fields()),
        "the model": (spec.vocab, spec.merges, spec.ignore_merges, spec.alphabet),
        "the added tokens": {t.content: replace(t, special=False) for t in spec.added_tokens},
        "the ids around a text": (spec.prefix_ids, spec.suffix_ids),
    }


def _texts_of(specs: Mapping[str, TokenizerSpec]) -> Iterator[str]:
    """Texts on which specs may differ: probes, added tokens in a text, and tokens of the model."""
    yield from _PROBES
    spec = next(iter(specs.values()))
    for other in specs.values():
        for token in other.added_tokens[:200]:
            yield from (f"a{token.content}b", f"a {token.content} b")
    for learned in list(spec.vocab.values())[256:4096]:
        with contextlib.suppress(UnicodeDecodeError):
            yield f"a{learned.decode()}1 b"


def _load_sentencepiece_of(folder: Path, config: dict[str, Any]) -> TokenizerSpec:
    """The spec of the folder's `tokenizer.model`, which must have all tokens that it declares, with
    the ids that `add_bos_token` and `add_eos_token` put around a text."""
    spec = load_sentencepiece(folder / SENTENCEPIECE)
    ids = spec.added_ids
    named = [*_template_variables(config).values(), *_listed_special_tokens(config)]
    for content, id_ in (*((text, None) for text in named), *_ids_beside(folder, config)):
        if content not in ids or id_ not in (None, ids[content]):
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


def _sentencepiece_difference(spec: TokenizerSpec, folder: Path) -> Iterator[str]:
    """A sentence if a `tokenizer.model` in the folder gives other ids than `spec`: for each of its
    pieces as a text, and for spaces."""
    try:
        other = load_sentencepiece(folder / SENTENCEPIECE) if _has_sentencepiece(folder) else spec
    except TokenizerCoreError:
        return  # of other files no ids are known
    learned = other.token_to_id.keys() - {bytes([byte]) for byte in range(0x80, 0x100)}
    texts = ["a  b", " a", "a ", "a", *map(bytes.decode, sorted(learned))] if other != spec else []
    specs = (replace(spec, prefix_ids=(), suffix_ids=()), other)
    found = (_ids_of(one, texts, finds_special=False) for one in specs)
    for text, mine, theirs in zip(texts, *found, strict=True):
        if mine != theirs:
            yield (
                f"{TOKENIZER} of the folder {folder.name} gives {text!a:.60} the ids "
                f"{mine!s:.80}, and {SENTENCEPIECE} beside it {theirs!s:.80}; {TOKENIZER} counts. "
                f"For the ids of SentencePiece import {SENTENCEPIECE} as a file"
            )
            return


def _ids_of(
    spec: TokenizerSpec, texts: list[str], *, finds_special: bool = True
) -> Iterator[list[int]]:
    """The ids of each text, with those that the tokenizer puts around it."""
    if not texts:
        return
    engine = create_engine(spec, "auto")
    found_tokens = (t.content for t in spec.added_tokens if finds_special or not t.special)
    matcher = matcher_of_spec(spec, set(found_tokens))
    for text in texts:
        found = list(spec.prefix_ids)
        for plain, token in normalized_parts(spec, matcher, text):
            found += engine.encode(plain)
            found += [] if token is None else [spec.added_ids[token]]
        yield [*found, *spec.suffix_ids]


def _read_tables(folder: Path) -> FolderTables:
    has_file = (folder / TOKENIZER).is_file()
    text = b""
    if has_file:
        text = read_whole_file(folder / TOKENIZER, max_bytes=MAX_FILE_BYTES)
    return FolderTables(
        _read_table(folder, TOKENIZER) if has_file else _table_of_pair(folder),
        _read_table(folder, CONFIG),
        _read_table(folder, SPECIAL_TOKENS),
        _read_table(folder, ADDED_TOKENS),
        _read_table(folder, MODEL_CONFIG),
        has_file,
        b'"ByteLevel"' in text,
        (folder / SENTENCEPIECE).is_file(),
    )


def _with_names(spec: TokenizerSpec, folder: Path, files: FolderTables) -> TokenizerSpec:
    """The spec with the folder's chat templates. The tokens that these can name are special, also
    where `tokenizer.json` calls them content: transformers 5 decodes so, and finds the same ids."""
    config = {**config_defaults(files), **files.config}
    if "added_tokens_decoder" not in config:
        config |= files.special_tokens
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
    that are added tokens, the side that is cut, the length of the model, unless it stands for
    none, and other settings for `transformers`."""
    chat = read_chat_templates(folder, config, _template_variables(config))
    stops = _declared_stops(folder)
    controls = config.get("chat_control_tokens")
    controls = controls if isinstance(controls, list) else []
    length = config.get("model_max_length")
    if type(length) is not int or not 0 < length <= MAX_MODEL_LENGTH:
        length = None
    known = (None, MODEL_INPUT_NAMES)
    settings = {name: config[name] for name in SETTINGS if config.get(name) not in known}
    if listed := _listed_special_tokens(config):
        settings["additional_special_tokens"] = listed
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
            settings=settings,
        )
    )


def names_to_write(spec: TokenizerSpec, folder: Path) -> tuple[str, ...]:
    """The files to write for a spec into this folder, which need not exist. The
    GENERATION_CONFIG of a model, which has other settings, is never replaced. Raises
    ConversionError: a file there would count in place of what is written."""
    if found := existing_template_file(folder):
        raise ConversionError(
            f"{found} would replace the chat templates that are written; remove it, or give "
            f"another folder"
        )
    stops = stop_ids(spec)
    if not stops or not (folder / GENERATION_CONFIG).exists():
        return (*WRITTEN, GENERATION_CONFIG) if stops else WRITTEN
    declared = _declared_stops(folder)
    if {token.id for token in spec.added_tokens if token.id in declared} != {*stops}:
        raise ConversionError(
            f"eos_token_id in {folder / GENERATION_CONFIG} declares other stop tokens than "
            f"{stops}, those of the tokenizer; change it, or give another folder"
        )
    return WRITTEN


def stop_ids(spec: TokenizerSpec) -> list[int]:
    """The ids of the stop tokens."""
    ids = spec.added_ids
    return sorted({ids[token] for token in spec.chat.stop_tokens if token in ids})


def _declared_stops(folder: Path) -> list[Any]:
    ids = _read_table(folder, GENERATION_CONFIG).get("eos_token_id")
    return ids if isinstance(ids, list) else [ids]


def render_model_folder(spec: TokenizerSpec) -> tuple[bytes, ...]:
    """The files of WRITTEN, which `AutoTokenizer` of transformers 4 and 5 reads as they are, and
    GENERATION_CONFIG. The chat templates are in the second. Raises as `render_tokenizer_json`."""
    listed = render_added_tokens(spec)
    named: dict[str, Any] = {**_named_with_flags(spec, listed), **named_special_tokens(spec)}
    config: dict[str, Any] = {
        "added_tokens_decoder": {
            str(token["id"]): {name: token[name] for name in ("content", *FLAGS)}
            for token in listed
        },
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
        **settings_to_write(spec),
    }
    if spec.normalizer.name == "prefix-space":
        config["add_prefix_space"] = True  # without it transformers 4 takes the space away
    generation = {"eos_token_id": stop_ids(spec)}
    return render_tokenizer_json(spec), *map(_render, (config, named, generation))


def settings_to_write(spec: TokenizerSpec) -> dict[str, Any]:
    """What the constructor of a tokenizer of transformers takes of the chat templates and of the
    settings of the source, by name."""
    chat = spec.chat
    found: dict[str, Any] = {"model_input_names": MODEL_INPUT_NAMES, **chat.settings}
    if extra := found.pop("additional_special_tokens", ()):
        found["additional_special_tokens"] = [t for t in extra if t in spec.special_tokens]
    for name in ("model_max_length", "truncation_side"):
        if getattr(chat, name) is not None:
            found[name] = getattr(chat, name)
    if chat.sources:
        found[CONFIG_FIELD] = template_field(chat.sources)
    return found


def _render(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(table, ensure_ascii=False, indent=2) + "\n").encode()


def _named_with_flags(spec: TokenizerSpec, listed: list[dict[str, Any]]) -> dict[str, Any]:
    """The named tokens with flags (RoBERTa's `mask_token`), as transformers writes them."""
    known = {token["content"]: token for token in listed if token["special"]}
    return {
        name: {"__type": "AddedToken"} | {key: known[value][key] for key in ("content", *FLAGS)}
        for name, value in (spec.chat.variables or {}).items()
        if value in known and name in NAMED
    }


def named_special_tokens(spec: TokenizerSpec) -> dict[str, str]:
    """The tokens that transformers names (`bos_token` ...): those that the chat templates read, or
    else `bos_token`, `eos_token` and `unk_token`, if known. Only special tokens without flags:
    transformers adds a named token again, without flags."""
    plain = {
        token.id: token.content
        for token in reversed(spec.added_tokens)
        if token.special and not token.flags
    }
    if spec.chat.variables:
        contents = set(plain.values())
        return {name: value for name, value in spec.chat.variables.items() if value in contents}
    eos, unk_id = find_eos_token(spec), spec.alphabet.unk_id
    found = {
        "bos_token": plain.get(spec.prefix_ids[0]) if spec.prefix_ids else None,
        "eos_token": eos if eos in plain.values() else None,
        "unk_token": None if unk_id is None else plain.get(unk_id),
    }
    return {name: content for name, content in found.items() if content is not None}


def _table_of_pair(folder: Path) -> dict[str, Any]:
    """A table of `vocab.json` and `merges.txt` alone."""
    if not has_vocabulary(folder):
        ranks = sole_rank_file(folder)
        way_on = (
            "a folder must have one of them"
            if ranks is None
            else f"load {ranks.name} with its pattern and special tokens "
            f"({ranks.name}:PATTERN; Tokenizer.from_tiktoken)"
        )
        if versions := sorted(path.parent for path in folder.glob("*/vocab.pkl")):
            way_on = f"it holds published versions, load one of them: {versions[-1]}"
        raise FormatError(
            f"the folder {folder} has no {TOKENIZER}, no {VOCAB} with {MERGES}, no {TEKKEN}, and "
            f"no {SENTENCEPIECE} of SentencePiece; {way_on}"
        )
    vocab = _read_table(folder, VOCAB)
    merges = load_merges_txt(folder / MERGES, vocab)
    pairs = [list(map(render_token, pair)) for pair in merges]
    return {"version": "1.0", "added_tokens": [], "model": {"vocab": vocab, "merges": pairs}}


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


def _ids_beside(folder: Path, config: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Content and id of the tokens that the files of the folder declare with ids."""
    if "added_tokens_decoder" not in config:
        return list(_read_table(folder, ADDED_TOKENS).items())
    declared = tokens_of_decoder(config["added_tokens_decoder"])
    return [(token["content"], id_) for id_, token in declared.items()]


def _template_variables(config: Mapping[str, Any]) -> dict[str, str]:
    """Name -> content of the tokens that transformers 5 passes to a chat template."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    named = {name: value for name, value in config.items() if name.endswith("_token")}
    named |= extra if isinstance(extra, dict) else {}
    return {
        name: token_content(value, name)
        for name, value in named.items()
        if isinstance(value, str) or (isinstance(value, dict) and "content" in value)
    }


def _listed_special_tokens(config: Mapping[str, Any]) -> list[str]:
    """The special tokens without names; the newer of the two fields may hold the named ones."""
    both = config.get("extra_special_tokens"), config.get("additional_special_tokens")
    return list(map(token_content, next((t for t in both if t and isinstance(t, list)), [])))
