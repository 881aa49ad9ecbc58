"""Removes versions: one that a client names, or all but the newest of a name.

A version is in use if the registry's pointer names it, an alias follows it, a process of this host
serves it or holds it for requests, or an unfinished job will promote it, encodes with it or extends
it. Calls block: use a thread.
"""

from __future__ import annotations

import logging

from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.registry import Artifacts
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.errors import VersionInUseError
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.serving.live_tokenizers import LiveTokenizers
from tokenizer_service.settings import Settings

log = logging.getLogger("tokenizer_service.jobs")


class VersionRetention:
    """Removes versions of one registry, never one that is in use."""

    def __init__(
        self, settings: Settings, store: Artifacts, live: LiveTokenizers, jobs: JobStore
    ) -> None:
        self._settings, self._store, self._live, self._jobs = settings, store, live, jobs

    def remove(self, name: str, version: str) -> None:
        """Remove one version; raises VersionInUseError, and as the registry."""
        reason = self._in_use().get(f"{name}@{version}")
        if reason is not None:
            raise VersionInUseError(reason)
        self._store.remove(name, version)

    def keep_newest(self, name: str) -> None:
        """Remove the versions of `name` beyond the newest TOKENIZER_KEEP_VERSIONS; 0 keeps all.

        Keeps the one that serves requests for the name too. Logs a failure; the next call tries
        again.
        """
        kept = self._settings.keep_versions
        if not kept:
            return
        try:
            in_use = self._in_use().keys() | self._store.models().values()
            for ref in self._store.versions(name)[:-kept]:
                if str(ref) not in in_use:
                    self._store.remove(ref.name, ref.version)
                    log.info("%s is removed; TOKENIZER_KEEP_VERSIONS=%d", ref, kept)
        except (TokenizerCoreError, JobDatabaseError, OSError) as error:
            log.warning("old versions of %s cannot be removed: %s", name, error)

    def _in_use(self) -> dict[str, str]:
        """`name@version` of every version in use, and why."""
        served = {str(live.ref) for live in self._live.loaded()}
        served |= {f"{name}@{version}" for name, version, _, _ in self._live.served_rows()}
        served |= self._live.pinned_on_host()
        reason = "a process has it in memory for requests; restart the service to free it"
        found = dict.fromkeys(served, reason)
        for job in self._jobs.unfinished():
            # Also queued jobs, which may wait long before they use a version.
            # A damaged row names none.
            named = job.request.get("tokenizer") if job.kind == "encode" else job.result
            refs = [job.request.get("extend")]
            if isinstance(named, dict):
                refs.append(f"{named['name']}@{named['version']}")
            for ref in filter(None, refs):
                found[ref] = f"job {job.id} needs it; wait for the job, or cancel it"
        return found | self._store.in_use(self._settings.default)
