from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.testclient import TestClient

from tests.conftest import REPOSITORY
from tokenizer_core.engines import resolve_engine
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.observability import metrics
from tokenizer_service.observability.metrics import DurationTally, ServiceMetrics
from tokenizer_service.rendering import encode as encode_answers

NAMES = (
    "tokenizer_inflight",
    "tokenizer_queue_depth",
    "tokenizer_event_loop_lag_seconds",
    "tokenizer_last_swap_timestamp_seconds",
    "tokenizer_store_away",
    "tokenizer_job_database_away",
    "tokenizer_train_progress_ratio",
    'tokenizer_rejected_total{reason="overloaded"}',
    'tokenizer_rejected_total{reason="queue_full"}',
    'tokenizer_swaps_total{result="ok"}',
    'tokenizer_swaps_total{result="failed"}',
    'tokenizer_train_jobs_total{status="live"}',
    "tokenizer_encode_progress_ratio",
    'tokenizer_encode_jobs_total{status="succeeded"}',
    'tokenizer_jobs{kind="train",state="queued"}',
    'tokenizer_jobs{kind="encode",state="running"}',
    'tokenizer_job_duration_seconds_count{kind="train",status="live"}',
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
    "tokenizer_disk_free_bytes",
    "tokenizer_disk_size_bytes",
    'http_requests_total{handler="/encode",method="POST",status="200"}',
    'http_request_duration_seconds_count{handler="/encode"}',
)


def values(text: str) -> dict[str, float]:
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def scrape(client: TestClient) -> dict[str, float]:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return values(response.text)


def test_all_metrics_exist_before_the_first_request(client: TestClient) -> None:
    found = scrape(client)
    for name in NAMES:
        assert name in found, name
    assert found["tokenizer_encode_bytes_total"] == 0
    assert found["tokenizer_queue_depth"] == 0
    assert found["tokenizer_inflight"] == 1  # this request itself
    [info] = [name for name in found if name.startswith("tokenizer_info")]
    assert 'name="starter"' in info
    assert f'engine="{resolve_engine()}"' in info


def test_requests_bytes_tokens_and_the_cache_are_counted(client: TestClient) -> None:
    n_bytes = n_tokens = n_decoded = 0
    for repeat in (1, 400):
        text = "the quick é " * repeat
        encoded = client.post("/v1/encode", json={"text": [text, "a"]}).json()
        client.post("/decode", json={"tokens": encoded["tokens"]})
        client.post("/encode_stream", content=text.encode())
        client.post("/encode", json={"text": 1})
        n_bytes += 2 * len(text.encode()) + 1
        n_tokens += 2 * encoded["count"][0] + 1
        n_decoded += sum(encoded["count"])
        found = scrape(client)
        assert found["tokenizer_encode_bytes_total"] == n_bytes
        assert found["tokenizer_encode_tokens_total"] == n_tokens
        assert found["tokenizer_decode_tokens_total"] == n_decoded
    assert found["tokenizer_cache_misses_total"] > 0
    assert found['http_requests_total{handler="/encode",method="POST",status="200"}'] == 2
    assert found['http_requests_total{handler="/encode",method="POST",status="422"}'] == 2
    assert found['http_request_duration_seconds_count{handler="/encode"}'] == 4
    client.post("/encode", json={"text": "the quick é"})
    again = scrape(client)
    assert again["tokenizer_cache_misses_total"] == found["tokenizer_cache_misses_total"]
    assert again["tokenizer_cache_hits_total"] > found["tokenizer_cache_hits_total"]


