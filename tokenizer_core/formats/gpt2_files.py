"""GPT-2's `vocab.json` and `merges.txt`, and their byte alphabet.

JSON and text cannot hold arbitrary bytes, so GPT-2 writes each byte as a printable character
(github.com/openai/gpt-2, `encoder.py`, `bytes_to_unicode`). `tokenizer.json` uses the same
alphabet. The pair of files has no split pattern, no normalizer and no list of special tokens; the
caller passes these.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from tokenizer_core.blobs.atomic_files import check_size, read_whole_file
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.tiktoken_file import check_is_plain, recover_merges
from tokenizer_core.spec.checks import MAX_TOKEN_BYTES, MAX_TOKEN_ID
from tokenizer_core.strict_json import parse_strict_json

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping

    from tokenizer_core.spec import TokenizerSpec

MAX_FILE_BYTES: Final = 64 << 20
"""The size cap of each file; the largest public vocabulary in this format has 4 MB."""

MAX_MERGES: Final = 2 << 20
"""Twice as many as there are ids. Llama 3, with every way to split a token, has 280,147."""

_MANY_LINES: Final = 1 << 16
"""With fewer lines, the merge that needs a token of another vocabulary is named soon."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_END_OF_ALPHABET: Final = 0x200
_NO_BYTE: Final = 0x100
_VERSION: Final = "#version"


@cache
def byte_to_unicode() -> Mapping[int, str]:
    """Byte -> its character in the alphabet.

    Bytes 33-126, 161-172 and 174-255 map to themselves; the other 68 map, in order, to U+0100
    onward.
    """
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain}
    table.update({byte: chr(0x100 + index) for index, byte in enumerate(others)})
    return MappingProxyType(table)


@cache
def _unicode_to_byte() -> Mapping[str, int]:
    return MappingProxyType({character: byte for byte, character in byte_to_unicode().items()})


def render_token(token: bytes) -> str:
    """`token` in the alphabet: one character per byte.

    Example:
        >>> render_token(b" caf\\xc3\\xa9")
        'ĠcafÃ©'
    """
    return token.decode("latin-1").translate(byte_to_unicode())


def parse_token(text: str) -> bytes | None:
    """The bytes of `text`, or None if a character is not in the alphabet."""
    try:
        return bytes(map(_unicode_to_byte().__getitem__, text))
    except KeyError:
        return None


def parse_tokens(texts: Collection[str]) -> list[bytes | None]:
    """As `parse_token`, for each text in order; processes hundreds of thousands at once."""
    import numpy as np

    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    if lengths.max(initial=0) > MAX_TOKEN_BYTES:
        raise FormatError(
            f"a token has {lengths.max()} characters, more than {MAX_TOKEN_BYTES}; leave it out"
        )
    characters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    alphabet = np.full(_END_OF_ALPHABET + 1, _NO_BYTE, dtype=np.uint16)
    for character, byte in _unicode_to_byte().items():
        alphabet[ord(character)] = byte
    found = alphabet[np.minimum(characters, _END_OF_ALPHABET)]
    ends = np.cumsum(lengths)
    data = found.astype(np.uint8).tobytes()
    tokens: list[bytes | None] = [data[start:end] for start, end in pairwise([0, *ends.tolist()])]
    foreign = np.searchsorted(ends, np.flatnonzero(found == _NO_BYTE), side="right")
    for index in np.unique(foreign).tolist():
        tokens[index] = None
    return tokens


def load_merges_txt(
    path: str | os.PathLike[str], tokens: Collection[str] | Collection[bytes]
) -> list[tuple[bytes, bytes]]:
    """The pairs of a file; raises as `parse_merges_txt`, and OSError.

    A file with more lines than there are ways to cut the tokens in two is refused at once.
    """
    data = read_whole_file(path, max_bytes=MAX_FILE_BYTES)
    n_lines, n_pairs = data.count(b"\n"), sum(map(len, tokens)) - len(tokens)
    if n_lines > max(n_pairs, _MANY_LINES):
        raise FormatError(
            f"the merges have {n_lines} lines, and the {len(tokens)} tokens can be made by "
            f"{max(n_pairs, 0)} merges only: these merges belong to another vocabulary"
        )
    return parse_merges_txt(data)


def parse_vocab_json(data: bytes) -> dict[int, bytes]:
    """Parse a `vocab.json` to id -> bytes. Raises FormatError: not an object of tokens and ids, or
    an id or a token given twice."""
    table = parse_strict_json(data, "the vocabulary")
    if not isinstance(table, dict):
        raise FormatError("the vocabulary must be a JSON object of tokens and their ids")
    vocab: dict[int, bytes] = {}
    for (text, id_), token in zip(table.items(), parse_tokens(table), strict=True):
        if token is None:
            raise FormatError(
                f"the token {text!r:.60} is not in GPT-2's byte alphabet; a vocabulary.json of "
                f"another kind (WordPiece, SentencePiece) is not byte-level BPE"
            )
        check_id(id_, text)
        if id_ in vocab:
            raise FormatError(f"id {id_} stands for two tokens, one of them {text!r:.60}")
        vocab[id_] = token
    return vocab


