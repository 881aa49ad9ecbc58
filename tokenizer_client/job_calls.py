"""Calls about jobs: train, encode corpora, follow, wait, cancel.

A job is started with an idempotency key, so that a repeated request starts no second one. Who
follows a job comes back after a lost connection and misses nothing but what is outdated.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypedDict, Unpack

import httpx

from tokenizer_client.errors import (
    ClientError,
    ConnectionLostError,
    JobFailedError,
    ProblemError,
    UnexpectedAnswerError,
)
from tokenizer_client.event_lines import EventReader
from tokenizer_client.exchanges import (
    Answer,
    exchange,
    get,
    json_request,
    lost,
    open_answer,
    parse_json,
    path_of,
)
from tokenizer_client.retries import Deadline, Session
from tokenizer_client.schemas.jobs import (
    AnyJobList,
    AnyJobSummary,
    AnyJobView,
    EncodeJobView,
    JobView,
)
from tokenizer_client.steps import Emit, Emitting, Flow, Read, Request, Wait, consume
from tokenizer_client.text_calls import SpecialOptions, plain_options

_UNFINISHED: Final = ("queued", "running")
_MANY: Final = 1 << 62


class JobLimits(TypedDict, total=False):
    """When to stop a job that takes more."""

    seconds: float
    memory_bytes: int


class TrainOptions(TypedDict, total=False):
    """What a training request may say; exactly one of the first four, all else has defaults."""

    corpus_ids: Sequence[str]
    input_paths: Sequence[str]
    input_urls: Sequence[str]
    documents: Sequence[str]
    vocab_size: int
    special_tokens: Sequence[str]
    name: str
    pattern: str
    min_frequency: int
    max_token_length: int
    seed_tokens: Sequence[str]
    reserved: int
    pad_to_multiple: int
    promote: Literal["auto", "manual"]
    limits: JobLimits


class EncodeCorpusOptions(SpecialOptions, total=False):
    """What a request to encode corpora may say; all has defaults."""

    further_corpora: Sequence[str]
    token_files_id: str
    tokenizer: str
    format: Literal["text", "jsonl"]
    field: str
    separator: str
    begin_of_document: str
    end_of_document: str
    layout: Literal["raw", "npy", "megatron", "llmc"]
    dtype: Literal["auto", "uint16", "uint32"]
    tokens_per_shard: int
    validation_share: float
    shuffle: bool
    seed: int
    workers: int
    limits: JobLimits


def train(
    session: Session, *, idempotency_key: str | None = None, **options: Unpack[TrainOptions]
) -> Flow[JobView]:
    """Start a training job; returns at once. `wait_for_job` waits for its end.

    The client makes an idempotency key of its own; one that you give makes the same job of calls
    in several processes, too.

    Raises:
        ConflictError: the queue is full.
        InvalidRequestError: what cannot be had is refused at once.
    """
    # Which tokenizer the session is pinned to is nothing to a training run.
    unpinned = replace(session, tokenizer=None, digest=None)
    answer = yield from _start(unpinned, "/train", options, idempotency_key)
    return answer.parse(JobView)


def encode_corpus(
    session: Session,
    corpus_id: str,
    *,
    idempotency_key: str | None = None,
    **options: Unpack[EncodeCorpusOptions],
) -> Flow[EncodeJobView]:
    """Start a job that encodes an uploaded corpus to token files; returns at once.

    `token_files_id` names them; by default they are called as the job. Raises as `train`.
    """
    path = path_of("corpora", corpus_id, "encode")
    if "tokenizer" in options:
        session = replace(session, tokenizer=None)
    answer = yield from _start(session, path, options, idempotency_key)
    return answer.parse(EncodeJobView)


def list_jobs(
    session: Session, *, kind: Literal["train", "encode"] | None = None, limit: int = 50
) -> Flow[list[AnyJobSummary]]:
    """The latest jobs, newest first."""
    return (yield from get(session, "/jobs", AnyJobList, kind=kind, limit=str(limit))).jobs


def describe_job(session: Session, job_id: str) -> Flow[AnyJobView]:
    """One job: its state, how far it is, and the end of its log."""
    return get(session, path_of("jobs", job_id), AnyJobView)


def cancel_job(session: Session, job_id: str) -> Flow[AnyJobView]:
    """Cancel a job, in any state, as often as you like; it as it is then."""
    answer = yield from exchange(session, Request("DELETE", path_of("jobs", job_id)))
    return answer.parse(AnyJobView)


def follow_job(
    session: Session,
    job_id: str,
    *,
    deadline_seconds: float | None = None,
    patience_seconds: float = 300.0,
) -> Emitting[AnyJobView]:
    """A job each time it changed, the last one final.

    A lost connection, or a service that starts anew, is met by coming back, for
    `patience_seconds` after it was last heard of.

    Raises:
        DeadlineExceededError: `deadline_seconds` are over (seen up to 15 s later, where nothing
            happens to the job); the job goes on.
        NotFoundError, ConnectionLostError, UnavailableError: as they say.
    """
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
            job = yield from describe_job(session, job_id)  # asked now and then instead
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
    """The job once it has ended as `live` or `succeeded`; `on_progress` is called with it each time
    it changed.

    Raises:
        JobFailedError: it failed or was cancelled.
        DeadlineExceededError and the rest: as `follow_job`.
    """
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
    """The job each time the service says it, up to its final state; `seen` keeps the last event.

    Raises:
        ClientError: the connection, or the service, ended before that.
    """
    path = path_of("jobs", job_id, "events")
    head = yield from open_answer(session, Request("GET", path, headers=seen), deadline)
    if not head.headers.get("content-type", "").startswith("text/event-stream"):
        raise UnexpectedAnswerError("the events of a job are none; is the address right?")
    reader = EventReader()
    try:
        while (piece := (yield Read())) is not None:
            patience.renew()  # a job may wait for hours, with a comment now and then
            for event in reader.feed(piece):
                seen["Last-Event-ID"] = event.id
                job = parse_json(event.data, AnyJobView)
                yield Emit(job)
                if job.state not in _UNFINISHED:
                    return
            deadline.check()
    except httpx.TransportError as error:
        deadline.check(error)
        raise lost(error) from error
    raise ConnectionLostError("the events ended", was_sent=True)


class _Patience:
    """How long to come back for; every sign of life begins it anew."""

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
) -> Flow[Answer]:
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    request = json_request(session, path, plain_options(options), headers=headers)
    return exchange(session, request)
