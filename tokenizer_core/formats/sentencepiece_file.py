"""SentencePiece's `tokenizer.model`: BPE of characters with byte fallback.

The rules come from the sources of SentencePiece 0.2.3 (`sentencepiece_model.proto`,
`normalizer.cc`, `bpe_model.cc`, `sentencepiece_processor.cc`). Merging joins two neighbours whose
characters together are a piece: the pair of the best score first, of equal ones the leftmost. So a
piece has one last merge, that of its own characters alone, and these merges, by score, give the
same ids (see `tiktoken_file`). Pieces of equal score are read only if they are runs of one
character, as Mistral's spaces: there the leftmost merge is also that of the longest run.

SentencePiece normalizes a text as a whole and then finds user-defined pieces in it, also in the
space that it put there: in a spec, these are the steps of `metaspace-steps` and `normalized`
tokens. It finds no control piece in a text. Here these are special tokens, as in every other
vocabulary, and `allowed_special="none"` gives its ids. The file does not say which ids surround a
text, so the spec has neither `prefix_ids` nor `suffix_ids`.
"""

from __future__ import annotations

import math
import re
import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tokenizer_core.blobs.atomic_files import read_whole_file
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.tiktoken_file import recover_reachable_merges
from tokenizer_core.formats.tokenizer_json.added_tokens import search_together
from tokenizer_core.normalizers import META_TO_SPACE, PREPEND, normalizer_of
from tokenizer_core.normalizers.spaces import METASPACE_CHARACTER
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.spec import AddedToken, Alphabet, TokenizerSpec
from tokenizer_core.spec.alphabet import pattern_of_characters
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.spec.checks import MAX_TOKEN_ID

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


MAX_FILE_BYTES: Final = 32 << 20
"""The size cap; published files have up to 5 MB."""

_MAX_FIELDS: Final = MAX_TOKEN_ID + 100
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_BYTE_NAME: Final = re.compile("<0x([0-9A-F]{2})>")
_MODELS: Final = ("", "Unigram", "BPE", "Word", "Char")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# The fields that decide ids or name tokens: number -> name, wire type, default. Others of the
# trainer say how it learned, and field 4 of the model has examples to check it with.
_Fields = dict[int, tuple[str, int, Any]]
_MODEL: Final = {2: "trainer_spec", 3: "normalizer_spec", 5: "denormalizer_spec"}
_TRAINER: Final[_Fields] = {
    3: ("model_type", _VARINT, 1),
    24: ("treat_whitespace_as_suffix", _VARINT, 0),
    35: ("byte_fallback", _VARINT, 0),
    45: ("unk_token", _BYTES, b"<unk>"),
    46: ("bos_token", _BYTES, b"<s>"),
    47: ("eos_token", _BYTES, b"</s>"),
    48: ("pad_token", _BYTES, b"<pad>"),
}
_NORMALIZER: Final[_Fields] = {
    1: ("name", _BYTES, b""),
    2: ("precompiled_charsmap", _BYTES, b""),
    3: ("add_dummy_prefix", _VARINT, 1),
    4: ("remove_extra_whitespaces", _VARINT, 1),
    5: ("escape_whitespaces", _VARINT, 1),
    6: ("normalization_rule_tsv", _BYTES, b""),
}
_PIECE: Final[_Fields] = {
    1: ("piece", _BYTES, b""),
    2: ("score", _FIXED32, b"\0\0\0\0"),
    3: ("type", _VARINT, _NORMAL),
}

_FLOAT: Final = struct.Struct("<f")
_USUAL_PIECE: Final = re.compile(rb"\n([\x01-\x7f])(.+)\x15(.{4})(?:\x18([\x00-\x7f]))?", re.DOTALL)
"""A piece as SentencePiece writes it: size of the text, text, score, and a type but NORMAL. An
expression reads it in a fifth of the time."""

# Only spaces of the text are extra, but those at its end are also the ones of U+2581.
_EXTRA_AT_START: Final = NormalizerStep("Replace", r"\A +", is_regex=True)
_EXTRA_WITHIN: Final = NormalizerStep("Replace", " {2,}", is_regex=True, content=" ")
_EXTRA_AT_END: Final = NormalizerStep("Replace", r" +\z", is_regex=True)


class _Piece(NamedTuple):
    text: str
    score: float
    type: int


def is_sentencepiece(data: bytes) -> bool:
    """Whether a file begins as a `tokenizer.model` does: with a piece, and after it another."""
    if (
        len(data) < 4
        or data[0] != 0x0A
        or data[2] != 0x0A
        or data[3] + 2 > data[1]
        or data[1] > 127
    ):
        return False
    return data[2 + data[1] :][:1] == b"\n"


def load_sentencepiece(path: str | os.PathLike[str]) -> TokenizerSpec:
    """The spec of a `tokenizer.model`, of kind `merges`. Control pieces are special tokens; those
    that the file names (`bos_token`, `eos_token`, ...) are the variables of its chat templates.

    Raises:
        FormatError: the file is malformed, is not BPE with byte fallback, or has a setting that
            cannot be read exactly (named).
        InvalidSpecError: a piece is too long.
    """
    return parse_sentencepiece(read_whole_file(path, max_bytes=MAX_FILE_BYTES))