def check_id(id_: object, text: str) -> None:
    """Refuse values that are not ids: non-integers (also bools), negative or too large integers."""
    if type(id_) is not int or not 0 <= id_ <= MAX_TOKEN_ID:
        raise FormatError(
            f"the token {text!r:.60} has the id {id_!r:.40}, no integer in 0..{MAX_TOKEN_ID}"
        )


def parse_merges_txt(data: bytes) -> list[tuple[bytes, bytes]]:
    """The pairs of a `merges.txt`, in order; its first line may be `#version: ...`. Lines may end
    as on Windows: the byte alphabet has no line breaks. Raises FormatError: a line is not two
    tokens separated by one space; names the line."""
    if data.startswith(_BYTE_ORDER_MARK):
        raise FormatError("the merges begin with a byte order mark; remove it")
    if data.count(b"\n") > MAX_MERGES:
        raise FormatError(f"the merges have more than {MAX_MERGES} lines, one for each merge")
    try:
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise FormatError(f"the merges are not UTF-8: byte {error.start} is wrong") from None
    if lines[-1] == "":
        lines.pop()
    n_head = len(lines) > 0 and lines[0].startswith(_VERSION)
    lines = lines[n_head:]
    for number, line in enumerate(lines, 1 + n_head):
        if line.startswith(_VERSION):
            raise FormatError(
                f"merges line {number}, {line!r:.60}, begins with {_VERSION}: Hugging Face's "
                f"tokenizers takes every such line for a comment, others only the first"
            )
        if line.count(" ") != 1:
            raise _merge_error(number, line)
    sides = parse_tokens(" ".join(lines).split(" ")) if lines else []
    merges = list(zip(sides[::2], sides[1::2], strict=True))
    if not all(sides):
        index = next(index for index, merge in enumerate(merges) if not all(merge))
        raise _merge_error(1 + n_head + index, lines[index])
    return cast("list[tuple[bytes, bytes]]", merges)


def _merge_error(number: int, line: str) -> FormatError:
    return FormatError(
        f"merges line {number}, {line!r:.60}, is not two tokens of GPT-2's byte alphabet with one "
        f"space between"
    )


def render_gpt2_files(spec: TokenizerSpec) -> tuple[bytes, bytes]:
    """`vocab.json` and `merges.txt` of `spec`. They have no split pattern and do not mark special
    tokens. Raises FormatError: ids depend on something that the format cannot store: a normalizer,
    `ignore_merges`, missing bytes, ranks with tokens that merges do not reach, or one token with
    two ids. Also for specs on which readers of the format disagree: a special token that the byte
    alphabet spells differently, a merge that looks like the version line. Or a file would be too
    large to be read."""
    check_is_plain(spec, "GPT-2 files")
    merges = spec.merges
    if spec.kind == "ranks":
        merges = tuple(recover_merges(spec.token_to_id))
    elif spec.ignore_merges:
        raise FormatError(
            "GPT-2 files cannot say that a whole pre-token is looked up before merging "
            "(ignore_merges); save a tokenizer.json instead"
        )
    table = {render_token(token): id_ for id_, token in sorted(spec.vocab.items())}
    if len(table) != len(spec.vocab):
        raise FormatError("two ids stand for the same bytes, which vocab.json cannot hold")
    check_one_name_an_id(spec, "vocab.json")
    for token in spec.added_tokens:
        # Hugging Face would not find its content there and would give it a new id.
        if render_token(token.content.encode()) != token.content:
            raise FormatError(
                f"the special token {token.content!r:.60} has characters that vocab.json spells "
                f"otherwise, where other programs would not find it; save a tokenizer.json instead"
            )
    lines = [f"{_VERSION}: 0.2", *(f"{render_token(a)} {render_token(b)}" for a, b in merges)]
    for line in lines[1:]:
        if line.startswith(_VERSION):
            raise FormatError(
                f"the merge {line!r:.60} looks like the line of the version in merges.txt, and "
                f"Hugging Face's tokenizers would leave it out; save a tokenizer.json instead"
            )
    # Render in pieces: `dumps` would block every other thread for 0.1 s at 200,000 tokens.
    pieces = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).iterencode(table)
    files = "".join(pieces).encode(), ("\n".join(lines) + "\n").encode()
    for data in files:
        check_size(data, MAX_FILE_BYTES, "vocab.json or merges.txt")
    return files


def check_one_name_an_id(spec: TokenizerSpec, file: str) -> None:
    """Refuse two special tokens with one id, of which `file` could hold only one."""
    for content in spec.second_names():
        raise FormatError(
            f"the special token {content!r:.60} shares its id with another, which {file} cannot "
            f"hold; publish the tokenizer as an artifact, or save a .tiktoken file"
        )
