"""create_app: assembles the service.

    uvicorn app.main:create_app --factory

`create_app` reads the settings once; the lifespan of the app builds the services and closes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, Final, cast

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Scope

from tokenizer_core.chat.renderer import end_render_processes
from tokenizer_core.engines import EngineChoice, choose_engine
from tokenizer_core.registry import open_artifacts
from tokenizer_service.access.auth import AccessKeys, access_keys, weak_keys
from tokenizer_service.access.limits import (
    INLINE_CONVERSATIONS,
    ByteBudget,
    TurnLimit,
    give_back_memory,
)
from tokenizer_service.access.shared_work import SharedWork
from tokenizer_service.access.work_queue import FairThreads, WorkQueue
from tokenizer_service.handlers.preconditions import require_known_query
from tokenizer_service.handlers.respond import PlannedRoutes
from tokenizer_service.handlers.stored import StoredRoutes
from tokenizer_service.http.connections import STATE_KEY, ConnectionGuard
from tokenizer_service.http.cors import ReadRoutesCors, SharedReads
from tokenizer_service.http.headers import header_fields
from tokenizer_service.http.middleware import RequestObserver, Server
from tokenizer_service.ingress import AllowedHosts
from tokenizer_service.jobs.corpora import CorpusStore
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.events import JobWatch
from tokenizer_service.jobs.metrics import JobCollector
from tokenizer_service.jobs.queue import Job, JobStore
from tokenizer_service.jobs.runner import JobRunner
from tokenizer_service.jobs.token_files import TokenFilesStore
from tokenizer_service.jobs.version_retention import VersionRetention
from tokenizer_service.jobs.vocabulary_import import VocabularyImports
from tokenizer_service.observability.logs import configure_logging
from tokenizer_service.observability.metrics import DiskCollector, ServedCollector, ServiceMetrics
from tokenizer_service.observability.tracing import Traces, Tracing, open_traces
from tokenizer_service.responses.problem_table import install_problem_handlers, problem_of
from tokenizer_service.routes import (
    chat,
    corpora,
    decode,
    derender,
    dialects,
    docs,
    encode,
    extend,
    jobs,
    models,
    playground,
    status,
    stream,
    text,
    token_files,
    tokenizers,
    vocab,
)
from tokenizer_service.services import Services
from tokenizer_service.serving.artifact_files import ArtifactFiles
from tokenizer_service.serving.live_tokenizers import LiveTokenizers
from tokenizer_service.serving.models import ModelNames
from tokenizer_service.settings import Settings, unknown_variables

log = logging.getLogger("tokenizer_service.main")

ROUTERS: Final = (
    encode.router,
    decode.router,
    stream.router,
    dialects.router,
    chat.router,
    derender.router,
    extend.router,
    text.router,
    vocab.router,
    tokenizers.router,
    models.router,
    jobs.training,
    corpora.router,
    token_files.router,
    jobs.any_job,
    status.router,
    docs.router,
    playground.router,
)

SWITCH_INTERVAL_SECONDS: Final = 0.001
"""How long a thread may hold the interpreter while the event loop waits for it. With Python's 5 ms,
a small request waited several times and took 60 ms while a large one was running."""

_OTHER_CHAT_THREADS: Final = 6
"""Threads for conversations in child processes besides `thread_count`. Each has a process with the
memory of `chat_memory_bytes`."""

_LEAST_CHAT_THREADS: Final = 3
"""How many of them one chat template may hold where `thread_count` is lower, so that its
conversations do not wait for each other."""

_SAMPLE_SECONDS: Final = 0.5
_QUIET_SAMPLES: Final = 4
_LEAST_GIVEN_BACK: Final = 1 << 24
"""Memory is given back when no request held any for some samples, after requests that held so
much."""

# FastAPI's telemetry would record input of clients, which a problem document never repeats.
_NO_TELEMETRY: Final = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """Create the app for `settings`, by default those of the environment.

    Raises:
        SettingsError: a setting is wrong, or an admin key is required and not set.
        EngineUnavailableError: the engine that the settings name is not installed.
    """
    if settings is None:
        settings = Settings.from_environment()
    configure_logging(settings.log_level, settings.log_format)
    for line in [*unknown_variables(), *weak_keys(settings)]:
        log.warning(line)
    engine = choose_engine(settings.engine)
    _log_engine(engine)
    service_metrics = ServiceMetrics()
    traces = open_traces()
    app = _Service(
        service_metrics,
        traces,
        title="Tokenizer service",
        version=version("tokenizer-service"),
        description="Exact byte-level BPE over HTTP. Every route is also under `/v1`.",
        lifespan=functools.partial(_lifespan, settings, engine, service_metrics, traces),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    app.access_keys = access_keys(settings)
    app.router.routes.extend(_routes())
    app.shared = SharedReads(settings.cors_origins, app.router.routes)
    install_problem_handlers(app)
    service_metrics.prepare_handlers(_handlers(app))
    return app


@functools.cache
def _routes() -> list[BaseRoute]:
    """All routes, with and without `/v1`. All apps of a process share them, because FastAPI needs
    0.2 s to prepare them."""
    both = APIRouter()
    for router in ROUTERS:
        for route in router.routes:
            # Last, and not a dependency of `both`, which would come before the key.
            cast(APIRoute, route).dependencies.append(Depends(require_known_query))
        both.include_router(router)
        both.include_router(router, prefix="/v1", include_in_schema=False)
    return both.routes


class _Service(FastAPI):
    """FastAPI with our own outer middleware: the observer, and what serves the planned and stored
    routes."""

    access_keys: AccessKeys
    shared: SharedReads
    services: Services  # set by the lifespan
    server_of: Callable[[Scope], Server | None] | None = None
    """A function that serves requests with this head in one step, or None: call the app.
    `tokenizer_service.http.protocol` uses it of an app that no other app wraps."""

    def __init__(
        self, service_metrics: ServiceMetrics, traces: Traces | None, **options: Any
    ) -> None:
        self._service_metrics = service_metrics
        self._traces = traces
        super().__init__(**options)

    def openapi(self) -> dict[str, Any]:
        """The document of this service, in place of FastAPI's."""
        self.openapi_schema = self.openapi_schema or docs.build_openapi(self)
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        """Add our middleware. Called once, at the first request, after all routes are included."""
        planned = PlannedRoutes(super().build_middleware_stack(), self)
        routes = StoredRoutes(planned, self)
        observer = RequestObserver(routes, self._service_metrics, problem_of, planned.server_of)
        app: ASGIApp = ReadRoutesCors(observer, self.shared) if self.shared.origins else observer
        if self._traces is not None:  # a span needs the messages of an ASGI app
            return Tracing(app, self._traces.tracer)
        self.server_of = observer.server_of
        if app is not observer:  # which adds headers to the response
            self.server_of = lambda scope: (
                None if b"origin" in header_fields(scope) else observer.server_of(scope)
            )
        return app


