"""Metrics for Prometheus.

Each app has one `ServiceMetrics`; an import registers nothing. With several server processes, the
parent sets `PROMETHEUS_MULTIPROC_DIR` before they start. Each process then writes its values to
files there, and the process that serves `/metrics` adds them up. Metrics of a state (the served
tokenizers, the jobs) are read from their source at every scrape. Labels are route templates,
methods and code words, never input of a client.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import psutil
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from tokenizer_core import Tokenizer
from tokenizer_core.engines import Engine
from tokenizer_service.observability.metrics_files import ReservedFile

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REJECT_REASONS: Final = {
    "overloaded": "overloaded",
    "body_too_large": "body_too_large",
    "no_tokenizer": "no_tokenizer",
    "too_many_listeners": "overloaded",
    "training_busy": "queue_full",
    "training_queue_full": "queue_full",
    "too_many_connections": "too_many_connections",
    "headers_too_slow": "headers_too_slow",
    "headers_too_large": "headers_too_large",
    "too_many_headers": "headers_too_large",
    "bad_http": "bad_http",
    "host_invalid": "bad_http",
    "transfer_coding_unsupported": "bad_http",
    "host_not_allowed": "host_not_allowed",
    "cross_site_request": "cross_site_request",
}
"""Code of a problem -> label of `tokenizer_rejected_total`: requests refused before any work."""

_MOST_READINGS: Final = 5
SWAP_RESULTS: Final = ("ok", "failed", "timeout")
_BUCKETS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30),
)
_JOB_BUCKETS: Final = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600)
JOB_STATES: Final = {
    "train": ("live", "succeeded", "failed", "cancelled"),
    "encode": ("succeeded", "failed", "cancelled"),
}
"""Kind of a job -> the states in which it ends."""

ServedRow = tuple[str, str, str, str]
"""Name, version, digest and engine of a served tokenizer."""


class _Sum(Protocol):
    def inc(self, amount: float) -> object: ...


class Tally:
    """A sum of this process; `hand_over` adds it to the library's counter from time to time.

    The library's counters take a lock and, with several processes, write to a file. That is too
    slow for every request.
    """

    def __init__(self, counter: _Sum) -> None:
        self._counter = counter
        self.total = 0.0
        """The sum; only the event loop adds to it. A call would cost more than the addition."""
        self._handed_over = 0.0
        self._lock = threading.Lock()

    def hand_over(self) -> None:
        """Add the sum to the library's counter. Any thread may call this."""
        with self._lock:
            change = self.total - self._handed_over
            if change:
                self._counter.inc(change)
                self._handed_over += change


class DurationTally:
    """A `Tally` for each bucket of a histogram, and one for the seconds.

    Uses private names of the library's pinned release: its public method takes one value per call.
    """

    def __init__(self, histogram: Histogram) -> None:
        self._buckets = [Tally(bucket) for bucket in histogram._buckets]
        self._seconds = Tally(histogram._sum)

    def observe(self, seconds: float) -> None:
        """Add one duration. Call it only from the event loop."""
        self._buckets[bisect_left(_BUCKETS, seconds)].total += 1
        self._seconds.total += seconds

    def hand_over(self) -> None:
        """Add the sums to the library's histogram. Any thread may call this."""
        for tally in (*self._buckets, self._seconds):
            tally.hand_over()


