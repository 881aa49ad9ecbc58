"""Calls about jobs: train, encode corpora, follow, wait, cancel.

Every start carries an idempotency key, so a repeated request starts no second job. A call that
follows a job reconnects after a lost connection and continues with the next change.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypedDict, Unpack

import httpx

from tokenizer_client.calls.exchange import (
    Emit,
    Emitting,
    Flow,
    Read,
    Request,
    Wait,
    WholeResponse,
    connection_lost,
    consume,
    exchange,
    get,
    json_request,
    open_response,
    parse_json,
    path_of,
    require_media_type,
    require_same,
)
from tokenizer_client.calls.retries import Deadline, Session
from tokenizer_client.calls.text import SpecialOptions, plain_options
from tokenizer_client.calls.wire_formats import EventReader
from tokenizer_client.errors import (
    ClientError,
    ConnectionLostError,
    JobFailedError,
    ProblemError,
)
from tokenizer_client.schemas.jobs import (
    AnyJobList,
    AnyJobSummary,
    AnyJobView,
    EncodeJobView,
    FileFormat,
    JobView,
    Promote,
)
from tokenizer_client.schemas.token_files import LossRule, OverLength

_UNFINISHED: Final = ("queued", "running")
_MANY: Final = 1 << 62


class JobLimits(TypedDict, total=False):
    """Limits of a job; the service stops a job that exceeds one."""

    seconds: float
    memory_bytes: int


class TrainOptions(TypedDict, total=False):
    """Options of a training request. Set exactly one of the first four; the rest have defaults."""

    corpus_ids: Sequence[str] | None
    input_paths: Sequence[str] | None
    input_urls: Sequence[str] | None
    documents: Sequence[str] | None
    format: FileFormat | None
    field: str | None
    separator: str | None
    skip_bad: bool | None
    max_bad: float | None
    vocab_size: int | None
    special_tokens: Sequence[str] | None
    name: str | None
    pattern: str | None
    min_frequency: int | None
    max_token_length: int | None
    seed_tokens: Sequence[str] | None
    reserved: int | None
    pad_to_multiple: int | None
    promote: Promote | None
    limits: JobLimits | None


class EncodeCorpusOptions(SpecialOptions, total=False):
    """Options of a request to encode corpora; all have defaults."""

    further_corpora: Sequence[str] | None
    token_files_id: str | None
    tokenizer: str | None
    format: Literal[FileFormat, "chat"] | None
    field: str | None
    separator: str | None
    loss: LossRule | None
    chat_template: str | None
    turn_ends: Sequence[str] | None
    skip_bad: bool | None
    max_bad: float | None
    max_length: int | None
    over_length: OverLength | None
    begin_of_document: str | None
    end_of_document: str | None
    layout: Literal["raw", "npy", "megatron", "llmc"] | None
    dtype: Literal["auto", "uint16", "uint32"] | None
    tokens_per_shard: int | None
    validation_share: float | None
    shuffle: bool | None
    seed: int | None
    workers: int | None
    limits: JobLimits | None


def train(
    session: Session,
    *,
    idempotency_key: str | None = None,
    wait: bool = False,
    on_progress: Callable[[AnyJobView], object] | None = None,
    **options: Unpack[TrainOptions],
) -> Flow[JobView]:
    """Start a training job; wait for its end if asked to."""
    # A training run uses no tokenizer, so the pin does not apply.
    unpinned = replace(session, tokenizer=None, digest=None)
    started = (yield from _start(unpinned, "/train", options, idempotency_key)).parse(JobView)
    if not wait:
        return started
    ended = yield from wait_for_job(session, started.id, on_progress=on_progress)
    return JobView.model_validate(ended.model_dump())


def encode_corpus(
    session: Session,
    corpus_id: str,
    *,
    idempotency_key: str | None = None,
    **options: Unpack[EncodeCorpusOptions],
) -> Flow[EncodeJobView]:
    """Start a job that encodes an uploaded corpus to token files, and return immediately."""
    path = path_of("corpora", corpus_id, "encode")
    if options.get("tokenizer") is not None:
        session = replace(session, tokenizer=None)
    response = yield from _start(session, path, options, idempotency_key)
    return response.parse(EncodeJobView)


def list_jobs(
    session: Session, *, kind: Literal["train", "encode"] | None = None, limit: int = 50
) -> Flow[list[AnyJobSummary]]:
    """The latest jobs, newest first."""
    found = (yield from get(session, "/jobs", AnyJobList, kind=kind, limit=str(limit))).jobs
    for job in found:
        require_same("kind", job.kind, kind or job.kind)
    return found


def describe_job(session: Session, job_id: str) -> Flow[AnyJobView]:
    """One job: its state, its progress, and the end of its log."""
    found = yield from get(session, path_of("jobs", job_id), AnyJobView)
    require_same("id", found.id, job_id)
    return found


def cancel_job(session: Session, job_id: str) -> Flow[AnyJobView]:
    """Cancel a job and return it. Cancelling a job that has ended is not an error."""
    response = yield from exchange(session, Request("DELETE", path_of("jobs", job_id)))
    found = response.parse(AnyJobView)
    require_same("id", found.id, job_id)
    return found


def follow_job(
    session: Session,
    job_id: str,
    *,
    deadline_seconds: float | None = None,
    patience_seconds: float = 300.0,
) -> Emitting[AnyJobView]:
    """Yield a job each time it changes, the last time in its final state."""
    deadline = session.deadline(deadline_seconds)
    patience = _Patience(session, deadline, patience_seconds)
    seen: dict[str, str] = {}
    while True:
        try:
            yield from _listen(session, job_id, seen, patience, deadline)
            return
        except ClientError as failed:
            error = failed
        if isinstance(error, ProblemError) and error.code == "too_many_listeners":
            job = yield from describe_job(session, job_id)  # poll instead
            patience.renew()
            yield Emit(job)
            if job.state not in _UNFINISHED:
                return
        yield Wait(patience.wait_seconds(error))


def wait_for_job(
    session: Session,
    job_id: str,
    *,
    on_progress: Callable[[AnyJobView], object] | None = None,
    deadline_seconds: float | None = None,
    patience_seconds: float = 300.0,
) -> Flow[AnyJobView]:
    """Wait until a job is `live` or `succeeded`, and return it."""
    jobs: list[AnyJobView] = []

    def take(job: AnyJobView) -> None:
        jobs[:] = [job]
        if on_progress is not None:
            on_progress(job)

    following = follow_job(
        session, job_id, deadline_seconds=deadline_seconds, patience_seconds=patience_seconds
    )
    yield from consume(following, take)
    (job,) = jobs
    if job.state in ("failed", "cancelled"):
        raise JobFailedError(job)
    return job


def _listen(
    session: Session, job_id: str, seen: dict[str, str], patience: _Patience, deadline: Deadline
) -> Emitting[AnyJobView]:
    """Yield the job at each event up to its final state; note the id of the last event in `seen`.

    Raises:
        ClientError: the connection ended before the job did.
    """
    path = path_of("jobs", job_id, "events")
    head = yield from open_response(session, Request("GET", path, headers=seen), deadline)
    require_media_type(head.headers, "text/event-stream")
    reader = EventReader()
    try:
        while (piece := (yield Read())) is not None:
            patience.renew()  # the service sends comments while a job waits
            for event in reader.feed(piece):
                seen["Last-Event-ID"] = event.id
                job = parse_json(event.data, AnyJobView)
                require_same("id", job.id, job_id)
                yield Emit(job)
                if job.state not in _UNFINISHED:
                    return
            deadline.check()
    except httpx.TransportError as error:
        deadline.check(error)
        raise connection_lost(error) from error
    raise ConnectionLostError("the events ended", was_sent=True)


class _Patience:
    """Limits how long a call reconnects; each byte from the service restarts the limit."""

    def __init__(self, session: Session, deadline: Deadline, seconds: float) -> None:
        self._session, self._deadline, self._seconds = session, deadline, seconds
        self.renew()

    def renew(self) -> None:
        self._heard = self._session.clock()
        endless = replace(self._session, policy=replace(self._session.policy, max_attempts=_MANY))
        self._attempts = endless.attempts(self._deadline)

    def wait_seconds(self, error: ClientError) -> float:
        if self._session.clock() - self._heard > self._seconds:
            raise error
        return self._attempts.wait_seconds(error)


def _start(
    session: Session, path: str, options: Mapping[str, Any], idempotency_key: str | None
) -> Flow[WholeResponse]:
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    request = json_request(session, path, plain_options(options), headers=headers)
    return exchange(session, request)
