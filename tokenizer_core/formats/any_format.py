"""Detects the format of a file, and reads and writes any format.

If a format has no split pattern, the caller must pass it; it is never guessed. Exceptions are the
course's pickles and GPT-2's pair of files, whose pattern is `gpt2` by definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tokenizer_core.blobs.atomic_files import read_whole_file, write_whole_file
from tokenizer_core.errors import FormatError, MissingPatternError
from tokenizer_core.formats.gpt2_files import (
    load_merges_txt,
    parse_token,
    parse_vocab_json,
    render_gpt2_files,
)
from tokenizer_core.formats.manifest_fields import (
    FORMAT_NAME,
    MANIFEST,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    build_spec,
    declared_gaps,
    parse_chat_file,
)
from tokenizer_core.formats.model_folder import load_model_folder, render_model_folder
from tokenizer_core.formats.pickle_files import PICKLE_NAMES, load_pickles, render_pickles
from tokenizer_core.formats.sentencepiece_file import is_sentencepiece, load_sentencepiece
from tokenizer_core.formats.tekken_file import is_tekken, parse_tekken_document, parse_tekken_table
from tokenizer_core.formats.tiktoken_file import load_tiktoken_ranks, render_tiktoken
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_document,
    parse_tokenizer_table,
    render_tokenizer_json,
)
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.added_tokens import check_as_given, first_cut_token
from tokenizer_core.spec.chat_templates import CHAT_FILE, MAX_CHAT_FILE_BYTES
from tokenizer_core.splitting.patterns import SplitPattern, resolve_pattern
from tokenizer_core.strict_json import parse_strict_json

if TYPE_CHECKING:
    import os

    StrPath = str | os.PathLike[str]
    SpecialTokens = Mapping[str, int] | Iterable[str] | None

Target = Literal["tokenizer.json", "transformers", "tiktoken", "gpt2", "pickle"]
_RENDERERS: Final[Mapping[Target, Callable[[TokenizerSpec], tuple[bytes, ...]]]] = MappingProxyType(
    {
        "tokenizer.json": lambda spec: (render_tokenizer_json(spec),),
        "transformers": render_model_folder,
        "tiktoken": lambda spec: (render_tiktoken(spec),),
        "gpt2": render_gpt2_files,
        "pickle": render_pickles,
    }
)

FormatName = Literal["pickle", "gpt2", "tiktoken", "tokenizer_json", "tekken", "sentencepiece"]

_MAX_BYTES: Final = 128 << 20
_TIKTOKEN_LINE: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?(\n|\Z)")
_PICKLE_STARTS: Final = (b"\x80", b"(d", b"(l", b"}q", b"]q")


class DetectedFile(NamedTuple):
    """The format of a file, and the value of one that is JSON: parsing it takes most of the time
    of a detection."""

    format: FormatName
    table: object = None


def detect_file(path: StrPath) -> DetectedFile:
    """The format of a file, from its content, for `load_spec`; `gpt2` for both `vocab.json` and
    `merges.txt`. Raises FormatError: the file has no known format."""
    data = read_whole_file(path, max_bytes=_MAX_BYTES)
    if data.startswith(_PICKLE_STARTS):
        return DetectedFile("pickle")
    if is_sentencepiece(data):
        return DetectedFile("sentencepiece")
    if data.lstrip()[:1] == b"{":
        # Either reads every JSON; the choice only decides which of them is faster.
        parse = (
            parse_tekken_document if b'"default_vocab_size"' in data else parse_tokenizer_document
        )
        table = parse(data, "the file")
        if is_tekken(table):
            return DetectedFile("tekken", table)
        if isinstance(table, dict) and isinstance(table.get("bpe_ranks"), str):
            raise FormatError(
                "the file holds ranks in bpe_ranks, as Anthropic publishes them; write its tokens "
                "with their ranks to a .tiktoken file, and give pat_str as the pattern and its "
                "special_tokens. Anthropic's library normalizes a text to NFKC before"
            )
        # `model` is also a word and a token of GPT-2, whose value is an id.
        is_json = isinstance(table, dict) and isinstance(table.get("model"), dict)
        return DetectedFile("tokenizer_json" if is_json else "gpt2", table)
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise FormatError("the file begins with a byte order mark; save it as UTF-8 without one")
    line = data[: data.find(b"\n") + 1 or len(data)]
    # A rank line has at least four base64 characters; no first merge has a left side of four.
    if _TIKTOKEN_LINE.fullmatch(line) and line.index(b" ") % 4 == 0:
        return DetectedFile("tiktoken")
    if line.startswith(b"#version") or len(line.split(b" ")) == 2:
        return DetectedFile("gpt2")
    raise FormatError(
        "the file is none of: a pickled vocabulary or merges, vocab.json, merges.txt, .tiktoken, "
        "tokenizer.json, tekken.json, SentencePiece's tokenizer.model"
    )


def load_vocab_and_merges(
    vocab_path: StrPath, merges_path: StrPath, special_tokens: Iterable[str] = ()
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Vocabulary and merges from two pickles or from GPT-2's two files, distinguished by content.
    Raises FormatError: as the readers of the two formats; or an entry of `vocab.json` may be one of
    the special tokens, or other bytes."""
    try:
        # Detecting the format would parse the file once more.
        vocab = parse_vocab_json(read_whole_file(vocab_path, max_bytes=_MAX_BYTES))
    except FormatError:
        found = detect_file(vocab_path).format
        if found == "pickle":
            return load_pickles(vocab_path, merges_path)
        if found == "gpt2":
            raise
        raise FormatError(
            f"the vocabulary file has the format {found}, which is one file alone; a pickle or "
            f"vocab.json is wanted here"
        ) from None
    _check_spellings(special_tokens, vocab)
    return vocab, load_merges_txt(merges_path, vocab.values())


