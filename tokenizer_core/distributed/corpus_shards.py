"""The shards of a corpus that is encoded by many: what they are, and the work of one.

A shard is the documents that begin in a stretch of a file, found by who encodes it, so that cutting
a corpus reads nothing of it. A file that cannot be entered in its middle (packed, Parquet, plain
text without a separator) is one shard.
"""

from __future__ import annotations

import pickle
from collections import deque
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tokenizer_core.corpus.batch_encoding import BatchEncoder
from tokenizer_core.corpus.document_batches import CorpusFormat, iterate_open_file
from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.distributed.corpus_sources import check_tables
from tokenizer_core.distributed.encoded_shards import (
    DOCUMENTS_NAME,
    IDS_NAME,
    EncodedShardWriter,
    ids_dtype,
)
from tokenizer_core.documents import (
    DEFAULT_PIECE_CHARS,
    can_be_entered,
    open_documents,
    open_utf8_documents,
)
from tokenizer_core.documents.remote_files import StoreReadError
from tokenizer_core.errors import (
    CorpusError,
    PreTokenTooLongError,
    RunError,
    SpecialTokenForbiddenError,
)
from tokenizer_core.parallel import map_ahead, run_ahead
from tokenizer_core.patterns import UNICODE_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenizer_core.corpus.batch_encoding import DocumentIds
    from tokenizer_core.corpus.document_batches import DocumentBatch
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.distributed.committed_shards import Attempt
    from tokenizer_core.distributed.corpus_sources import SourceFile

BATCH_BYTES: Final = 1 << 19


@dataclass(frozen=True, slots=True)
class CorpusShard:
    """The documents that begin from byte `start` to before byte `stop` of a file."""

    source: SourceFile
    start: int
    stop: int

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file."""
        return self.start == 0 and self.stop >= self.source.size_bytes


def cut_corpus(
    sources: Sequence[SourceFile], corpus_format: CorpusFormat, shard_bytes: int
) -> Iterator[CorpusShard]:
    """The shards of the files, in order, of `shard_bytes` each where a file can be entered.

    Example:
        >>> from tokenizer_core.distributed import SourceFile
        >>> files = [SourceFile(name, name, 250, "") for name in ("a.jsonl", "b.jsonl.gz")]
        >>> [(s.source.path, s.start, s.stop) for s in cut_corpus(files, CorpusFormat(), 100)]
        [('a.jsonl', 0, 100), ('a.jsonl', 100, 200), ('a.jsonl', 200, 250), ('b.jsonl.gz', 0, 250)]
    """
    how = {"format": corpus_format.format, "separator": corpus_format.separator}
    for source in sources:
        size_bytes = source.size_bytes
        step = shard_bytes if can_be_entered(source.path, **how) else max(1, size_bytes)
        for start in range(0, max(1, size_bytes), step):
            yield CorpusShard(source, start, min(start + step, size_bytes))


@dataclass(frozen=True, slots=True)
class ShardEncoding:
    """What every worker is told. Where it is told it again with each task, as by Ray, it is made
    anew once in each process: a tokenizer takes a second, and its caches are warm by then."""

    encoder: BatchEncoder
    plan: TokenFilesPlan
    corpus_format: CorpusFormat
    unicode_tables: str = UNICODE_TABLES

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.encoder, self.plan, self.corpus_format, self.unicode_tables)
        return _unpack_encoding, (pickle.dumps(fields, pickle.HIGHEST_PROTOCOL),)


@lru_cache(maxsize=1)
def _unpack_encoding(data: bytes) -> ShardEncoding:
    return ShardEncoding(*pickle.loads(data))  # noqa: S301 - out of a pickle of ours


def encode_shard(
    encoding: ShardEncoding, shard: CorpusShard, attempt: Attempt
) -> dict[str, int | str | None]:
    """Encode the documents of a shard; how many there are, their ids and bytes, and the sha256 of
    the file where the shard is all of it. This is what a worker does.

    Raises:
        CorpusError: the file cannot be read, has changed, or holds what cannot be encoded.
        RunError: a store does not answer, or this worker would encode otherwise.
    """
    check_tables(encoding.unicode_tables)
    source, options = shard.source, asdict(encoding.corpus_format)
    within = None if shard.is_whole else (shard.start, shard.stop)
    piece_bytes = min(BATCH_BYTES, DEFAULT_PIECE_CHARS)
    try:
        source.check()
        with (
            open_utf8_documents(
                source.path, **options, max_piece_bytes=piece_bytes, within=within
            ) as reader,
            EncodedShardWriter(attempt.scratch, ids_dtype(encoding.plan)) as writer,
        ):
            batches = iterate_open_file(reader, DocumentCuts(encoding.plan), BATCH_BYTES)
            with (
                closing(run_ahead(batches, n_ahead=2)) as ahead,
                closing(
                    map_ahead(partial(_encode, encoding.encoder), ahead, num_threads=1)
                ) as encoded,
            ):
                for documents, is_open in encoded:
                    writer.append(documents, is_open=is_open)
        source.check()
    except UnicodeDecodeError:
        _tell_not_utf8(source.path, options, within)
    except StoreReadError as error:  # it may answer the next time
        raise RunError(str(error)) from None
    except (SpecialTokenForbiddenError, PreTokenTooLongError) as error:
        # No second try helps, as with what is wrong in a file.
        raise CorpusError(f"{source.shown!r} cannot be encoded: {error}") from None
    for name in (IDS_NAME, DOCUMENTS_NAME):
        attempt.put(name, attempt.scratch / name)
    return {
        "n_documents": writer.n_documents,
        "n_tokens": writer.n_tokens,
        "n_bytes": writer.n_bytes,
        "sha256": reader.sha256 if shard.is_whole else None,
    }


def hash_source(encoding: ShardEncoding, source: SourceFile, attempt: Attempt) -> dict[str, str]:
    """The sha256 of a file that is several shards, none of which sees all of it."""
    del encoding, attempt
    return {"sha256": source.sha256()}


def _encode(encoder: BatchEncoder, batch: DocumentBatch) -> tuple[DocumentIds, bool]:
    return encoder.encode_documents(batch), batch.is_open


def _tell_not_utf8(path: str, options: dict[str, Any], within: tuple[int, int] | None) -> NoReturn:
    """Tell where the bytes are that are not UTF-8: who found them knows the document only."""
    with open_documents(path, **options, within=within) as reader:
        deque(reader, maxlen=0)
    raise CorpusError(
        "a corpus file was not UTF-8 and has changed since; read a copy that nobody writes to"
    ) from None
