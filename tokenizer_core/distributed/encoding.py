"""encode_distributed: a corpus encoded by many workers, byte for byte as `encode_corpus` does it.

The documents are encoded in shards, whose ids are committed in the run's storage, and joined here,
in order, by the writer that `encode_corpus` has: so splits, shards of ids, checkpoints and the
shuffle are its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenizer_core.corpus.batch_encoding import BatchEncoder, SplitDraw
from tokenizer_core.corpus.corpus_encoding import check_settings, corpus_settings
from tokenizer_core.corpus.document_batches import CorpusFormat
from tokenizer_core.corpus.encoding_run import EncodingProgress, write_encoded
from tokenizer_core.corpus.token_manifest import render_plan
from tokenizer_core.distributed.corpus_shards import ShardEncoding, cut_corpus
from tokenizer_core.distributed.corpus_sources import SourceFile
from tokenizer_core.distributed.joined_shards import JoinedShards
from tokenizer_core.distributed.runs import Run
from tokenizer_core.errors import TokenFilesPlanError
from tokenizer_core.patterns import UNICODE_TABLES

if TYPE_CHECKING:
    from tokenizer_core.corpus.token_manifest import TokenManifest
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.parallel import Executor
    from tokenizer_core.tokenizer import Tokenizer

SHARD_BYTES: Final = 32 << 20
"""A second or so of work: little is lost with a worker, and the storage is asked rarely."""

MOST_SHARDS: Final = 1 << 16
"""Of a corpus of 2 TiB and more, whose shards are larger: who joins them has a list of all."""

_LAYOUT: Final = 1
"""Of what is committed; another release may have another."""


def encode_distributed(
    tokenizer: Tokenizer,
    files: Sequence[str | os.PathLike[str] | SourceFile],
    folder: str | os.PathLike[str],
    plan: TokenFilesPlan,
    *,
    storage: str | os.PathLike[str],
    executor: Executor,
    corpus_format: CorpusFormat | None = None,
    validation_share: float = 0.0,
    shuffle: bool = False,
    resume: bool = False,
    progress: Callable[[EncodingProgress], object] | None = None,
    shard_bytes: int | None = None,
    scratch_folder: Path | None = None,
) -> TokenManifest:
    """As `encode_corpus`, and the same bytes, by the workers of `executor`; the manifest.

    `storage` is a folder that all workers share, or `s3://bucket/prefix`: there they commit
    shards of about `shard_bytes` of the files (chosen by their size, unless given), and all that is
    committed is kept until the token files are whole. Workers may die and be tried again; a shard
    that keeps failing is named. The files must be at the same paths or addresses for every worker.
    With `resume` a call for the same folder and storage goes on from where the last one was,
    whatever the executor.

    `scratch_folder` is where workers, and this process, keep the ids of a shard or two, by default
    the system's. Memory is that of `encode_corpus` with one worker, for each worker.

    Raises:
        RunConflictError: the storage holds another run, or one of files that changed since.
        ShardFailedError: a shard failed each time it was tried.
        RunError: what was committed is damaged or gone.
        StorageError: the storage cannot be used.
        CorpusError, TokenFilesError, TokenFilesPlanError, TokenizerMismatchError,
        WorkerProcessError: as `encode_corpus`; a text that the plan forbids, or that cannot be cut,
            is a CorpusError too.

    Example:
        >>> import tempfile
        >>> from tokenizer_core import Tokenizer
        >>> from tokenizer_core.corpus import plan_token_files
        >>> from tokenizer_core.parallel import LocalExecutor
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> here = Path(tempfile.mkdtemp())
        >>> _ = (here / "some.txt").write_text("one|two|three")
        >>> manifest = encode_distributed(
        ...     tokenizer, [here / "some.txt"], here / "tokens", plan_token_files(tokenizer),
        ...     storage=here / "run", executor=LocalExecutor(1),
        ...     corpus_format=CorpusFormat(separator="|"), shard_bytes=4,
        ... )
        >>> manifest.split("train").n_documents, manifest.split("train").n_tokens
        (3, 11)
    """
    check_settings(tokenizer, plan, validation_share)
    if shard_bytes is not None and shard_bytes < 1:
        raise TokenFilesPlanError("shard_bytes must be at least 1")
    corpus_format = corpus_format or CorpusFormat()
    sources = [file if isinstance(file, SourceFile) else SourceFile.examine(file) for file in files]
    if shard_bytes is None:
        shard_bytes = max(SHARD_BYTES, sum(source.size_bytes for source in sources) // MOST_SHARDS)
    identity = {
        "run": "encode a corpus",
        "layout": _LAYOUT,
        "unicode_tables": UNICODE_TABLES,
        "inputs": [source.identity for source in sources],
        "format": asdict(corpus_format),
        "plan": render_plan(plan),
        "shard_bytes": shard_bytes,
    }
    # Before the run takes the storage: a name that says no format is mended, and called again.
    shards = list(cut_corpus(sources, corpus_format, shard_bytes))
    run = Run(storage, identity, scratch=scratch_folder)
    encoding = ShardEncoding(BatchEncoder(tokenizer, plan), plan, corpus_format)
    settings = corpus_settings([s.shown for s in sources], corpus_format, validation_share)
    corpus = JoinedShards(
        run,
        shards,
        encoding,
        executor,
        draw=SplitDraw(plan, validation_share),
        settings={**settings, "run": run.id},
        scratch=scratch_folder,
    )
    manifest = write_encoded(
        corpus, folder, plan, shuffle=shuffle, resume=resume, progress=progress
    )
    run.remove()
    return manifest