def _check_spellings(special_tokens: Iterable[str], vocab: Mapping[int, bytes]) -> None:
    """Refuse special tokens that an entry of `vocab.json` spells as they are, if these characters
    stand for other bytes in its alphabet (`é` for 0xE9)."""
    read = {c: parse_token(c) for c in special_tokens if isinstance(c, str) and not c.isascii()}
    known = set(vocab.values()) if any(read.values()) else set()
    for content, token in read.items():
        if token and token in known and token != content.encode():
            raise FormatError(
                f"the special token {content!r:.60} is an entry of vocab.json, where it stands for "
                f"the bytes {token!r:.60}: Hugging Face's tokenizers would give it that id. Load a "
                f"tokenizer.json, or leave the token out"
            )


def load_files_spec(
    vocab_path: StrPath,
    merges_path: StrPath,
    special_tokens: SpecialTokens = None,
    pattern: str | SplitPattern | None = None,
) -> TokenizerSpec:
    """The spec of two pickles and the manifest beside them, or of GPT-2's two files. The ids of
    `special_tokens`, if given, must be those that they get.

    If one is a file of a published artifact, with its `manifest.json`, that defines the pattern,
    the special tokens and the rest. Otherwise the pattern is `gpt2` unless given, and a token that
    looks special and is not declared is a UserWarning.

    Raises:
        FormatError: a file is malformed, an argument disagrees with the manifest, or merges that
            come without a pattern cannot be of `gpt2`.
        InvalidSpecError: the parts do not form a tokenizer.
    """
    fields = _manifest_beside(Path(vocab_path), Path(merges_path))
    if fields is None:
        # A text is refused by the spec.
        listed = special_tokens if isinstance(special_tokens, str) else list(special_tokens or ())
        vocab, merges = load_vocab_and_merges(vocab_path, merges_path, listed)
        chosen = "gpt2" if pattern is None else pattern
        spec = TokenizerSpec.from_merges(vocab, merges, listed, pattern=chosen)
        cut = first_cut_token(spec) if pattern is None else None
        if cut is not None:  # of Qwen, Llama 3 or CLIP
            raise FormatError(
                f"the merges make {cut!r:.60}, which the split pattern gpt2 cuts: these files "
                f"belong to another pattern. Give its name (--pattern cl100k, pattern='qwen2') "
                f"or expression, or load the model's tokenizer.json or folder"
            )
        _check_given_ids(spec, special_tokens)
        check_as_given(spec, stacklevel=3)
        return spec
    vocab, merges = load_pickles(vocab_path, merges_path, declared_gaps=declared_gaps(fields))
    spec = build_spec(fields, vocab, merges)
    chat_path = Path(vocab_path).parent / CHAT_FILE
    if fields.get("chat_templates") and chat_path.is_file():  # the two pickles alone are enough
        data = read_whole_file(chat_path, max_bytes=MAX_CHAT_FILE_BYTES)
        spec = spec.with_chat(parse_chat_file(fields, data))
    if pattern is not None and resolve_pattern(pattern) != spec.pattern:
        raise FormatError(
            f"the manifest beside the pickles says split pattern {spec.pattern.name}, the argument "
            f"says {resolve_pattern(pattern).name}; leave the argument out"
        )
    for token in special_tokens or ():
        if token not in spec.added_ids:
            raise FormatError(
                f"the manifest beside the pickles knows no special token {token!r:.60}; leave the "
                f"argument out, or load copies of the pickles without the manifest"
            )
    _check_given_ids(spec, special_tokens)
    return spec


