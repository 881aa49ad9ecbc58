"""`tokenizer jobs list`, `show`, `watch`, `cancel`: the training and encoding jobs of a service.

These commands read the job database in the artifacts folder or at TOKENIZER_JOBS_DATABASE, and need
neither the address of the service nor a key; or they ask the service at `--server`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_client.schemas.jobs import (
    AnyJobList,
    AnyJobSummary,
    AnyJobView,
    PublishedTokenFiles,
    PublishedVersion,
)
from tokenizer_core.errors import counted, did_you_mean
from tokenizer_service.commands.coders import errors_in_a_line, open_client
from tokenizer_service.commands.command_line import (
    ANSWER_IS_NO,
    CommandError,
    UsageError,
    add_artifacts_dir,
    add_command,
    add_group,
    artifacts_dir_of,
    check_named_folder,
)
from tokenizer_service.commands.outputs import print_json
from tokenizer_service.commands.progress import add_quiet, progress_bar
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME
from tokenizer_service.jobs.kinds import cancel_job
from tokenizer_service.jobs.queue import Job, JobStore
from tokenizer_service.jobs.views import summary_of, view_of

if TYPE_CHECKING:
    from tokenizer_client.client import JobResource

_POLL_SECONDS: Final = 0.5
_MOST_LISTED: Final = 10_000
_MOST_ASKED: Final = 200  # the most that a service lists
_SHOWN: Final = "tokenizer jobs list shows what there is"
_UNFINISHED: Final = ("queued", "running")
_DONE_WELL: Final = frozenset({"live", "succeeded"})


def add_parsers(subcommands: Any) -> None:
    """The jobs of the service on an artifacts folder: training runs and encodings that
    were asked for over HTTP. They are read from the folder, so no key is needed; with
    --server URL they are those of that service (an admin key is in TOKENIZER_API_KEY).

    examples:
      tokenizer jobs list
      tokenizer jobs watch
      tokenizer jobs show 20261121T041500Z-0123456789ab --json | jq .result
      tokenizer jobs cancel 20261121T041500Z-0123456789ab
    """
    below = add_group(subcommands, "jobs", add_parsers)
    listing = add_command(below, run_list, help="list the latest jobs, newest first")
    listing.add("--limit N", "how many (default: 20)", default=20)
    show = add_command(below, run_show, help="show one job and the end of its log")
    watch = add_command(below, run_watch, help="wait for a job, with a progress bar")
    for parser in (show, watch):
        parser.add("job JOB", "job id (default: the running job, else the newest)", nargs="?")
    add_quiet(watch)
    cancel = add_command(below, run_cancel, help="cancel a queued or running job")
    cancel.add("job JOB", "its id")
    for parser in (listing, show, watch, cancel):
        parser.add("--json", "print the JSON that the service gives")
        add_artifacts_dir(parser)
        parser.add("--server URL", "ask this service (admin key: TOKENIZER_API_KEY)")


class _LocalJobs:
    """The jobs of a database, as `client.jobs` gives those of a service."""

    def __init__(self, store: JobStore | None, folder: Path) -> None:
        """Without a `store`, no service ever ran on the folder."""
        self._store, self._folder = store, folder

    def list(self, *, limit: int) -> AnyJobList:
        latest = self._store.latest(limit=limit) if self._store else []
        return AnyJobList(jobs=list(map(summary_of, latest)))

    def get(self, job_id: str) -> AnyJobView:
        return self._view(self._store.get(job_id) if self._store else None, job_id)

    def cancel(self, job_id: str) -> AnyJobView:
        store = self._store
        return self._view(cancel_job(store, self._folder, job_id) if store else None, job_id)

    def follow(self, job_id: str) -> Iterator[AnyJobView]:
        while True:
            view = self.get(job_id)
            yield view
            if view.state not in _UNFINISHED:
                return
            time.sleep(_POLL_SECONDS)

    def _view(self, job: Job | None, job_id: str) -> AnyJobView:
        if job is None:
            near = did_you_mean(job_id, [each.id for each in self.list(limit=_MOST_LISTED).jobs])
            raise CommandError(f"there is no job {job_id!r}{near}; {_SHOWN}")
        return view_of(job, self._folder)


def run_list(arguments: argparse.Namespace) -> None:
    """List the latest jobs, newest first.

    examples:
      tokenizer jobs list
      tokenizer jobs list --limit 5 --json
    """
    if not 1 <= arguments.limit <= _MOST_LISTED:
        raise UsageError(f"--limit is from 1 to {_MOST_LISTED}")
    with _open_jobs(arguments) as jobs:
        listed = jobs.list(limit=arguments.limit)
    if arguments.json:
        print_json(listed.model_dump(mode="json"))
        return
    if not listed.jobs:
        print("no jobs; a service takes them at POST /train and POST /corpora/{id}/encode")
    for view in listed.jobs:
        print(_line(view))


def run_show(arguments: argparse.Namespace) -> None:
    """Show one job, with the end of its log.

    examples:
      tokenizer jobs show
      tokenizer jobs show 20261121T041500Z-0123456789ab --json
    """
    with _open_jobs(arguments) as jobs:
        _print_job(jobs.get(_choose(jobs, arguments.job)), arguments)


def run_watch(arguments: argparse.Namespace) -> int:
    """Wait until a job ends, with a progress bar on a terminal. The exit code is 3 if it
    failed or was cancelled. Ctrl-C ends the watching, not the job.

    examples:
      tokenizer jobs watch
      tokenizer jobs watch --quiet && tokenizer list
      tokenizer jobs watch --server http://127.0.0.1:8000
    """
    with _open_jobs(arguments) as jobs:
        job_id = _choose(jobs, arguments.job)
        bar = progress_bar(
            quiet=arguments.quiet,
            total=100,
            unit="%",
            unit_scale=False,
            delay=0,
            bar_format="{desc}|{bar}| {n:.0f} % [{elapsed}]",
        )
        with bar:
            for view in jobs.follow(job_id):
                bar.set_description(f"{view.name}, {view.phase}", refresh=False)
                bar.update(100 * view.progress - bar.n)
                bar.refresh()
    _print_job(view, arguments)
    return 0 if view.state in _DONE_WELL else ANSWER_IS_NO


def run_cancel(arguments: argparse.Namespace) -> None:
    """Cancel a job: one that waits at once, one that runs within seconds, by the service
    that runs it. One that has ended stays as it is.

    example:
      tokenizer jobs cancel 20261121T041500Z-0123456789ab
    """
    with _open_jobs(arguments) as jobs:
        before = jobs.get(arguments.job)
        view = jobs.cancel(arguments.job)
    if arguments.json:
        _print_job(view, arguments)
    elif before.state not in _UNFINISHED:
        print(f"{view.id} had ended already: {before.state}")
    elif view.state not in _UNFINISHED:
        print(f"{view.id} is cancelled")
    else:
        print(
            f"{view.id} is being ended by the service that runs it; tokenizer jobs watch {view.id}"
        )


@contextmanager
def _open_jobs(arguments: argparse.Namespace) -> Iterator[_LocalJobs | JobResource]:
    """The jobs of the service at `--server`, or of the job database."""
    if arguments.server is not None:
        if arguments.artifacts_dir:
            raise UsageError(
                "--artifacts-dir and --server exclude each other; leave one of them out"
            )
        with errors_in_a_line():
            yield open_client(arguments.server).jobs
        return
    folder = artifacts_dir_of(arguments)
    address = os.environ.get("TOKENIZER_JOBS_DATABASE")
    path = folder / DATABASE_NAME
    is_named = arguments.artifacts_dir or "TOKENIZER_ARTIFACTS_DIR" in os.environ
    if is_named and not address:
        check_named_folder(None, folder)
    try:
        if address:
            if find_spec("psycopg") is None:
                raise UsageError(
                    "jobs in PostgreSQL need the extra postgres; pip install "
                    "'tokenizer-service[postgres]'"
                )
            from tokenizer_service.jobs.database.postgres import PostgresDatabase  # an extra

            yield _LocalJobs(JobStore(PostgresDatabase(address)), folder)  # adds and runs nothing
        else:
            yield _LocalJobs(JobStore.open(folder) if path.exists() else None, folder)
    except JobDatabaseError as error:
        if address:
            raise CommandError(
                f"the database that TOKENIZER_JOBS_DATABASE names cannot be used ({error}); check "
                f"the address, and that it runs"
            ) from None
        raise CommandError(
            f"{path} cannot be used ({error}); check its permissions, the disk, and that it is "
            f"the artifacts folder of a service"
        ) from error


def _choose(jobs: _LocalJobs | JobResource, job_id: str | None) -> str:
    """The id that is given, or that of the running job, else of the newest."""
    if job_id is not None:
        return job_id
    listed = jobs.list(limit=_MOST_ASKED).jobs
    running = [view for view in listed if view.state == "running"]
    if not listed:
        raise CommandError(f"there are no jobs; {_SHOWN}")
    return (running or listed)[0].id


def _line(view: AnyJobSummary) -> str:
    phase = f"{view.progress:4.0%}  {view.phase}" if view.state == "running" else ""
    return f"{view.id}  {view.kind:<6}  {view.state:<9}  {view.name}  {phase}".rstrip()


def _print_job(view: AnyJobView, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(view.model_dump(mode="json"))
        return
    print(_line(view))
    result, error = view.result, view.error
    for label, value in (
        ("created", view.created_at),
        ("started", view.started_at),
        ("finished", view.finished_at),
        ("waits for", view.waits_for),
        (
            "counters",
            ", ".join(f"{name} {n:,}" for name, n in view.counters.items()).replace("_", " "),
        ),
        ("published", result and _describe(result)),
        *(("warning", warning) for warning in (result.warnings if result else ())),
        ("error", error and f"{error.detail} ({error.code})"),
    ):
        if value:
            print(f"  {label:<12} {value}")
    for line in view.log_tail:
        print(f"  | {line}")
    if isinstance(result, PublishedVersion) and result.not_promoted is not None:
        version = f"{result.name}@{result.version}"
        print(f"  {result.not_promoted}; serve it:  tokenizer promote {version}")


def _describe(result: PublishedVersion | PublishedTokenFiles) -> str:
    if isinstance(result, PublishedVersion):
        return f"{result.name}@{result.version}, {result.vocab_size:,} tokens"
    return (
        f"token files {result.id}, {counted(result.documents, 'document')}, "
        f"{counted(result.tokens, 'token')}, {result.bytes:,} bytes"
    )
