"""PretokenCounts: how often each pre-token occurs in a corpus, and how the corpus was counted.

Counting takes most of the time of a training run and does not depend on the vocabulary size. Saved
counts train another size in seconds, without the corpus.

The file, all numbers little-endian: the magic line, u64 length of the header, the header (JSON),
the three columns of `counts`, and the sha256 of everything before it. Pre-tokens are sorted, so
equal counts give equal files.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tokenizer_core.blobs.addresses import open_stored
from tokenizer_core.blobs.atomic_files import read_whole_file, require_regular, write_whole_file
from tokenizer_core.blobs.local_files import open_to_read
from tokenizer_core.documents import CorpusSource
from tokenizer_core.documents.bad_documents import NO_BAD_DOCUMENTS, BadDocuments
from tokenizer_core.documents.corpus_addresses import is_address
from tokenizer_core.errors import CorpusError, FormatError
from tokenizer_core.splitting.patterns import UNICODE_TABLES, SplitPattern, resolve_pattern
from tokenizer_core.strict_json import parse_record
from tokenizer_core.training.counts import FileCounts, ReadAt, read_from, view

MAX_FILE_BYTES: Final = 1 << 36
"""Larger than any counts that fit into memory."""

MAX_SUM: Final = (1 << 64) - 1
"""Limit of the total bytes of all pre-tokens: the native learner counts in 64 bits."""

_MAGIC: Final = b"tokenizer-pretoken-counts-1\n"
_DIGEST_BYTES: Final = 32
_HASH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Pruning:
    """The pre-tokens that `prune_counts` dropped.

    - `min_count`: pre-tokens with fewer occurrences were dropped. For combined counts, the largest
      `min_count` among them.
    - `n_distinct`: distinct pre-tokens dropped; one dropped from two counts is counted twice.
      `n_pre_tokens`, `n_bytes`: their occurrences, and the UTF-8 bytes of these.
    - `bound`: no pair of tokens occurs more often than this in the dropped pre-tokens, after any
      earlier merges. In the whole text, each learned merge therefore occurs at most this many times
      less than the best pair at that moment (`prune_counts` has the proof).
    """

    min_count: int
    n_distinct: int
    n_pre_tokens: int
    n_bytes: int
    bound: int

    @classmethod
    def combined(cls, parts: Iterable[tuple[Pruning, int]]) -> Pruning:
        """The pruning of a weighted sum of counts, given as (pruning, weight); adds the bounds too.

        Example:
            >>> Pruning.combined([(Pruning(2, 9, 9, 50, 4), 3), (Pruning(3, 5, 8, 40, 2), 1)])
            Pruning(min_count=3, n_distinct=14, n_pre_tokens=35, n_bytes=190, bound=14)
        """
        listed = list(parts)
        return cls(
            min_count=max(part.min_count for part, _ in listed),
            n_distinct=sum(part.n_distinct for part, _ in listed),
            n_pre_tokens=sum(weight * part.n_pre_tokens for part, weight in listed),
            n_bytes=sum(weight * part.n_bytes for part, weight in listed),
            bound=sum(weight * part.bound for part, weight in listed),
        )

    @classmethod
    def parse(cls, table: dict[str, Any]) -> Pruning:
        """Parse its `asdict`; ValueError, KeyError or TypeError for other tables."""
        parsed: Pruning = parse_record(cls, table)
        if min(table.values()) < 0:
            raise ValueError("pruning is not five numbers, 0 or above")
        return parsed


@dataclass(frozen=True, slots=True)
class PretokenCounts:
    """Counts of the pre-tokens of a corpus, and all settings that affected them.

    - `counts`: pre-token -> occurrences (at least 1). Special tokens are cut out, never counted.
    - `n_bytes`: bytes of the corpus, special tokens included. `n_documents`: non-empty stretches
      of text between special tokens.
    - `n_spills`: how often counting reached its memory ceiling and wrote to the disk.
    - `weights`: how often each source was counted, in the order of `sources`; empty: once each.
    - `pruning`: the pre-tokens that `prune_counts` dropped, if any. `n_pre_tokens` and
      `n_pre_token_bytes` do not include them.
    - `bad_documents`: those that counting left out; a file of counts does not have them.
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
    bad_documents: BadDocuments = field(default=NO_BAD_DOCUMENTS, compare=False)

    @property
    def source_weights(self) -> tuple[int, ...]:
        """The weight of each source, even if all are 1."""
        return self.weights or (1,) * len(self.sources)

    @property
    def n_pre_tokens(self) -> int:
        """Pre-tokens that were not pruned, repetitions included."""
        return view(self.counts).n_pre_tokens

    @property
    def n_pre_token_bytes(self) -> int:
        """UTF-8 bytes of these pre-tokens: the corpus without its special tokens."""
        return view(self.counts).n_bytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the counts to a file or an address (`s3://bucket/news.counts`), completely or not
        at all.

        Raises:
            OSError: the file cannot be written.
            StorageError: the storage at the address is unreachable or refuses the object.
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
        counts = view(self.counts)
        header = {
            "pattern": self.pattern.fields(),
            "unicode_tables": self.unicode_tables,
            "special_tokens": list(self.special_tokens),
            "sources": [asdict(source) for source in self.sources],
            "n_bytes": self.n_bytes,
            "n_documents": self.n_documents,
            "n_distinct": len(self.counts),
            "n_pre_tokens": counts.n_pre_tokens,
            "text_bytes": counts.text_bytes,
        }
        if self.weights:
            header["weights"] = list(self.weights)
        if self.pruning is not None:
            header["pruning"] = asdict(self.pruning)
        rendered = json.dumps(header, sort_keys=True).encode("ascii")
        yield _MAGIC
        yield len(rendered).to_bytes(8, "little")
        yield rendered
        for column in counts.columns():
            yield from column

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        pattern: str | SplitPattern | None = None,
        special_tokens: Sequence[str] | None = None,
        on_disk: bool = False,
    ) -> PretokenCounts:
        """Read counts that `save` wrote, from a path or an address.

        If `pattern` and `special_tokens` are given, the counts must have been made with them. With
        `on_disk`, the counts stay in the file, which stays open; each iteration reads it again.

        Raises:
            FormatError: the file is not a file of counts, is truncated, or is damaged.
            CorpusError: the corpus was counted with another pattern, other special tokens, or other
                Unicode tables than those of this installation.
            OSError: the file cannot be read.
            StorageError: the storage at the address is unreachable, or has no object with that
                name.
        """
        name = os.fspath(path)
        loaded = _load(name, on_disk=on_disk)
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