class ServiceMetrics:
    """The service's metrics."""

    def __init__(self) -> None:
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self._multiprocess_dir = Path(folder) if folder else None
        values.MmapedDict = ReservedFile  # type: ignore[attr-defined]
        # Without this call, each counter has a second series with the time of its creation.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._seen_cache: weakref.WeakKeyDictionary[Engine, tuple[int, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._more: list[Collector] = []
        self._series: dict[tuple[str, str, int], tuple[Tally, DurationTally]] = {}
        self._durations: dict[str, DurationTally] = {}
        self._add_request_metrics()
        self._add_tokenizer_metrics()
        self._add_job_metrics()
        self._add_process_metrics()

    def _add_request_metrics(self) -> None:
        labels = ["method", "handler", "status"]
        self.requests = self._counter("http_requests_total", "Requests answered.", labels)
        self.duration = Histogram(
            "http_request_duration_seconds",
            "Time from the head of a request to the end of its answer.",
            ["handler"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        # Not a tally: a process that has just served a scrape would keep showing one request.
        self.in_flight = self._gauge(
            "tokenizer_inflight",
            "Requests being answered, without small ones that are served in one step.",
        )
        self.queue_depth = self._gauge("tokenizer_queue_depth", "Requests waiting for a thread.")
        self.request_memory = self._gauge(
            "tokenizer_request_memory_bytes",
            "Memory that requests hold: bodies, parsed values, unsent responses, held-back text.",
        )
        self.memory_limit = self._gauge(
            "tokenizer_request_memory_limit_bytes",
            "Limit of tokenizer_request_memory_bytes, of all processes together.",
        )
        self.loop_lag = self._gauge(
            "tokenizer_event_loop_lag_seconds",
            "How late the event loop was at its last look; the worst of the processes.",
            mode="livemax",
        )
        self.rejected = self._counter(
            "tokenizer_rejected_total", "Requests refused before any work.", ["reason"]
        )
        for reason in sorted(set(REJECT_REASONS.values())):
            self.rejected.labels(reason)

    def _add_tokenizer_metrics(self) -> None:
        self.encode_bytes = Tally(
            self._counter("tokenizer_encode_bytes_total", "UTF-8 bytes of text encoded.")
        )
        self.encode_tokens = Tally(
            self._counter("tokenizer_encode_tokens_total", "Token ids that encoding gave.")
        )
        self.decode_tokens = Tally(
            self._counter("tokenizer_decode_tokens_total", "Token ids decoded.")
        )
        self.cache_hits = self._counter(
            "tokenizer_cache_hits_total", "Pre-tokens found in a pre-token cache."
        )
        self.cache_misses = self._counter("tokenizer_cache_misses_total", "Pre-tokens merged anew.")
        changes = "Changes of the served tokenizer in this process."
        self.swaps = self._counter("tokenizer_swaps_total", changes, ["result"])
        for result in SWAP_RESULTS:
            self.swaps.labels(result)
        self.last_swap = self._gauge(
            "tokenizer_last_swap_timestamp_seconds",
            "Unix time of the last change of the served tokenizer.",
            mode="max",
        )

        self.store_away = self._gauge(
            "tokenizer_store_away",
            "1 while a process cannot read the store of tokenizers, and serves what it has.",
            mode="livemax",
        )

    def _add_job_metrics(self) -> None:
        self._ended_jobs = {
            kind: self._counter(
                f"tokenizer_{kind}_jobs_total",
                f"Jobs of kind {kind} that this service has ended since it started.",
                ["status"],
            )
            for kind in JOB_STATES
        }
        self._job_duration = Histogram(
            "tokenizer_job_duration_seconds",
            "Time from the last start of a job to its end.",
            ["kind", "status"],
            buckets=_JOB_BUCKETS,
            registry=self._registry,
        )
        for kind, states in JOB_STATES.items():
            for state in states:
                self._ended_jobs[kind].labels(state)
                self._job_duration.labels(kind, state)

    def _add_process_metrics(self) -> None:
        """The names of prometheus_client's ProcessCollector, which reads one process only."""
        self._process = psutil.Process()
        self._seen_cpu_seconds = 0.0
        cpu = "Processor time of the server processes."
        self._cpu_seconds = self._counter("process_cpu_seconds_total", cpu)
        self._resident = self._gauge(
            "process_resident_memory_bytes", "Resident memory, shared pages in each process."
        )
        self._virtual = self._gauge("process_virtual_memory_bytes", "Virtual memory.")
        self._open_files = self._gauge("process_open_fds", "Open file descriptors.")
        self._max_files = self._gauge("process_max_fds", "Most file descriptors that may be open.")
        self._started = self._gauge(
            "process_start_time_seconds",
            "Unix time of the start of the oldest server process.",
            mode="livemin",
        )
        self._started.set(self._process.create_time())
        self._max_files.set(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self.measure_process()

    def measure_process(self) -> None:
        """Update the metrics `process_*` of this process."""
        try:
            with self._process.oneshot():
                times, memory = self._process.cpu_times(), self._process.memory_info()
            self._open_files.set(self._process.num_fds())
        except OSError:
            return  # every file descriptor is in use; the next call measures
        cpu_seconds = times.user + times.system
        self._cpu_seconds.inc(max(0.0, cpu_seconds - self._seen_cpu_seconds))
        self._seen_cpu_seconds = cpu_seconds
        self._resident.set(memory.rss)
        self._virtual.set(memory.vms)

    def count_job(self, kind: str, state: str, seconds: float | None) -> None:
        """Count a job that a call in this process has ended; `seconds` is None if it never ran."""
        self._ended_jobs[kind].labels(state).inc()
        if seconds is not None:
            self._job_duration.labels(kind, state).observe(max(0.0, seconds))

    def prepare_handlers(self, handlers: Iterable[tuple[str, str]]) -> None:
        """Create the series of these (method, route template) pairs with the value 0."""
        for method, handler in handlers:
            self.requests.labels(method, handler, "200")
            self.duration.labels(handler)

    def add_collector(self, collector: Collector) -> None:
        """Add a collector that reads its metrics at every scrape."""
        self._more.append(collector)

    def count_request(self, method: str, handler: str, status: int, seconds: float) -> None:
        """Count and time a request that got a response."""
        key = (method, handler, status)
        series = self._series.get(key)
        if series is None:  # cached, because the library's look-up takes a lock
            duration = self._durations.get(handler)
            if duration is None:
                duration = self._durations[handler] = DurationTally(self.duration.labels(handler))
            requests = Tally(self.requests.labels(method, handler, str(status)))
            series = self._series[key] = (requests, duration)
        requests, duration = series
        requests.total += 1
        duration.observe(seconds)

    def count_encoded(self, n_bytes: int, n_tokens: int) -> None:
        """Count encoded bytes and their tokens. Call it only from the event loop."""
        self.encode_bytes.total += n_bytes
        self.encode_tokens.total += n_tokens

    def count_decoded(self, n_tokens: int) -> None:
        """Count decoded ids. Call it only from the event loop."""
        self.decode_tokens.total += n_tokens

    def hand_over(self) -> None:
        """Add all tallies to the library's metrics, which all processes see."""
        tallies = [self.encode_bytes, self.encode_tokens, self.decode_tokens]
        for tally in tallies + [requests for requests, _ in list(self._series.values())]:
            tally.hand_over()
        for duration in list(self._durations.values()):
            duration.hand_over()

    def count_rejected(self, code: str) -> None:
        """Count a request that was refused before any work, by the code of its problem."""
        reason = REJECT_REASONS.get(code)
        if reason is not None:
            self.rejected.labels(reason).inc()

    def count_cache(self, tokenizers: Sequence[Tokenizer]) -> None:
        """Add the hits and misses of these tokenizers since the last call."""
        for tokenizer in tokenizers:
            now = tokenizer.cache_statistics()
            # By engine: equal tokenizers may have an engine and a cache each.
            hits, misses = self._seen_cache.get(tokenizer.engine, (0, 0))
            self.cache_hits.inc(max(0, now.hits - hits))
            self.cache_misses.inc(max(0, now.misses - misses))
            self._seen_cache[tokenizer.engine] = (now.hits, now.misses)

    def render(self) -> bytes:
        """All metrics of all processes in Prometheus' text format."""
        self.hand_over()
        counted = self._registry
        if self._multiprocess_dir is not None:
            counted = CollectorRegistry()
            _forget_dead_processes(self._multiprocess_dir)
            MultiProcessCollector(counted, str(self._multiprocess_dir))  # type: ignore[no-untyped-call]
        state = CollectorRegistry()
        for collector in self._more:
            state.register(collector)
        return _read_out(counted) + generate_latest(state)

    def _counter(self, name: str, what: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, what, labels, registry=self._registry)

    def _gauge(self, name: str, what: str, *, mode: Any = "livesum") -> Gauge:
        return Gauge(name, what, registry=self._registry, multiprocess_mode=mode)


def _read_out(registry: CollectorRegistry) -> bytes:
    """The metrics of `registry`; tries again if a process removes its file while they are read."""
    for _ in range(_MOST_READINGS - 1):
        with contextlib.suppress(FileNotFoundError):
            return generate_latest(registry)
    return generate_latest(registry)


class ServedCollector(Collector):
    """`tokenizer_info`, from a function that returns its rows."""

    def __init__(self, served: Callable[[], Iterable[ServedRow]]) -> None:
        self._served = served

    def collect(self) -> Iterator[Metric]:
        """One series for each version that a process serves; during a swap there are two."""
        family = GaugeMetricFamily(
            "tokenizer_info",
            "The tokenizers served.",
            labels=["name", "version", "digest", "engine"],
        )
        for row in sorted(set(self._served())):
            family.add_metric(list(row), 1)
        yield family


class DiskCollector(Collector):
    """`tokenizer_disk_free_bytes` and `tokenizer_disk_size_bytes` of the disk with `folder`.

    Free bytes are those that this user may write. Without a readable disk, yields no series.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        """Both values now."""
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:
            return
        where = "on the disk of TOKENIZER_ARTIFACTS_DIR."
        yield GaugeMetricFamily("tokenizer_disk_free_bytes", f"Bytes free {where}", disk.free)
        yield GaugeMetricFamily("tokenizer_disk_size_bytes", f"Bytes {where}", disk.total)


def _forget_dead_processes(folder: Path) -> None:
    """Drop the gauges of dead processes, which the library does not notice by itself."""
    for path in folder.glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]
