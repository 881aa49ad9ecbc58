"""`tokenizer jobs list`, `show`, `watch`, `cancel`: the training and encoding jobs of a service.

These commands read the job database in the artifacts folder or at TOKENIZER_JOBS_DATABASE. They
need neither the address of the service nor a key.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tokenizer_client.schemas.jobs import PublishedVersion
from tokenizer_service.commands.command_line import (
    ANSWER_IS_NO,
    CommandError,
    UsageError,
    add_artifacts_dir,
    add_command,
    add_group,
    artifacts_dir_of,
    did_you_mean,
)
from tokenizer_service.commands.outputs import print_json
from tokenizer_service.commands.progress import add_quiet, progress_bar
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME
from tokenizer_service.jobs.kinds import cancel_job
from tokenizer_service.jobs.queue import Job, JobStore
from tokenizer_service.jobs.views import summary_of, view_of

_POLL_SECONDS: Final = 0.5
_MOST_LISTED: Final = 10_000
_DONE_WELL: Final = frozenset({"live", "succeeded"})


def add_parsers(subcommands: Any) -> None:
    """The jobs of the service on an artifacts folder: training runs and encodings that
    were asked for over HTTP. They are read from the folder, so no key is needed.

    examples:
      tokenizer jobs list
      tokenizer jobs watch
      tokenizer jobs show 20261121T041500Z-0123456789ab --json | jq .result
      tokenizer jobs cancel 20261121T041500Z-0123456789ab
    """
    below = add_group(subcommands, "jobs", add_parsers)
    listing = add_command(below, run_list, help="list the latest jobs, newest first")
    listing.add("--limit N", "how many (20)", default=20)
    show = add_command(below, run_show, help="show one job and the end of its log")
    watch = add_command(below, run_watch, help="wait for a job, with a progress bar")
    for parser in (show, watch):
        parser.add("job JOB", "job id (default: the running job, else the newest)", nargs="?")
    add_quiet(watch)
    cancel = add_command(below, run_cancel, help="cancel a queued or running job")
    cancel.add("job JOB", "its id")
    for parser in (listing, show, watch, cancel):
        parser.add("--json", "print the JSON of GET /jobs")
        add_artifacts_dir(parser)


def run_list(arguments: argparse.Namespace) -> None:
    """List the latest jobs, newest first.

    examples:
      tokenizer jobs list
      tokenizer jobs list --limit 5 --json
    """
    if not 1 <= arguments.limit <= _MOST_LISTED:
        raise UsageError(f"--limit is from 1 to {_MOST_LISTED}")
    with _open_jobs(arguments) as store:
        jobs = store.latest(limit=arguments.limit) if store else []
    if arguments.json:
        print_json({"jobs": [summary_of(job).model_dump(mode="json") for job in jobs]})
        return
    if not jobs:
        print("no jobs; a service takes them at POST /train and POST /corpora/{id}/encode")
    for job in jobs:
        print(_line(job))


def run_show(arguments: argparse.Namespace) -> None:
    """Show one job as GET /jobs/{id} does, with the end of its log.

    example:
      tokenizer jobs show 20261121T041500Z-0123456789ab
    """
    with _open_jobs(arguments) as store:
        _print_job(_find(store, arguments.job), arguments)


def run_watch(arguments: argparse.Namespace) -> int:
    """Wait until a job ends, with a progress bar on a terminal. The exit code is 3 if it
    failed or was cancelled. Ctrl-C ends the watching, not the job.

    examples:
      tokenizer jobs watch
      tokenizer jobs watch --quiet && tokenizer list
    """
    with _open_jobs(arguments) as store:
        job = _find(store, arguments.job)
        name = summary_of(job).name
        bar = progress_bar(
            quiet=arguments.quiet,
            desc=f"{name}: ",
            total=100,
            unit="%",
            unit_scale=False,
            delay=0,
            bar_format="{desc}|{bar}| {n:.0f} % [{elapsed}]",
        )
        with bar:
            while not job.is_final:
                bar.set_description(f"{name}, {summary_of(job).phase}", refresh=False)
                bar.update(100 * job.progress - bar.n)
                bar.refresh()
                time.sleep(_POLL_SECONDS)
                job = _find(store, job.id)
    _print_job(job, arguments)
    return 0 if job.state in _DONE_WELL else ANSWER_IS_NO


def run_cancel(arguments: argparse.Namespace) -> None:
    """Cancel a job: one that waits at once, one that runs within seconds, by the service
    that runs it. One that has ended stays as it is.

    example:
      tokenizer jobs cancel 20261121T041500Z-0123456789ab
    """
    with _open_jobs(arguments) as store:
        before = _find(store, arguments.job)
        job = cancel_job(store, artifacts_dir_of(arguments), before.id) if store else None
        job = job or before
    if arguments.json:
        _print_job(job, arguments)
    elif before.is_final:
        print(f"{job.id} had ended already: {job.state}")
    elif job.is_final:
        print(f"{job.id} is cancelled")
    else:
        print(f"{job.id} is being ended by the service that runs it; tokenizer jobs watch {job.id}")


@contextmanager
def _open_jobs(arguments: argparse.Namespace) -> Iterator[JobStore | None]:
    """The job database of the service; None if no service ever ran on the folder."""
    folder = artifacts_dir_of(arguments)
    address = os.environ.get("TOKENIZER_JOBS_DATABASE")
    path = folder / DATABASE_NAME
    try:
        if address:
            from tokenizer_service.jobs.database.postgres import PostgresDatabase  # an extra

            yield JobStore(PostgresDatabase(address))  # no folder: adds and runs nothing
        else:
            yield JobStore.open(folder) if path.exists() else None
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


def _find(store: JobStore | None, job_id: str | None) -> Job:
    if store is not None and job_id is not None:
        job = store.get(job_id)
    elif store is not None:
        running = [job for job in store.unfinished() if job.state == "running"]
        job = next(iter([*running, *store.latest(limit=1)]), None)
    else:
        job = None
    if job is None:
        ids = [each.id for each in store.latest(limit=_MOST_LISTED)] if store and job_id else []
        near = did_you_mean(job_id or "", ids)
        named = f"there is no job {job_id!r}{near}" if job_id else "there are no jobs"
        raise CommandError(f"{named}; tokenizer jobs list shows what there is")
    return job


def _line(job: Job) -> str:
    view = summary_of(job)
    phase = f"{job.progress:4.0%}  {view.phase}" if job.state == "running" else ""
    return f"{job.id}  {job.kind:<6}  {job.state:<9}  {view.name}  {phase}".rstrip()


def _print_job(job: Job, arguments: argparse.Namespace) -> None:
    view = view_of(job, Path(artifacts_dir_of(arguments)))
    fields = view.model_dump(mode="json")
    if arguments.json:
        print_json(fields)
        return
    print(_line(job))
    log = fields.pop("log_tail")
    for name in (
        "created_at",
        "started_at",
        "finished_at",
        "waits_for",
        "counters",
        "result",
        "error",
    ):
        value = fields[name]
        if value:
            print(f"  {name:<12} {value if isinstance(value, str) else json.dumps(value)}")
    for line in log:
        print(f"  | {line}")
    if isinstance(view.result, PublishedVersion) and view.result.not_promoted is not None:
        version = f"{view.result.name}@{view.result.version}"
        print(f"  {view.result.not_promoted}; serve it:  tokenizer promote {version}")