@contextlib.asynccontextmanager
async def _lifespan(
    settings: Settings,
    engine: EngineChoice,
    service_metrics: ServiceMetrics,
    traces: Traces | None,
    app: _Service,
) -> AsyncIterator[dict[str, ConnectionGuard]]:
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    async with contextlib.AsyncExitStack() as closing:
        closing.callback(end_render_processes)
        closing.callback(sys.setswitchinterval, switch_interval)
        if traces is not None:
            closing.push_async_callback(asyncio.to_thread, traces.close)

        def queue(name: str, n_threads: int, *, most_of_one: int | None = None) -> WorkQueue:
            executor = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
            threads = executor if most_of_one is None else FairThreads(executor, most_of_one)
            closing.callback(threads.shutdown, wait=False, cancel_futures=True)
            count = service_metrics.queue_depth.inc
            return WorkQueue(threads, count, work_seconds=settings.work_seconds)

        large_queue = queue("large-request", settings.thread_count)
        # Small work holds the interpreter lock, so that more threads would not make it faster.
        quick_queue = queue("small-request", 1)
        # A template that loops holds the threads of its own conversations only.
        n_chats = max(_LEAST_CHAT_THREADS, settings.thread_count)
        n_threads = settings.thread_count + _OTHER_CHAT_THREADS
        chat_queue = queue("chat", n_threads, most_of_one=n_chats)
        store = open_artifacts(settings.store, settings.artifacts_dir)
        live = LiveTokenizers(settings, store, service_metrics)
        stored = CorpusStore(settings.artifacts_dir / "corpora", settings.corpora_max_bytes)
        written = TokenFilesStore(settings.artifacts_dir, settings.token_files_max_bytes)
        address = settings.jobs_database
        job_store = await asyncio.to_thread(
            JobStore.open,
            settings.artifacts_dir,
            None if address is None else address.get_secret_value(),
            lease_seconds=settings.lease_seconds,
        )
        closing.callback(job_store.database.close)
        await asyncio.to_thread(_sweep, stored, written, job_store)
        runner = JobRunner(settings, store, live, job_store)
        service_metrics.add_collector(ServedCollector(live.served_rows))
        service_metrics.add_collector(JobCollector(job_store))
        job_store.on_end = functools.partial(_note_job, service_metrics, traces)
        service_metrics.add_collector(DiskCollector(settings.artifacts_dir))
        app.services = Services(
            settings=settings,
            engine=engine,
            store=store,
            live=live,
            models=ModelNames(store, live),
            files=ArtifactFiles(store, live),
            corpora=stored,
            token_files=written,
            jobs=job_store,
            job_watch=JobWatch(job_store, settings.artifacts_dir),
            runner=runner,
            imports=VocabularyImports(settings),
            retention=VersionRetention(settings, store, live, job_store),
            queue=large_queue,
            quick_queue=quick_queue,
            chat_queue=chat_queue,
            inline_conversations=TurnLimit(INLINE_CONVERSATIONS),
            shared=SharedWork(),
            budget=ByteBudget(settings.memory_limit),
            metrics=service_metrics,
        )
        closing.push_async_callback(live.stop)
        await live.start()
        closing.push_async_callback(runner.stop)
        await runner.start()
        sampler = asyncio.create_task(
            _sample(service_metrics, app.services), name="metrics sampler"
        )
        closing.callback(sampler.cancel)
        yield {STATE_KEY: _guard(settings, service_metrics, app.shared)}


