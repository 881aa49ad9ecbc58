"""Jobs on a cluster: Ray's workers count or encode, and store their results.

The results outlive the child process: a job that restarts continues from them. The functions import
the modules that use Ray only in a server with TOKENIZER_EXECUTOR=ray.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizer_core.errors import StorageError
from tokenizer_core.splitting.patterns import resolve_pattern
from tokenizer_service.jobs.input_files import InputChangedError, InputFile
from tokenizer_service.jobs.worker.context import corpus_format_of, vocabulary_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizer_core.corpus import TokenManifest
    from tokenizer_core.distributed import SourceFile
    from tokenizer_core.training.trainer import TrainingProgress, TrainingResult
    from tokenizer_service.jobs.folder import JobFolder
    from tokenizer_service.jobs.worker.context import WorkerJob
    from tokenizer_service.settings import Settings

log = logging.getLogger("tokenizer_service.jobs")


def cluster_settings(settings: Settings, job_id: str) -> dict[str, Any]:
    """The settings of the cluster for the child of a job; empty without a cluster."""
    if settings.executor != "ray":
        return {}
    storage = settings.run_storage
    return {
        "ray_address": settings.ray_address,
        "run_storage": None if storage is None else f"{storage.rstrip('/')}/{job_id}",
    }


def remove_run_of(folder: JobFolder) -> None:
    """Remove the results that the workers of an ended job stored outside the job's folder."""
    try:
        storage = folder.read_request().get("run_storage")
    except (OSError, ValueError):  # the job never started
        return
    if storage is None:
        return
    from tokenizer_core.distributed import remove_run

    try:
        remove_run(storage)
    except StorageError as error:
        log.warning("the results of a job's workers could not be removed: %s", error)


def train_on_cluster(
    job: WorkerJob,
    files: Sequence[InputFile],
    engine: str,
    progress: Callable[[TrainingProgress], object],
) -> TrainingResult:
    """As `train`: the cluster's workers count, and this process learns from the merged counts."""
    from tokenizer_core.distributed import count_distributed
    from tokenizer_core.parallel.ray_cluster import connect_to_ray
    from tokenizer_core.training import PretokenCounts, TrainingProgress, train_from_counts
    from tokenizer_core.training.vocabulary_plan import plan_vocabulary

    request = job.request
    options, pattern = vocabulary_options(request), resolve_pattern(request["pattern"])
    plan = plan_vocabulary(request["special_tokens"], pattern, options)
    plan.n_merges(request["vocab_size"])  # raises for a wrong size before the counting
    started = time.perf_counter()
    output = job.folder.scratch_path / "pretokens.counts"
    sources = _sources_of(job, files)
    with connect_to_ray(request["ray_address"]) as executor:
        bad = count_distributed(
            sources,
            pattern=pattern,
            special_tokens=plan.special_tokens,
            storage=request["run_storage"] or job.folder.run_path,
            executor=executor,
            output=output,
            engine=engine,
            corpus_format=corpus_format_of(job, [source.path for source in sources]),
            max_bad=request["max_bad"],
            progress=lambda phase, done, total: progress(TrainingProgress(phase, done, total)),
        )
    seconds_counting = round(time.perf_counter() - started, 3)
    counts = PretokenCounts.load(output)
    result = train_from_counts(
        counts, request["vocab_size"], engine=engine, options=options, progress=progress
    )
    report = replace(result.report, seconds_counting=seconds_counting, bad_documents=bad)
    return replace(result, report=report)


@contextlib.contextmanager
def cluster_encoder(
    job: WorkerJob, files: Sequence[InputFile]
) -> Iterator[Callable[..., TokenManifest]]:
    """A function that encodes these files with the cluster's workers, called as `encode_corpus`."""
    from tokenizer_core.distributed import encode_distributed
    from tokenizer_core.parallel.ray_cluster import connect_to_ray

    sources = _sources_of(job, files)
    with connect_to_ray(job.request["ray_address"]) as executor:
        yield partial(
            encode_distributed,
            files=sources,
            corpus_format=corpus_format_of(job, [source.path for source in sources]),
            storage=job.request["run_storage"] or job.folder.run_path,
            executor=executor,
        )


def _sources_of(job: WorkerJob, files: Sequence[InputFile]) -> list[SourceFile]:
    sources = [_source_of(file) for file in files]
    job.names.update((source.path, source.shown) for source in sources)
    return sources


def _source_of(file: InputFile) -> SourceFile:
    """The file by its real path, which other nodes can open, and by the caller's name for it."""
    from tokenizer_core.distributed import SourceFile

    source = SourceFile.examine(Path(file.root, file.path), shown=file.name)
    # With the inode, so that every node refuses the target of a link that has replaced the file.
    expected = SourceFile.version_of(file.version.modified_ns, file.version.inode)
    if (source.size_bytes, source.version) != (file.size_bytes, expected):
        raise InputChangedError(
            f"{file.name} was replaced or written to after the request; post the request again"
        )
    return source