def _check_given_ids(spec: TokenizerSpec, given: SpecialTokens) -> None:
    found = spec.added_ids
    for content, id_ in given.items() if isinstance(given, Mapping) else ():
        if found.get(content) != id_:
            raise FormatError(
                f"the special token {content!r:.60} is to have id {id_}, but gets "
                f"{found.get(content)} in this vocabulary"
            )


def _manifest_beside(*pickles: Path) -> dict[str, Any] | None:
    """The fields of the manifest of an artifact that has one of the pickles, or None: it decides,
    also of a pair with a foreign one."""
    for pickle in pickles:
        path = pickle.parent / MANIFEST_NAME
        if not path.is_file():
            continue
        data = read_whole_file(path, max_bytes=MAX_MANIFEST_BYTES)
        table = parse_strict_json(data, MANIFEST_NAME)
        if not isinstance(table, dict) or table.get("format") != FORMAT_NAME:
            continue  # another program's manifest.json
        fields = MANIFEST.parse(data)
        if pickle.name in fields.get("files", {}):
            return fields
    return None


def load_spec(
    paths: Sequence[StrPath],
    *,
    pattern: str | SplitPattern | None = None,
    special_tokens: SpecialTokens = None,
    detected: DetectedFile | None = None,
    ids: str | None = None,
) -> TokenizerSpec:
    """The spec of one file, of a vocabulary and its merges, or of a folder (that of a model or of a
    published version). `presets.load_path_spec`, which calls this, also knows the files of presets.

    `special_tokens` maps content to id (required for `.tiktoken`), or lists contents that get the
    next free ids if the vocabulary lacks them. Other single files and folders say both themselves,
    so neither argument may be given for them. `detected` is the result of `detect_file` for the
    first file, if the caller has it. `ids` is for a folder, as in `load_model_folder`.

    Raises:
        FormatError: an unknown format, too many or too few files, an argument missing or too much.
        InvalidSpecError, UnknownPatternError: the parts do not form a tokenizer.
    """
    if len(paths) not in (1, 2):
        raise FormatError("give one file, or a vocabulary and its merges")
    if Path(paths[0]).is_dir():
        if len(paths) == 2 or pattern is not None or special_tokens:
            raise FormatError(
                "a folder says itself how text is split and which tokens are special; give the "
                "folder alone"
            )
        vocab, merges = (Path(paths[0], name) for name in PICKLE_NAMES)
        if _manifest_beside(vocab, merges) is None:
            return load_model_folder(paths[0], ids=ids)
        paths, detected = (vocab, merges), DetectedFile("pickle")
    if ids not in (None, "file"):
        raise FormatError(f"ids={ids!r:.40} (--ids) is for a model folder; a file has its own ids")
    detected = detected or detect_file(paths[0])
    found = detected.format
    if (len(paths) == 2) != (found in ("pickle", "gpt2")):
        raise FormatError(
            f"a file of the format {found} (if it is a vocabulary at all) belongs to a second one; "
            f"give both, the vocabulary first (VOCAB,MERGES; Tokenizer.from_files)"
            if len(paths) == 1
            else f"a file of the format {found} needs no second file"
        )
    if found in ("tokenizer_json", "tekken", "sentencepiece"):
        if pattern is not None or special_tokens:
            name = {"tekken": "tekken.json", "sentencepiece": "tokenizer.model"}.get(found)
            raise FormatError(
                f"{name or 'tokenizer.json'} says itself how text is split and which tokens are "
                f"special; leave pattern and special tokens out"
            )
        if found == "sentencepiece":
            return load_sentencepiece(paths[0])
        return (parse_tekken_table if found == "tekken" else parse_tokenizer_table)(detected.table)
    if found == "tiktoken":
        if pattern is None:
            raise MissingPatternError(
                f"{Path(paths[0]).name} is not the published file of a preset, and a .tiktoken "
                f"file does not say how text is split; give its pattern and special tokens "
                f"(--pattern and --special; Tokenizer.from_tiktoken)"
            )
        if special_tokens is not None and not isinstance(special_tokens, Mapping):
            raise FormatError("a .tiktoken file needs the ids of its special tokens: a mapping")
        return TokenizerSpec.from_ranks(
            load_tiktoken_ranks(paths[0]), special_tokens, pattern=pattern
        )
    return load_files_spec(paths[0], paths[1], special_tokens, pattern)


def write_files(target: Target, spec: TokenizerSpec, *paths: StrPath) -> None:
    """Write the files of a format, each completely or not at all. Raises FormatError: the format
    cannot hold what decides ids (named), or a file would be too large to be read."""
    # The last file of a model folder is not always wanted.
    for path, data in zip(paths, _RENDERERS[target](spec), strict=target != "transformers"):
        write_whole_file(path, data)
