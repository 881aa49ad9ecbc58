"""Jobs whose corpus is counted or encoded on a cluster: where a run is kept, and how it is done.

It stands alone because only jobs of a server with TOKENIZER_EXECUTOR=ray pay for what it imports,
when they begin and when they end. What has been done outlives the child process: a job that is
begun again goes on from there.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.jobs.input_files import InputChangedError, InputFile
from app.jobs.worker.context import vocabulary_options
from tokenizer_core.errors import StorageError
from tokenizer_core.patterns import resolve_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.jobs.folder import JobFolder
    from app.jobs.worker.context import WorkerJob
    from app.settings import Settings
    from tokenizer_core.corpus import TokenManifest
    from tokenizer_core.distributed import SourceFile
    from tokenizer_core.training.trainer import TrainingProgress, TrainingResult

log = logging.getLogger("app.jobs")

_MESSAGES: Final = {"count": "counting pre-tokens", "merge": "merging counts"}


def cluster_settings(settings: Settings, job_id: str) -> dict[str, Any]:
    """What the child of a job has to know of the cluster; nothing, where there is none."""
    if settings.executor != "ray":
        return {}
    place = settings.run_storage
    return {
        "ray_address": settings.ray_address,
        "run_storage": None if place is None else f"{place.rstrip('/')}/{job_id}",
    }


def remove_run_of(folder: JobFolder) -> None:
    """Remove what an ended job's workers have kept, if it is not in its folder."""
    try:
        place = folder.read_request().get("run_storage")
    except (OSError, ValueError):  # it never began
        return
    if place is None:
        return
    from tokenizer_core.distributed import remove_run

    try:
        remove_run(place)
    except StorageError as error:
        log.warning("what a job's workers have kept could not be removed: %s", error)


def train_on_cluster(
    job: WorkerJob,
    files: Sequence[InputFile],
    engine: str,
    progress: Callable[[TrainingProgress], object],
) -> TrainingResult:
    """As `train`, counted by the cluster's workers, and learned here, from the merged counts.

    Raises:
        InputChangedError: a file is not what it was when the job was made.
        RunError, WorkerProcessError, StorageError: the cluster or the storage does not do its part.
        TrainingError: as `train`.
    """
    from tokenizer_core.distributed import count_distributed
    from tokenizer_core.parallel.ray_cluster import connect_to_ray
    from tokenizer_core.training import PretokenCounts, TrainingProgress, train_from_counts
    from tokenizer_core.training.vocabulary_plan import plan_vocabulary

    request = job.request
    options, pattern = vocabulary_options(request), resolve_pattern(request["pattern"])
    plan = plan_vocabulary(request["special_tokens"], pattern, options)
    plan.n_merges(request["vocab_size"])  # raises what is wrong with the size before the counting
    started = time.perf_counter()
    output = job.folder.scratch_path / "pretokens.counts"
    with connect_to_ray(request["ray_address"]) as executor:
        count_distributed(
            [_source_of(file) for file in files],
            pattern=pattern,
            special_tokens=plan.special_tokens,
            storage=request["run_storage"] or job.folder.run_path,
            executor=executor,
            output=output,
            engine=engine,
            progress=lambda phase, done, total: progress(
                TrainingProgress(phase, done, total, _MESSAGES[phase])
            ),
        )
    seconds_counting = round(time.perf_counter() - started, 3)
    counts = PretokenCounts.load(output)
    result = train_from_counts(
        counts, request["vocab_size"], engine=engine, options=options, progress=progress
    )
    return replace(result, report=replace(result.report, seconds_counting=seconds_counting))


@contextlib.contextmanager
def cluster_encoder(
    job: WorkerJob, files: Sequence[InputFile]
) -> Iterator[Callable[..., TokenManifest]]:
    """`encode_distributed` with these files, by the cluster's workers, as `encode_corpus` has it.

    Raises:
        InputChangedError: a file is not what it was when the job was made.
        WorkerProcessError: Ray is not installed, or no cluster is there.
    """
    from tokenizer_core.distributed import encode_distributed
    from tokenizer_core.parallel.ray_cluster import connect_to_ray

    sources = [_source_of(file) for file in files]
    job.names.update((source.path, source.shown) for source in sources)
    with connect_to_ray(job.request["ray_address"]) as executor:
        yield partial(
            encode_distributed,
            files=sources,
            storage=job.request["run_storage"] or job.folder.run_path,
            executor=executor,
        )


def _source_of(file: InputFile) -> SourceFile:
    """The file by its own path, as the other nodes see it, and by the name its caller knows."""
    from tokenizer_core.distributed import SourceFile

    source = SourceFile.examine(Path(file.root, file.path), shown=file.name)
    # The number of the inode too: what a link leads to, put there since, is refused everywhere.
    expected = SourceFile.version_of(file.modified_ns, file.inode)
    if (source.size_bytes, source.version) != (file.size_bytes, expected):
        raise InputChangedError(
            f"{file.name} was replaced or written to after the request; post the request again"
        )
    return source
