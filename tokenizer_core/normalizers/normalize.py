r"""Unicode normal forms as Hugging Face's `tokenizers` computes them, on any Python; the rules of
SentencePiece; and offsets in the text before NFC.

Hugging Face uses the tables of an old Unicode version. Characters that got a combining class or a
decomposition later are plain starters there, which join with no other character. Python's tables
are newer, and differ between Python versions. Normalization never changes for characters that a
version already had. This module therefore cuts the text at the newer characters, leaves these
unchanged, and gets Hugging Face's result from any Python's tables. The list of newer characters
comes from a comparison of both on all code points; the parity tests repeat it.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, TypeGuard, get_args

import numpy as np
import regex

from tokenizer_core.splitting.unicode_sets import compile_exactly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

# Characters with a canonical decomposition or combining class in Unicode 18 but not in Hugging
# Face's tables, and the starters that newer versions compose into such characters.
_NEWER: Final = (
    r"\u05c8-\u05c9\u07fd\u0897-\u089f\u08ca-\u08d3\u09fe\u0c3c\u0d3b-\u0d3c\u0eba\u1715"
    r"\u1abf-\u1af0\u1df6-\u1dfa\ua82c\U000105c9\U000105d2\U000105da\U000105e4\U00010d24-\U00010d27"
    r"\U00010d69-\U00010d6d\U00010eab-\U00010eac\U00010ecb-\U00010ecf\U00010ef0-\U00010efb"
    r"\U00010efd-\U00010eff\U00010f46-\U00010f50\U00010f82-\U00010f85\U00011070\U0001133b"
    r"\U00011382-\U00011385\U0001138b\U0001138e\U00011390-\U00011391\U000113c2\U000113c5"
    r"\U000113c7-\U000113c8\U000113ce-\U000113d0\U0001145e\U00011839-\U0001183a\U00011935"
    r"\U00011938\U0001193d-\U0001193e\U00011943\U000119e0\U00011a34\U00011a47\U00011a99"
    r"\U00011d42\U00011d44-\U00011d45\U00011d97\U00011f41-\U00011f42\U0001611e-\U00016129"
    r"\U0001612f\U00016d63\U00016d67-\U00016d6a\U00016ff0-\U00016ff1\U0001d127-\U0001d128"
    r"\U0001d250-\U0001d252\U0001d25b-\U0001d25c\U0001d25f\U0001d280-\U0001d281\U0001e08f"
    r"\U0001e130-\U0001e136\U0001e2ae\U0001e2ec-\U0001e2ef\U0001e4ec-\U0001e4ef"
    r"\U0001e5ee-\U0001e5ef\U0001e6e3\U0001e6e6\U0001e6ee-\U0001e6ef\U0001e6f5"
)
# The same for the compatibility decompositions of NFKC and NFKD alone.
_NEWER_COMPATIBLE: Final = (
    r"\u0558\u058b-\u058c\u209d-\u209f\u32ff\ua7f1-\ua7f4\uab69\U00010781-\U00010785"
    r"\U00010787-\U000107b0\U000107b2-\U000107bf\U0001b123-\U0001b126\U0001ccd6-\U0001ccf9"
    r"\U0001d6a6\U0001df95\U0001dfcd-\U0001dfff\U0001e030-\U0001e06d\U0001f16c"
    r"\U0001fbf0-\U0001fbf9"
)
METASPACE_CHARACTER: Final = "\u2581"

_AT_NEWER = regex.compile(f"([{_NEWER}])")
_AT_NEWER_COMPATIBLE = regex.compile(f"([{_NEWER}{_NEWER_COMPATIBLE}])")
# Only these interact with the characters before them: marks, and the vowels and trailing
# consonants of Hangul. Every other character starts a piece that normalizes on its own.
_JOINING: Final = r"\p{M}\u1161-\u1175\u11a8-\u11c2"
_PIECE = compile_exactly(rf"[^{_JOINING}]?[{_JOINING}]*+", regex.DOTALL)
_LAST_START = compile_exactly(rf"(?r)[^{_JOINING}]", regex.DOTALL)


def normalize_nfc(text: str) -> str:
    """`text` in NFC, equal to Hugging Face's `NFC()` for every text.

    Example:
        >>> normalize_nfc("e\\u0301") == "\\u00e9"
        True
    """
    if unicodedata.is_normalized("NFC", text):
        return text
    return normalize_form("NFC", text)


def normalize_form(form: Form, text: str) -> str:
    """`text` in a Unicode normal form, equal to Hugging Face's for every text.

    Example:
        >>> normalize_form("NFKD", "\\ufb01\\u00e9") == "fie\\u0301"
        True
    """
    if text.isascii():
        return text
    pieces = (_AT_NEWER_COMPATIBLE if "K" in form else _AT_NEWER).split(text)
    # A newer character is a piece of its own.
    pieces[::2] = [unicodedata.normalize(form, piece) for piece in pieces[::2]]
    return "".join(pieces)


FormTables = tuple[list[tuple[str, str]], list[tuple[str, int]], list[tuple[tuple[str, str], str]]]

# All characters with a decomposition or a combining class, and others.
_DECOMPOSING: Final = (
    range(0xA0, 0x3400),
    range(0xA000, 0xD7A4),
    range(0xF900, 0x20000),
    range(0x2F800, 0x2FA20),
)


@cache
def form_tables(form: Form) -> FormTables:
    """What `normalize_form` does, as tables: characters and what they decompose to, combining
    classes other than 0, and two characters and the one that they compose to.

    Example:
        >>> decompositions, classes, compositions = form_tables("NFC")
        >>> dict(decompositions)["\u00e9"], dict(classes)["\u0301"]
        ('é', 230)
        >>> dict(compositions)["e", "\u0301"]
        'é'
    """
    decompositions, classes, compositions = [], [], []
    decomposing: Form = "NFKD" if "K" in form else "NFD"
    for character in map(chr, chain.from_iterable(_DECOMPOSING)):
        if is_newer(character, form):
            continue
        if mark := unicodedata.combining(character):
            classes.append((character, mark))
        decomposed = unicodedata.normalize(decomposing, character)
        if decomposed != character:
            decompositions.append((character, decomposed))
        if form[-1] == "C":
            pair = _composed_pair(character)
            if pair and not any(is_newer(part, form) for part in pair):
                compositions.append((pair, character))
    return decompositions, classes, compositions


def _composed_pair(whole: str) -> tuple[str, str] | None:
    """The two characters that compose to `whole`, if any do."""
    decomposed = unicodedata.normalize("NFD", whole)
    if decomposed == whole or unicodedata.normalize("NFC", decomposed) != whole:
        return None
    if "\uac00" <= whole <= "\ud7a3":  # a vowel is the last part, or a final consonant
        return unicodedata.normalize("NFC", decomposed[:-1]), decomposed[-1]
    left, right = unicodedata.decomposition(whole).split()
    return chr(int(left, 16)), chr(int(right, 16))


def normalize_metaspace(rule: str, text: str, *, is_first: bool, continues: bool = False) -> str:
    """`text`, the whole of a text or a part between special tokens, with U+2581 read as a space and
    the space that `rule` puts before it; `is_first` if the whole text begins with it. With
    `continues`, `text` continues a part that was cut, before which there is no space to put.

    SentencePiece writes a space as U+2581; here the vocabulary's tokens hold the space itself. The
    rules: `metaspace` puts none, `metaspace-prepend` always one (Llama 2), `metaspace-always` one
    before a text without, `metaspace-first` the same for the first part alone (Mistral).
    `prefix-space` is `metaspace-always` for byte-level BPE, where U+2581 is no space.

    Example:
        >>> normalize_metaspace("metaspace-first", "a▁b", is_first=True)
        ' a b'
    """
    if rule != "prefix-space":
        text = text.replace(METASPACE_CHARACTER, " ")
    if not text or continues or rule == "metaspace":
        return text
    if rule == "metaspace-prepend":
        return " " + text
    if text[0] == " " or (rule == "metaspace-first" and not is_first):
        return text
    return " " + text


def strips_space(normalizer: str) -> bool:
    """Whether decoding leaves out a space at the beginning, which encoding may have put there."""
    return normalizer.startswith("metaspace-")


NfcChange = tuple[int, int, str]
"""Start and end of a part of a text, in characters, and the part in NFC."""


def changes_by_nfc(text: str, runs: Iterable[tuple[int, int]] | None = None) -> list[NfcChange]:
    """The changes that `normalize_nfc` makes in `text`. `runs` lists the only characters that NFC
    may change; then the result has one change per changed run, including the character before it.
    Without `runs`, the result is one change of the whole text.

    Example:
        >>> changes_by_nfc("cafe\u0301s", [(4, 5)])
        [(3, 5, 'é')]
    """
    changes = []
    for start, end in [(0, len(text))] if runs is None else runs:
        start = max(start - 1, 0)
        part = text[start:end]
        normalized = normalize_nfc(part)
        if normalized != part:
            changes.append((start, end, normalized))
    return changes


def changed(text: str, changes: Iterable[NfcChange]) -> str:
    """Apply these changes, which must be in order, to `text`."""
    parts, end = [], 0
    for start, next_end, normalized in changes:
        parts += [text[end:start], normalized]
        end = next_end
    return "".join([*parts, text[end:]]) if parts else text


def touch_any(
    text: str, changes: list[NfcChange], find: Callable[[str], str | None], longest: int
) -> bool:
    """Whether the changes may create or remove one of the strings that `find` finds; the longest of
    these strings has `longest` characters."""
    index = 0
    while longest and index < len(changes):
        first = index
        while index + 1 < len(changes) and changes[index + 1][0] - changes[index][1] < longest:
            index += 1
        start, end = max(0, changes[first][0] - longest), changes[index][1] + longest
        part = text[start:end]
        near = [(s - start, e - start, new) for s, e, new in changes[first : index + 1]]
        if find(part) or find(changed(part, near)):
            return True
        index += 1
    return False


def is_form(kind: str) -> TypeGuard[Form]:
    """Whether `kind` names a normal form."""
    return kind in get_args(Form)


def is_newer(character: str, form: Form = "NFC") -> bool:
    """Whether Hugging Face's tables for a normal form lack a character."""
    newer = _AT_NEWER_COMPATIBLE if "K" in form else _AT_NEWER
    return newer.match(character) is not None