def test_the_disk_is_measured_at_every_scrape(
    client: TestClient, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(store.root)
    looked_at = []

    def disk_usage(folder: Path) -> object:
        looked_at.append(folder)
        return usage._replace(total=1000, free=1000 - len(looked_at))

    monkeypatch.setattr(metrics.shutil, "disk_usage", disk_usage)
    found = [scrape(client) for _ in range(2)]
    assert [one["tokenizer_disk_free_bytes"] for one in found] == [999, 998]
    assert found[0]["tokenizer_disk_size_bytes"] == 1000
    assert looked_at == [store.root] * 2

    def fail(folder: Path) -> object:
        raise OSError(errno.EIO, "")

    monkeypatch.setattr(metrics.shutil, "disk_usage", fail)
    without = scrape(client)
    assert "tokenizer_disk_free_bytes" not in without
    assert "tokenizer_inflight" in without


@pytest.mark.row(34)
def test_labels_do_not_come_from_requests(client: TestClient) -> None:
    for index in range(5):
        client.get(f"/nothing/{index}")
        client.get(f"/tokenizers/nope{index}")
        client.request(f"VERB{index}", "/encode")
    found = scrape(client)
    assert found['http_requests_total{handler="unmatched",method="GET",status="404"}'] == 5
    assert found['http_requests_total{handler="/tokenizers/{name}",method="GET",status="404"}'] == 5
    assert not any("nope" in name or "VERB" in name for name in found)


def test_a_defect_is_a_500_without_details(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("a secret in the message")

    monkeypatch.setattr(encode_answers, "utf8_length", fail)
    headers = {"X-Request-Id": "my-request.1"}
    for text in ("a", "a" * 5000):
        response = client.post("/encode", json={"text": text}, headers=headers)
        assert response.status_code == 500
        assert response.headers["content-type"] == "application/problem+json"
        assert response.headers["X-Request-Id"] == "my-request.1"
        assert "secret" not in response.text
        assert "Traceback" not in response.text
    assert "POST /encode failed" in caplog.text
    assert "a secret in the message" in caplog.text  # it belongs in the log
    found = scrape(client)
    assert found['http_requests_total{handler="/encode",method="POST",status="500"}'] == 2
    assert found["tokenizer_inflight"] == 1


@pytest.mark.row(34)
def test_malformed_request_ids_are_replaced(client: TestClient) -> None:
    for sent in ("a b", "x" * 65, "é", ""):
        response = client.get("/nope", headers={"X-Request-Id": sent.encode()})
        assert response.headers["X-Request-Id"] != sent
        assert len(response.headers["X-Request-Id"]) == 32
        assert response.json()["instance"].endswith(response.headers["X-Request-Id"])


@pytest.mark.promise(13)
def test_overload_is_503_with_retry_after(make_client: Callable[..., TestClient]) -> None:
    with make_client() as client:
        services = client.app.services  # type: ignore[attr-defined]
        lease = services.budget.lease()
        lease.reserve(services.budget.maximum)
        response = client.post("/encode", json={"text": "a"})
        assert response.status_code == 503
        assert response.headers["Retry-After"]
        lease.release()
        assert client.post("/encode", json={"text": "a" * 9000}).status_code == 200
        assert client.post("/encode", json={"text": 1}).status_code == 422
        assert services.budget.used == 0
        assert scrape(client)['tokenizer_rejected_total{reason="overloaded"}'] == 1


def test_a_metrics_file_that_is_removed_meanwhile_is_read_again() -> None:
    class Folder(Collector):
        n_readings = 0

        def collect(self) -> list[Metric]:
            self.n_readings += 1
            if self.n_readings < 3:
                raise FileNotFoundError("gauge_all_1.db")
            return [GaugeMetricFamily("whole", "read", 1.0)]

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Folder())
    assert b"\nwhole 1.0\n" in metrics._read_out(registry)


@given(st.lists(st.floats(0, 100) | st.sampled_from(metrics._BUCKETS), max_size=30), st.data())
def test_a_tally_equals_the_histogram_of_the_library(seconds: list[float], data: Any) -> None:
    registries = CollectorRegistry(), CollectorRegistry()
    plain, tallied = (
        Histogram("t", "Times.", buckets=metrics._BUCKETS, registry=registry)
        for registry in registries
    )
    tally = DurationTally(tallied)
    for second in seconds:
        plain.observe(second)
        tally.observe(second)
        if data.draw(st.booleans()):
            tally.hand_over()
    tally.hand_over()
    tally.hand_over()  # the second call adds nothing
    lines = [values(generate_latest(registry).decode()) for registry in registries]
    assert lines[0].keys() == lines[1].keys()
    assert lines[0] == pytest.approx(lines[1])
    assert lines[0]["t_count"] == len(seconds)


@pytest.fixture
def nobody_claims_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobStore, "claim_next", lambda store, owner: None)


def test_ended_jobs_are_counters_that_outlive_their_rows(
    nobody_claims_jobs: None, client: TestClient
) -> None:
    jobs = client.app.services.jobs  # type: ignore[attr-defined]
    for index in range(3):
        jobs.add(
            f"j{index}", {"name": "x"}, request_digest="d", idempotency_key=None, queue_limit=100
        )
        jobs.request_cancel(f"j{index}")
    ended, kept = (
        'tokenizer_train_jobs_total{status="cancelled"}',
        'tokenizer_jobs{kind="train",state="cancelled"}',
    )
    found = scrape(client)
    assert (found[ended], found[kept]) == (3, 3)
    jobs.forget_old(kept=1)
    found = scrape(client)
    assert (found[ended], found[kept]) == (3, 1)
    assert found['tokenizer_job_duration_seconds_count{kind="train",status="cancelled"}'] == 0
    text = client.get("/metrics").text
    assert "# TYPE tokenizer_train_jobs_total counter" in text
    assert "# TYPE tokenizer_jobs gauge" in text
    counted = ServiceMetrics()
    counted.count_job("train", "live", 20.0)
    counted.count_job("train", "live", 7200.0)
    found = values(counted.render().decode())
    labels = 'kind="train",status="live"'
    assert found[f"tokenizer_job_duration_seconds_sum{{{labels}}}"] == 7220
    assert found['tokenizer_job_duration_seconds_bucket{kind="train",le="60.0",status="live"}'] == 1
    assert found['tokenizer_train_jobs_total{status="live"}'] == 2


def test_the_process_metrics_are_those_of_this_process() -> None:
    counted = ServiceMetrics()
    before = values(counted.render().decode())
    assert before["process_start_time_seconds"] == psutil.Process().create_time()
    assert before["process_resident_memory_bytes"] > 1 << 20
    assert 0 < before["process_open_fds"] < before["process_max_fds"]
    sum(range(100_000))
    counted.measure_process()
    after = values(counted.render().decode())
    assert 0 < before["process_cpu_seconds_total"] <= after["process_cpu_seconds_total"]


def test_the_metrics_of_ended_processes_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their files stay when a process ends, so that the sums never fall."""
    code = (
        "from tokenizer_service.observability.metrics import ServiceMetrics\n"
        "counted = ServiceMetrics()\n"
        "counted.count_job('encode', 'succeeded', 1.5)\n"
        "counted.hand_over()\n"
        "print(counted.render().decode())\n"
    )
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    seen = [
        values(
            subprocess.run(
                [sys.executable, "-c", code],
                cwd=REPOSITORY,
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(2)
    ]
    assert [one['tokenizer_encode_jobs_total{status="succeeded"}'] for one in seen] == [1, 2]
    assert seen[0]["process_cpu_seconds_total"] < seen[1]["process_cpu_seconds_total"]
    assert seen[1]["process_resident_memory_bytes"] < 2 * seen[0]["process_resident_memory_bytes"]