def parse_sentencepiece(data: bytes) -> TokenizerSpec:
    """Parse the bytes of a `tokenizer.model` to a spec; raises as `load_sentencepiece`."""
    parts: dict[str, bytes] = dict.fromkeys(_MODEL.values(), b"")
    pieces: list[_Piece] = []
    for number, kind, value in _fields_of(data, "the file"):
        if kind != _BYTES or number not in (1, 2, 3, 4, 5):
            raise _malformed(f"the file has the unknown field {number}")
        assert isinstance(value, bytes)  # noqa: S101 - for mypy
        if number == 1:
            pieces.append(_parse_piece(value, len(pieces)))
        elif number in _MODEL:
            parts[_MODEL[number]] += value  # parts of a message are joined
    trainer = _values_of(parts["trainer_spec"], "trainer_spec", _TRAINER, has_others=True)
    normalizer = _values_of(parts["normalizer_spec"], "normalizer_spec", _NORMALIZER)
    others = _values_of(parts["denormalizer_spec"], "denormalizer_spec", _NORMALIZER)
    _check_settings(trainer, normalizer, others)
    spec = _spec_of(
        pieces,
        puts_space=bool(normalizer["add_dummy_prefix"]),
        drops_extra=bool(normalizer["remove_extra_whitespaces"]),
    )
    contents = {content.encode(): content for content in spec.special_tokens}
    named = {name: contents[value] for name, value in trainer.items() if value in contents}
    return spec.with_chat(ChatTemplates(variables=named))


def _malformed(what: str) -> FormatError:
    return FormatError(f"tokenizer.model: {what}; get the complete file")


def _refused(what: str) -> FormatError:
    return FormatError(
        f"tokenizer.model: {what}, which cannot be read exactly. Encode with sentencepiece"
    )


