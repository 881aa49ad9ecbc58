"""Services: the objects that request handlers use, at `request.app.services`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import HTTPConnection

from tokenizer_core.engines import EngineChoice
from tokenizer_core.registry import Artifacts
from tokenizer_service.access.limits import ByteBudget, TurnLimit
from tokenizer_service.access.shared_work import SharedWork
from tokenizer_service.access.work_queue import WorkQueue
from tokenizer_service.jobs.corpora import CorpusStore
from tokenizer_service.jobs.events import JobWatch
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.jobs.runner import JobRunner
from tokenizer_service.jobs.token_files import TokenFilesStore
from tokenizer_service.jobs.version_retention import VersionRetention
from tokenizer_service.jobs.vocabulary_import import VocabularyImports
from tokenizer_service.observability.metrics import ServiceMetrics
from tokenizer_service.serving.artifact_files import ArtifactFiles
from tokenizer_service.serving.live_tokenizers import LiveTokenizers
from tokenizer_service.serving.models import ModelNames
from tokenizer_service.settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """The services of one app; its lifespan builds them once and closes them."""

    settings: Settings
    engine: EngineChoice
    store: Artifacts
    live: LiveTokenizers
    models: ModelNames
    files: ArtifactFiles
    corpora: CorpusStore
    token_files: TokenFilesStore
    jobs: JobStore
    job_watch: JobWatch
    runner: JobRunner
    imports: VocabularyImports
    retention: VersionRetention
    queue: WorkQueue
    quick_queue: WorkQueue
    chat_queue: WorkQueue
    inline_conversations: TurnLimit
    shared: SharedWork
    budget: ByteBudget
    metrics: ServiceMetrics


def services_of(request: HTTPConnection) -> Services:
    """The services of the app that serves `request`."""
    return cast("Services", request.scope["app"].services)