def _note_job(service_metrics: ServiceMetrics, traces: Traces | None, job: Job) -> None:
    service_metrics.count_job(job.kind, job.state, job.run_seconds)
    if traces is not None:
        code = None if job.error is None else job.error["code"]
        traces.record_job(job.kind, job.state, job.started_at, code)


def _guard(
    settings: Settings, service_metrics: ServiceMetrics, shared: SharedReads
) -> ConnectionGuard:
    """The limits on connections of this process, for a server that runs `http.protocol`."""
    return ConnectionGuard(
        max_connections=settings.max_connections,
        header_seconds=settings.header_seconds,
        send_seconds=settings.send_seconds,
        stall_seconds=max(settings.send_seconds, settings.stream_idle_seconds),
        max_drained_bytes=settings.max_body_bytes,
        hosts=AllowedHosts.of(settings.allowed_hosts, settings.host),
        shared=shared,
        count=service_metrics.count_rejected,
        problem_of=problem_of,
    )


def _sweep(stored: CorpusStore, written: TokenFilesStore, job_store: JobStore) -> None:
    """Remove unfinished uploads and token files of dead processes."""
    try:
        stored.sweep()
        names = written.folder.left_over()
        written.folder.sweep(names, [job.id for job in job_store.unfinished()])
    except (OSError, JobDatabaseError) as error:  # serving works without it
        if not getattr(error, "is_away", False):  # an outage was logged when it began
            log.warning("files that were left over cannot be removed: %s", error)


def _log_engine(engine: EngineChoice) -> None:
    """Log the engine that computes the ids; warn if it is the fallback."""
    if engine.is_fallback:
        log.warning(
            "the Python engine runs, many times slower than the native one: %s", engine.reason
        )
    else:
        log.info("the %s engine runs: %s", engine.name, engine.reason)


async def _sample(service_metrics: ServiceMetrics, services: Services) -> None:
    """Measure the lag of the event loop, and update the metrics from caches and tallies."""
    budget, n_quiet = services.budget, 0
    service_metrics.memory_limit.set(budget.maximum)
    while True:
        started = time.perf_counter()
        await asyncio.sleep(_SAMPLE_SECONDS)
        lag = time.perf_counter() - started - _SAMPLE_SECONDS
        service_metrics.loop_lag.set(max(0.0, lag))
        service_metrics.request_memory.set(budget.used)
        n_quiet = 0 if budget.used else n_quiet + 1
        if n_quiet >= _QUIET_SAMPLES and budget.most >= _LEAST_GIVEN_BACK:
            await asyncio.to_thread(give_back_memory, budget)
        service_metrics.count_cache([loaded.tokenizer for loaded in services.live.loaded()])
        service_metrics.measure_process()
        service_metrics.hand_over()


def _handlers(app: FastAPI) -> list[tuple[str, str]]:
    """(method, route template) of every route; a route under `/v1` counts as the one without."""
    pairs: set[tuple[str, str]] = set()
    for context in iter_route_contexts(app.routes):
        path = getattr(context.original_route, "path", None)
        if path:
            pairs.update((method, path) for method in context.methods or ())
    return sorted(pairs)
