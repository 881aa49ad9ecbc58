"""Services: the objects that request handlers use, at `request.app.services`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from starlette.requests import HTTPConnection

    from app.access.limits import ByteBudget, WorkQueue
    from app.jobs.corpora import CorpusStore
    from app.jobs.events import JobWatch
    from app.jobs.queue import JobStore
    from app.jobs.runner import JobRunner
    from app.jobs.token_files import TokenFilesStore
    from app.jobs.version_retention import VersionRetention
    from app.observability.metrics import ServiceMetrics
    from app.serving.artifact_files import ArtifactFiles
    from app.serving.live_tokenizers import LiveTokenizers
    from app.settings import Settings
    from tokenizer_core.engines import EngineChoice
    from tokenizer_core.registry import Artifacts


@dataclass(frozen=True, slots=True)
class Services:
    """The services of one app; its lifespan builds them once and closes them."""

    settings: Settings
    engine: EngineChoice
    store: Artifacts
    live: LiveTokenizers
    files: ArtifactFiles
    corpora: CorpusStore
    token_files: TokenFilesStore
    jobs: JobStore
    job_watch: JobWatch
    runner: JobRunner
    retention: VersionRetention
    executor: ThreadPoolExecutor
    queue: WorkQueue
    quick_queue: WorkQueue
    chat_queue: WorkQueue
    budget: ByteBudget
    metrics: ServiceMetrics


def services_of(request: HTTPConnection) -> Services:
    """The services of the app that serves `request`."""
    return cast("Services", request.scope["app"].services)