def _load(name: str, *, on_disk: bool) -> PretokenCounts:
    with _local(name) as path:
        if not on_disk:
            data = read_whole_file(path, max_bytes=MAX_FILE_BYTES)
            return _parse(lambda start, n: data[start : start + n], len(data), name, on_disk=False)
        descriptor = open_to_read(path)
        require_regular(descriptor, f"{path!r:.200}")
        file = os.fdopen(descriptor, "rb", buffering=0)
    try:
        size = os.fstat(file.fileno()).st_size
        return _parse(read_from(file), size, name, on_disk=True)
    except FormatError:
        file.close()
        raise


@contextmanager
def _local(name: str) -> Iterator[str]:
    """Yield the path of a file, or of a temporary copy of the object at an address."""
    if not is_address(name):
        yield name
        return
    storage, stored_name = open_stored(name, read_only=True)
    with tempfile.TemporaryDirectory() as folder:
        storage.fetch(stored_name, path := Path(folder, "counts"))
        yield str(path)


def _parse(read_at: ReadAt, size: int, name: str, *, on_disk: bool) -> PretokenCounts:
    """Parse the counts in a file; checks every length against the file size before use."""
    if read_at(0, len(_MAGIC)) != _MAGIC:
        raise FormatError(f"{name} is not a file of pre-token counts")
    try:
        header, body = _parse_parts(read_at, size)
        return _parse_header(header, body if on_disk else dict(body.entries()), name)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        damaged = f"{name} is damaged or cut short; count the corpus again"
        raise FormatError(damaged) from None


def _parse_parts(read_at: ReadAt, size: int) -> tuple[dict[str, Any], FileCounts]:
    """The header and the body of a file with a correct hash; ValueError for a wrong hash."""
    header_start = len(_MAGIC) + 8
    header_bytes = int.from_bytes(read_at(len(_MAGIC), 8), "little")
    body_start = header_start + header_bytes
    end = size - _DIGEST_BYTES
    if body_start > end or _hash(read_at, end) != read_at(end, _DIGEST_BYTES):
        raise ValueError("the file does not have the hash it should have")
    header = json.loads(read_at(header_start, header_bytes))
    n_distinct, text_bytes = _parse_size(header["n_distinct"]), _parse_size(header["text_bytes"])
    body = FileCounts.in_body(read_at, body_start, n_distinct, text_bytes)
    if body_start + body.n_column_bytes != end:
        raise ValueError("the lengths do not add up")
    return header, body


def _hash(read_at: ReadAt, end: int) -> bytes:
    digest = hashlib.sha256()
    for start in range(0, end, _HASH_BYTES):
        digest.update(read_at(start, min(_HASH_BYTES, end - start)))
    return digest.digest()


def _parse_header(header: dict[str, Any], counts: Mapping[str, int], name: str) -> PretokenCounts:
    if view(counts).n_pre_tokens != _parse_size(header["n_pre_tokens"]):
        raise ValueError("the counts do not add up")
    if view(counts).n_bytes > MAX_SUM:
        raise FormatError(
            f"{name} counts more bytes than 64 bits hold; count the corpus again, or give smaller "
            f"weights"
        )
    return PretokenCounts(
        counts=counts,
        pattern=resolve_pattern(SplitPattern.from_fields(header["pattern"])),
        special_tokens=tuple(map(str, header["special_tokens"])),
        sources=_parse_sources(header["sources"]),
        n_bytes=_parse_size(header["n_bytes"]),
        n_documents=_parse_size(header["n_documents"]),
        unicode_tables=str(header["unicode_tables"]),
        weights=_parse_weights(header),
        pruning=Pruning.parse(header["pruning"]) if "pruning" in header else None,
    )


def _parse_size(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a size is no whole number, 0 or above")
    return value


def _parse_sources(listed: object) -> tuple[CorpusSource, ...]:
    sources: tuple[CorpusSource, ...] = parse_record(tuple[CorpusSource, ...], listed)
    for source in sources:
        _parse_size(source.size_bytes)
    return sources


def _parse_weights(header: dict[str, Any]) -> tuple[int, ...]:
    weights = header.get("weights", [])
    if weights and len(weights) != len(header["sources"]):
        raise ValueError("not every source has a weight")
    if not all(type(weight) is int and weight >= 1 for weight in weights):
        raise ValueError("a weight is no number above 0")
    return tuple(weights)
