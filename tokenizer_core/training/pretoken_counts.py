"""PretokenCounts: how often each pre-token occurs in a corpus, with what it was counted by.

Counting is most of the time of a training run and does not depend on the vocabulary size; kept in
a file, the counts train another size in seconds and without the corpus. They stand apart from the
counting so that learning from saved counts needs nothing of it. May import `errors`, `patterns`,
`documents`, `storage`, `formats.whole_files`, `pruning`, and `saved_counts`, `spilled_counts` and
`engines.native_training`, whose counts are taken as they are.

The file, all numbers little-endian: the magic line, u64 length of the header, the header (JSON),
u32 length in characters of each pre-token, u64 count of each, the pre-tokens joined in UTF-8,
sha256 of everything before it. Pre-tokens are sorted, so equal counts give equal files.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final

from tokenizer_core.blobs import open_stored
from tokenizer_core.blobs.atomic_files import read_whole_file, write_whole_file
from tokenizer_core.documents.corpus_addresses import is_address
from tokenizer_core.engines.native_training import NativeCounts
from tokenizer_core.errors import CorpusError, FormatError
from tokenizer_core.patterns import UNICODE_TABLES, SplitPattern, resolve_pattern
from tokenizer_core.training.pruning import Pruning
from tokenizer_core.training.saved_counts import open_regular, read_saved_counts
from tokenizer_core.training.spilled_counts import StoredCounts

MAX_FILE_BYTES: Final = 1 << 36
"""More than any counts that would fit into memory."""

MAX_SUM: Final = (1 << 64) - 1
"""Of the bytes of all pre-tokens; the native learner counts in 64 bits."""

_MAGIC: Final = b"tokenizer-pretoken-counts-1\n"
_DIGEST_BYTES: Final = 32
_BATCH: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class CorpusSource:
    """One file of a corpus: where it was, how large, and the sha256 (hex) of what was counted."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PretokenCounts:
    """Counts of the pre-tokens of a corpus, and everything that decided them.

    - `counts`: pre-token -> occurrences (at least 1). Special tokens are cut out, never counted.
    - `n_bytes`: bytes of the corpus, special tokens included. `n_documents`: stretches of text
      between special tokens that are not empty.
    - `n_spills`: how often counting came to its memory ceiling and went on on the disk.
    - `weights`: how often each of the sources was counted, in their order; empty: once each.
    - `pruning`: what was left out, where `prune_counts` left something out. `n_pre_tokens` and
      `n_pre_token_bytes` are without it.
    """

    counts: Mapping[str, int]
    pattern: SplitPattern
    special_tokens: tuple[str, ...] = ()
    sources: tuple[CorpusSource, ...] = ()
    n_bytes: int = 0
    n_documents: int = 0
    unicode_tables: str = UNICODE_TABLES
    weights: tuple[int, ...] = ()
    pruning: Pruning | None = None
    n_spills: int = field(default=0, compare=False)

    @property
    def source_weights(self) -> tuple[int, ...]:
        """The weight of each source, also where all are 1."""
        return self.weights or (1,) * len(self.sources)

    @property
    def n_pre_tokens(self) -> int:
        """Pre-tokens of the corpus that were not left out, repetitions included."""
        if isinstance(self.counts, NativeCounts | StoredCounts):
            return self.counts.n_pre_tokens
        return sum(self.counts.values())

    @property
    def n_pre_token_bytes(self) -> int:
        """UTF-8 bytes of these pre-tokens, which is the corpus without its special tokens."""
        if isinstance(self.counts, NativeCounts):
            return self.counts.n_bytes
        return sum(
            count * (len(pre_token) if pre_token.isascii() else len(pre_token.encode()))
            for pre_token, count in self.counts.items()
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the counts to a file, whole or not at all (a temporary file beside it, renamed).

        At an address (`s3://bucket/news.counts`) they are put from a temporary file.

        Raises:
            OSError: the file cannot be written.
            StorageError: the storage at the address cannot be reached, or refuses.
        """
        name = os.fspath(path)
        if not is_address(name):
            write_whole_file(path, self._render())
            return
        storage, stored_name = open_stored(name)
        with tempfile.TemporaryDirectory() as folder:
            write_whole_file(path := Path(folder, "counts"), self._render())
            storage.put(stored_name, path)

    def _render(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for part in self._render_fields():
            digest.update(part)
            yield part
        yield digest.digest()

    def _render_fields(self) -> Iterator[bytes]:
        columns = _columns_of(self.counts)
        header = {
            "pattern": {"name": self.pattern.name, "expression": self.pattern.expression},
            "unicode_tables": self.unicode_tables,
            "special_tokens": list(self.special_tokens),
            "sources": [asdict(source) for source in self.sources],
            "n_bytes": self.n_bytes,
            "n_documents": self.n_documents,
            "n_distinct": len(self.counts),
            "n_pre_tokens": self.n_pre_tokens,
            "text_bytes": columns.text_bytes,
        }
        if self.weights:
            header["weights"] = list(self.weights)
        if self.pruning is not None:
            header["pruning"] = asdict(self.pruning)
        rendered = json.dumps(header, sort_keys=True).encode("ascii")
        yield _MAGIC
        yield len(rendered).to_bytes(8, "little")
        yield rendered
        yield from columns.lengths
        yield from columns.counts
        yield from columns.text

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        pattern: str | SplitPattern | None = None,
        special_tokens: Sequence[str] | None = None,
        on_disk: bool = False,
    ) -> PretokenCounts:
        """Read counts that `save` wrote, and check that they are what is expected.

        With `pattern` or `special_tokens` given, the counts must have been made with the same. From
        an address they are fetched into a temporary file first. With `on_disk` they stay in the
        file, open as long as they are needed, and are read from it each time they are gone through.

        Raises:
            FormatError: the file is no such file, is cut short, or is damaged.
            CorpusError: it was counted with another pattern, other special tokens, or other
                Unicode tables than those of this installation.
            OSError: the file cannot be read.
            StorageError: the storage at the address cannot be reached, or has nothing of that name.
        """
        name = os.fspath(path)
        loaded = _read_on_disk(name) if on_disk else _parse(_read(name), name)
        loaded._check_fits(name, pattern, special_tokens)
        return loaded

    def _check_fits(
        self, name: str, pattern: str | SplitPattern | None, special_tokens: Sequence[str] | None
    ) -> None:
        remedy = "count the corpus again, or ask for what the file holds"
        if self.unicode_tables != UNICODE_TABLES:
            raise CorpusError(
                f"{name} was counted with the Unicode tables of {self.unicode_tables}, this "
                f"installation has {UNICODE_TABLES}, which may split the text elsewhere; {remedy}"
            )
        if pattern is not None and (wanted := resolve_pattern(pattern)) != self.pattern:
            raise CorpusError(
                f"{name} was counted with the split pattern {self.pattern.name!r}, "
                f"not {wanted.name!r}; {remedy}"
            )
        if special_tokens is not None and tuple(special_tokens) != self.special_tokens:
            raise CorpusError(
                f"{name} was counted with the special tokens {list(self.special_tokens)!r:.200}, "
                f"not {list(special_tokens)!r:.200}; {remedy}"
            )


@dataclass(frozen=True, slots=True)
class _Columns:
    """What the file holds behind its header, in parts, which are made when they are asked for."""

    lengths: Iterable[bytes]
    counts: Iterable[bytes]
    text: Iterable[bytes]
    text_bytes: int


def _columns_of(counts: Mapping[str, int]) -> _Columns:
    if isinstance(counts, NativeCounts):
        words = counts.sorted()
        # Gone through for each column, so that no column is ever whole in memory.
        return _Columns(
            (lengths for lengths, _, _ in words.columns(_BATCH)),
            (numbers for _, numbers, _ in words.columns(_BATCH)),
            (text for _, _, text in words.columns(_BATCH)),
            words.text_bytes,
        )
    if isinstance(counts, StoredCounts):
        return _Columns(*counts.columns(), counts.text_bytes)
    pre_tokens = sorted(counts)
    return _Columns(
        _render_numbers("I", map(len, pre_tokens)),
        _render_numbers("Q", map(counts.__getitem__, pre_tokens)),
        _render_text(pre_tokens),
        sum(len(part) for part in _render_text(pre_tokens)),
    )


def _render_text(pre_tokens: Iterable[str]) -> Iterator[bytes]:
    rest = iter(pre_tokens)
    while part := list(islice(rest, _BATCH)):
        yield "".join(part).encode()


def _render_numbers(typecode: str, numbers: Iterable[int]) -> Iterator[bytes]:
    rest = iter(numbers)
    while values := array(typecode, islice(rest, _BATCH)):
        if sys.byteorder == "big":
            values.byteswap()
        yield values.tobytes()


def _parse_numbers(typecode: str, data: bytes) -> array[int]:
    values: array[int] = array(typecode)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _parse(data: bytes, name: str) -> PretokenCounts:
    """The counts in `data`; every length is checked against what is there before it is used."""
    if not data.startswith(_MAGIC):
        raise FormatError(f"{name} is not a file of pre-token counts")
    damaged = _damaged(name)
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(body) < len(_MAGIC) + 8 or hashlib.sha256(body).digest() != digest:
        raise damaged
    header_start = len(_MAGIC) + 8
    header_end = header_start + int.from_bytes(body[len(_MAGIC) : header_start], "little")
    if header_end > len(body):
        raise damaged
    try:
        header = json.loads(body[header_start:header_end])
        return _parse_header(header, _parse_counts(header, body[header_end:]), name)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise error if isinstance(error, FormatError) else damaged from None


def _read_on_disk(name: str) -> PretokenCounts:
    with _local(name) as path:
        file = open_regular(path)
    try:
        if os.pread(file.fileno(), len(_MAGIC), 0) != _MAGIC:
            raise FormatError(f"{name} is not a file of pre-token counts")
        return _parse_header(*read_saved_counts(file, _MAGIC), name)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        file.close()
        raise error if isinstance(error, FormatError) else _damaged(name) from None


def _parse_header(header: dict[str, Any], counts: Mapping[str, int], name: str) -> PretokenCounts:
    n_pre_tokens = n_bytes = 0
    for pre_token, count in counts.items():
        n_pre_tokens += count
        n_bytes += count * (len(pre_token) if pre_token.isascii() else len(pre_token.encode()))
    if n_pre_tokens != _parse_size(header["n_pre_tokens"]):
        raise ValueError("the counts do not add up")
    if n_bytes > MAX_SUM:
        raise FormatError(
            f"{name} counts more bytes than 64 bits hold; count the corpus again, or give smaller "
            f"weights"
        )
    return PretokenCounts(
        counts=counts,
        pattern=_parse_pattern(header["pattern"]),
        special_tokens=tuple(map(str, header["special_tokens"])),
        sources=tuple(map(_parse_source, header["sources"])),
        n_bytes=_parse_size(header["n_bytes"]),
        n_documents=_parse_size(header["n_documents"]),
        unicode_tables=str(header["unicode_tables"]),
        weights=_parse_weights(header),
        pruning=Pruning.parse(header["pruning"]) if "pruning" in header else None,
    )


def _damaged(name: str) -> FormatError:
    return FormatError(f"{name} is damaged or cut short; count the corpus again")


@contextmanager
def _local(name: str) -> Iterator[str]:
    """The path of a file, or of a copy of what is at an address, which is gone afterwards."""
    if not is_address(name):
        yield name
        return
    storage, stored_name = open_stored(name, read_only=True)
    with tempfile.TemporaryDirectory() as folder:
        storage.fetch(stored_name, path := Path(folder, "counts"))
        yield str(path)


def _read(name: str) -> bytes:
    with _local(name) as path:
        return read_whole_file(path, max_bytes=MAX_FILE_BYTES)


def _parse_pattern(fields: dict[str, Any]) -> SplitPattern:
    return resolve_pattern(SplitPattern(str(fields["name"]), str(fields["expression"])))


def _parse_size(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a size is no whole number, 0 or above")
    return value


def _parse_source(fields: dict[str, Any]) -> CorpusSource:
    source = CorpusSource(**fields)
    _parse_size(source.size_bytes)
    if not isinstance(source.path, str) or not isinstance(source.sha256, str):
        raise TypeError("the path or hash of a source is no text")
    return source


def _parse_weights(header: dict[str, Any]) -> tuple[int, ...]:
    weights = header.get("weights", [])
    if weights and len(weights) != len(header["sources"]):
        raise ValueError("not every source has a weight")
    if not all(type(weight) is int and weight >= 1 for weight in weights):
        raise ValueError("a weight is no number above 0")
    return tuple(weights)


def _parse_counts(header: dict[str, Any], body: bytes) -> dict[str, int]:
    n_distinct, text_bytes = _parse_size(header["n_distinct"]), _parse_size(header["text_bytes"])
    lengths_end = 4 * n_distinct
    counts_end = lengths_end + 8 * n_distinct
    if len(body) != counts_end + text_bytes:
        raise ValueError("the lengths do not add up")
    ends = list(accumulate(_parse_numbers("I", body[:lengths_end]), initial=0))
    numbers = _parse_numbers("Q", body[lengths_end:counts_end])
    text = body[counts_end:].decode("utf-8")
    if ends[-1] != len(text):
        raise ValueError("the pre-tokens do not add up to the text")
    counts = {
        text[start:end]: number for start, end, number in zip(ends, ends[1:], numbers, strict=False)
    }
    if len(counts) != n_distinct or "" in counts or 0 in counts.values():
        raise ValueError("a pre-token is empty, repeated or never counted")
    return counts