def settled_length(text: str) -> int:
    """The number of characters of `text` whose normal form no appended text changes."""
    last = _LAST_START.search(text)
    return last.start() if last else 0


class SourceSize:
    """Counts the bytes of original text whose normalized text was returned.

    A normalized character may be returned while another one of the same piece is pending; the
    piece counts once all of it was returned.
    """

    def __init__(self) -> None:
        self._source = ""
        self._given = 0  # UTF-8 bytes of the normalized source that were returned

    @property
    def held_bytes(self) -> int:
        """UTF-8 bytes of the source that were not yet returned."""
        return len(self._source.encode())

    def add(self, source: str) -> None:
        """Add original text that was normalized."""
        self._source += source

    def give(self, normalized: str) -> None:
        """Record that this normalized text was returned."""
        self._given += len(normalized.encode())
        offsets = np.array([[self._given, self._given]], dtype=np.uint64)
        data = self._source.encode()
        if not unicodedata.is_normalized("NFC", self._source):
            offsets = OriginalOffsets(self._source).map(offsets)
        out, self._source = _split_bytes(data, int(offsets[0, 0]))
        self._given -= len(normalize_nfc(out).encode())


class MetaspaceSource:
    """As `SourceSize`, for a text in which U+2581 became a space, with a space before it."""

    def __init__(self) -> None:
        self._source = ""
        self._n_put = 0  # spaces before the source that were not yet returned

    @property
    def held_bytes(self) -> int:
        """UTF-8 bytes of the source that were not yet returned."""
        return len(self._source.encode())

    def add(self, source: str, n_put: int) -> None:
        """Add original text, with `n_put` spaces before it; only all text before may be held."""
        self._source += source
        self._n_put += n_put

    def give(self, normalized: str) -> None:
        """Record that this normalized text was returned."""
        n_put = min(self._n_put, len(normalized))
        self._n_put -= n_put
        self._source = self._source[len(normalized) - n_put :]