def _fields_of(data: bytes, where: str) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of each field of a message of Protocol Buffers."""
    at, n_fields = 0, 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while at < len(data) and shift < 64:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise _malformed(f"{where} ends within a number")

    while at < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        n_fields += 1
        if kind == _VARINT:
            yield number, kind, varint()
            continue
        sizes = {_FIXED64: 8, _FIXED32: 4}
        if n_fields > _MAX_FIELDS or (kind != _BYTES and kind not in sizes):
            raise _malformed(f"{where} has more than {_MAX_FIELDS} fields, or one of no known type")
        size = varint() if kind == _BYTES else sizes[kind]
        if size > len(data) - at:
            raise _malformed(f"{where} ends within a field")
        yield number, kind, data[at : at + size]
        at += size


def _values_of(
    data: bytes, where: str, known: _Fields, *, has_others: bool = False
) -> dict[str, Any]:
    """Name -> value of the known fields of a message, the last of each."""
    values = {name: default for name, _, default in known.values()}
    for number, kind, value in _fields_of(data, where):
        if number in known:
            name, wanted, _ = known[number]
            if kind != wanted:
                raise _malformed(f"{where}.{name} has another type")
            values[name] = value
        elif not has_others:
            raise FormatError(
                f"tokenizer.model: {where} has the unknown field {number}, which may change ids; "
                f"take a newer release of this library"
            )
    return values


def _check_settings(
    trainer: dict[str, Any], normalizer: dict[str, Any], denormalizer: dict[str, Any]
) -> None:
    model = trainer["model_type"]
    if model != _MODELS.index("BPE"):
        name = _MODELS[model] if 0 < model < len(_MODELS) else model
        raise FormatError(
            f"tokenizer.model: trainer_spec.model_type is {name}; this service runs BPE with byte "
            f"fallback. Encode with sentencepiece"
        )
    for where, values, name, wanted in (
        ("trainer_spec", trainer, "byte_fallback", True),
        ("trainer_spec", trainer, "treat_whitespace_as_suffix", False),
        ("normalizer_spec", normalizer, "escape_whitespaces", True),
    ):
        if bool(values[name]) != wanted:
            raise _refused(f"{where}.{name} is {'false' if wanted else 'true'}")
    for where, values in (("normalizer_spec", normalizer), ("denormalizer_spec", denormalizer)):
        if values["precompiled_charsmap"]:
            named = values["name"].decode(errors="replace")
            raise _refused(f"{where} is {named!r:.60} and changes characters")


def _parse_piece(data: bytes, id_: int) -> _Piece:
    usual = _USUAL_PIECE.fullmatch(data)
    if usual and len(usual[2]) == ord(usual[1]):
        text, score, kind = usual[2], usual[3], ord(usual[4]) if usual[4] else _NORMAL
    else:
        text, score, kind = _values_of(data, f"piece {id_}", _PIECE).values()
    number: float = _FLOAT.unpack(score)[0]
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise _malformed(f"piece {id_} is not UTF-8") from None
    if not decoded or not math.isfinite(number):
        raise _malformed(f"piece {id_} has no text, or a score that is no number")
    return _Piece(decoded, number, kind)


def _check_pieces(pieces: list[_Piece]) -> tuple[int, ...]:
    """Refuse pieces that cannot be read exactly; the ids of the 256 bytes."""
    byte_ids: dict[int, int] = {}
    known: dict[str, int] = {}
    for id_, (text, _, kind) in enumerate(pieces):
        if known.setdefault(text, id_) != id_:
            raise _malformed(f"the pieces {known[text]} and {id_} are both {text!r:.60}")
        if kind == _BYTE:
            found = _BYTE_NAME.fullmatch(text)
            if not found:
                raise _malformed(f"the byte piece {id_} is {text!r:.60}, which names no byte")
            byte_ids[int(found[1], 16)] = id_
        elif kind not in (_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED):
            named = "UNUSED" if kind == _UNUSED else kind
            raise _refused(f"piece {id_}, {text!r:.60}, is of type {named}")
        elif kind in (_NORMAL, _USER_DEFINED) and " " in text:
            raise FormatError(
                f"tokenizer.model: piece {id_}, {text!r:.60}, holds a space, and sentencepiece "
                f"finds it in no text: it writes spaces as U+2581. Write the piece so, or take it "
                f"out"
            )
        elif kind in (_CONTROL, _UNKNOWN) and len(text) == 1:
            raise _refused(f"piece {id_}, {text!r:.60}, is a character that no text gives")
    if len(byte_ids) != 256:
        missing = next(byte for byte in range(256) if byte not in byte_ids)
        raise _malformed(f"there is no piece <0x{missing:02X}>, which byte_fallback needs")
    return tuple(byte_ids[byte] for byte in range(256))


def _spec_of(pieces: list[_Piece], *, puts_space: bool, drops_extra: bool) -> TokenizerSpec:
    byte_ids = _check_pieces(pieces)
    vocab: dict[int, bytes] = {}
    added: list[AddedToken] = []
    for id_, (text, _, kind) in enumerate(pieces):
        vocab[id_] = text.replace(METASPACE_CHARACTER, " ").encode()
        if kind in (_CONTROL, _UNKNOWN):
            added.append(AddedToken(text, id_))
        elif kind == _USER_DEFINED:
            added.append(AddedToken(text, id_, special=False, normalized=True))
    vocab |= {id_: bytes([byte]) for byte, id_ in enumerate(byte_ids)}
    merges = _merges_of(pieces)
    normalizer = normalizer_of("metaspace-prepend" if puts_space else "metaspace")
    if drops_extra:
        begin = PREPEND if puts_space else _EXTRA_AT_START
        steps = (begin, _EXTRA_WITHIN, META_TO_SPACE, _EXTRA_AT_END)
        normalizer = normalizer_of("metaspace-steps", steps)
    elif puts_space and any(token.normalized for token in added):
        normalizer = normalizer_of("metaspace-steps", (PREPEND, META_TO_SPACE))
    elif not puts_space:
        added = search_together(added, normalizer)
    return TokenizerSpec.from_merges(
        vocab,
        merges,
        added,
        pattern=pattern_of_characters(merges),
        normalizer=normalizer,
        alphabet=Alphabet(byte_ids),
    )


def _merges_of(pieces: list[_Piece]) -> list[tuple[bytes, bytes]]:
    """The last merge of each piece that merging makes, the best score first."""
    defined = [piece.text for piece in pieces if piece.type == _USER_DEFINED]
    found = re.compile("|".join(map(re.escape, defined))) if defined else None
    singles = {text for text, _, kind in pieces if kind == _NORMAL and len(text) == 1}
    learned = [piece for piece in pieces if piece.type == _NORMAL and len(piece.text) > 1]
    # A user-defined piece is cut out first, so no text gives a piece that holds one.
    learned = [piece for piece in learned if not (found and found.search(piece.text))]
    for text, _, _ in learned:
        if not singles.issuperset(text):
            lacking = next(character for character in text if character not in singles)
            raise _refused(
                f"{lacking!r} of the piece {text!r:.60} is no piece itself, so that merging starts "
                f"from the unknown token"
            )
    # Of runs of one character, the leftmost merge makes the longest.
    learned.sort(key=lambda piece: (-piece.score, -len(piece.text)))
    for one, other in pairwise(learned):
        if one.score == other.score and len(set(one.text + other.text)) > 1:
            raise _refused(
                f"the pieces {one.text!r:.60} and {other.text!r:.60} have the same score, so that "
                f"their order depends on the text"
            )
    ranks: dict[bytes, int] = {bytes([byte]): byte for byte in range(256)}
    for data in sorted(map(str.encode, singles)):
        # Bytes join to a character before characters join.
        for size in range(2, len(data) + 1):
            ranks.setdefault(data[:size], len(ranks))
    n_starts = len(ranks)
    for text, _, _ in learned:
        ranks[text.replace(METASPACE_CHARACTER, " ").encode()] = len(ranks)
    merges, _ = recover_reachable_merges(ranks)
    return [(left, right) for left, right in merges if ranks[left + right] >= n_starts]