def metaspace_offsets(
    source: str, normalized: str, offsets: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Offsets in `source` for those in its normalized text, shape (n, 2), in bytes. A token that is
    the space before the text has those of the first character, as in Hugging Face."""
    n_put = len(normalized) - len(source)
    mapped = _metaspace_offsets(source, normalized, n_put, offsets)
    if n_put and len(offsets) and offsets[0, 1] == n_put:
        mapped[0, 1] = len(source[0].encode())
    return mapped


def _metaspace_offsets(
    source: str, normalized: str, n_put: int, offsets: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    if source == normalized[n_put:]:
        return np.maximum(offsets, np.uint64(n_put)) - np.uint64(n_put)
    sizes = np.ones(len(normalized.encode()) + 1, dtype=np.int64)
    starts = np.cumsum([0, *map(len, map(str.encode, normalized))])
    sizes[-1] = 0
    sizes[:n_put] = 0
    changed_at = [i + n_put for i, c in enumerate(source) if c == METASPACE_CHARACTER]
    sizes[starts[changed_at]] = len(METASPACE_CHARACTER.encode())
    original = np.concatenate(([0], np.cumsum(sizes)))[: len(sizes)]
    mapped: NDArray[np.uint64] = original[offsets.astype(np.int64)].astype(np.uint64)
    return mapped


def _split_bytes(data: bytes, at: int) -> tuple[str, str]:
    """Split UTF-8 bytes at a character boundary; return two texts."""
    return data[:at].decode(), data[at:].decode()


class OriginalOffsets:
    """Maps UTF-8 byte offsets in a normalized text to offsets in the original text.

    Inside a piece that normalizing changed, a start maps to the start of the piece and an end to
    its end: a token with half of a composed character covers the whole piece.
    """

    def __init__(self, text: str) -> None:
        rows: list[tuple[int, int, int, int]] = []
        before = after = 0
        for match in _PIECE.finditer(text):
            piece = match.group()
            if not piece:
                continue
            size = len(piece.encode())
            normalized = normalize_nfc(piece) if len(piece) > 1 or ord(piece) > 0x2FF else piece
            new_size = size if normalized == piece else len(normalized.encode())
            if normalized != piece:
                rows.append((after, after + new_size, before, before + size))
            before += size
            after += new_size
        self._rows = np.array(rows, dtype=np.int64).reshape(-1, 4)

    def map(self, offsets: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Original offsets of shape (n, 2) for normalized ones of shape (n, 2), both in bytes."""
        if not len(self._rows):
            return offsets
        signed = offsets.astype(np.int64)
        starts = self._map_side(signed[:, 0], inside_to=2)
        ends = self._map_side(signed[:, 1], inside_to=3)
        return np.stack([starts, ends], axis=1).astype(np.uint64)

    def _map_side(self, offsets: NDArray[np.int64], inside_to: int) -> NDArray[np.int64]:
        table = self._rows
        # The last changed piece that begins before the offset (or at it, for the start of a token).
        side = "right" if inside_to == 2 else "left"
        row = np.searchsorted(table[:, 0], offsets, side=side) - 1  # type: ignore[call-overload]
        known = table[np.maximum(row, 0)]
        inside = (row >= 0) & (offsets < known[:, 1] if inside_to == 2 else offsets <= known[:, 1])
        shifted = np.where(row >= 0, offsets - known[:, 1] + known[:, 3], offsets)
        mapped: NDArray[np.int64] = np.where(inside, known[:, inside_to], shifted)
        return mapped
