import errno
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.registry import Collector

from tests.conftest import REPOSITORY
from tokenizer_core.engines import choose_engine
from tokenizer_service.commands import serving
from tokenizer_service.handlers import encode as encode_answers
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.observability import metrics, metrics_files
from tokenizer_service.observability.logs import EscapingFormatter
from tokenizer_service.observability.metrics import DurationTally, ServiceMetrics
from tokenizer_service.observability.metrics_files import FIRST_BYTES, ReservedFile

SERIES = (
    'tokenizer_rejected_total{reason="overloaded"}',
    'tokenizer_swaps_total{result="failed"}',
    'tokenizer_train_jobs_total{status="live"}',
    'tokenizer_encode_jobs_total{status="succeeded"}',
    'tokenizer_jobs{kind="encode",state="running"}',
    'tokenizer_job_duration_seconds_count{kind="train",status="live"}',
    'http_requests_total{handler="/encode",method="POST",status="200"}',
    'http_request_duration_seconds_count{handler="/encode"}',
    "process_virtual_memory_bytes",
)


def values(text):
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def scrape(client):
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return values(response.text)


def test_all_series_exist_before_the_first_request(client):
    found = scrape(client)
    assert set(SERIES) - set(found) == set()
    assert found["tokenizer_encode_bytes_total"] == 0
    assert found["tokenizer_queue_depth"] == 0
    assert found["tokenizer_inflight"] == 1  # this request itself
    [info] = [name for name in found if name.startswith("tokenizer_info")]
    assert 'name="starter"' in info
    assert f'engine="{choose_engine("auto").name}"' in info


def test_requests_bytes_tokens_and_the_cache_are_counted(client):
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


def test_the_disk_is_measured_at_every_scrape(client, store, monkeypatch):
    left = [998, 999]

    def disk_usage(folder):
        assert folder == store.root
        if not left:
            raise OSError(errno.EIO, "")
        return SimpleNamespace(total=1000, free=left.pop())

    monkeypatch.setattr(metrics.shutil, "disk_usage", disk_usage)
    found = [scrape(client) for _ in range(3)]
    free = [one.get("tokenizer_disk_free_bytes") for one in found]
    assert free == [999, 998, None]
    assert found[0]["tokenizer_disk_size_bytes"] == 1000


@pytest.mark.row(34)
def test_labels_do_not_come_from_requests(client):
    for index in range(5):
        client.get(f"/nothing/{index}")
        client.get(f"/tokenizers/nope{index}")
        client.request(f"VERB{index}", "/encode")
    found = scrape(client)
    assert found['http_requests_total{handler="unmatched",method="GET",status="404"}'] == 5
    assert found['http_requests_total{handler="/tokenizers/{name}",method="GET",status="404"}'] == 5
    assert not any("nope" in name or "VERB" in name for name in found)


def test_a_defect_is_a_500_without_details(client, monkeypatch, caplog):
    def fail(*arguments, **options):
        raise RuntimeError("a secret in the message")

    monkeypatch.setattr(encode_answers, "Rendered", fail)
    monkeypatch.setattr(caplog.handler, "formatter", EscapingFormatter("%(message)s"))
    headers = {"X-Request-Id": "my-request.1"}
    for text in ("a", "a" * 5000):
        response = client.post("/encode", json={"text": text}, headers=headers)
        assert response.status_code == 500
        assert response.headers["content-type"] == "application/problem+json"
        assert response.headers["X-Request-Id"] == "my-request.1"
        assert "secret" not in response.text
        assert "Traceback" not in response.text
    assert "POST /encode failed request_id=my-request.1" in caplog.text
    assert "a secret in the message" in caplog.text  # it belongs in the log
    found = scrape(client)
    assert found['http_requests_total{handler="/encode",method="POST",status="500"}'] == 2
    assert found["tokenizer_inflight"] == 1


@pytest.mark.row(34)
def test_malformed_request_ids_are_replaced(client):
    for sent in ("a b", "x" * 65, "é", ""):
        response = client.get("/nope", headers={"X-Request-Id": sent.encode()})
        assert response.headers["X-Request-Id"] != sent
        assert len(response.headers["X-Request-Id"]) == 32
        assert response.json()["instance"].endswith(response.headers["X-Request-Id"])


def test_a_metrics_file_that_is_removed_meanwhile_is_read_again():
    class Folder(Collector):
        n_readings = 0

        def collect(self):
            self.n_readings += 1
            if self.n_readings < 3:
                raise FileNotFoundError("gauge_all_1.db")
            return [GaugeMetricFamily("whole", "read", 1.0)]

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Folder())
    assert b"\nwhole 1.0\n" in metrics._read_out(registry)


@given(st.lists(st.floats(0, 100) | st.sampled_from(metrics._BUCKETS), max_size=30), st.data())
def test_a_tally_equals_the_histogram_of_the_library(seconds, data):
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


def test_ended_jobs_are_counters_that_outlive_their_rows(make_client, monkeypatch):
    monkeypatch.setattr(JobStore, "claim_next", lambda store, owner: None)
    ended = 'tokenizer_train_jobs_total{status="cancelled"}'
    kept = 'tokenizer_jobs{kind="train",state="cancelled"}'
    with make_client() as client:
        jobs = client.app.services.jobs
        made = {"request_digest": "d", "idempotency_key": None, "queue_limit": 100}
        for name in ("a", "b", "c"):
            jobs.add(name, {"name": "x"}, **made)
            jobs.request_cancel(name)
        found = scrape(client)
        assert (found[ended], found[kept]) == (3, 3)
        jobs.forget_old(kept=1)
        found = scrape(client)
        assert (found[ended], found[kept]) == (3, 1)
        assert found['tokenizer_job_duration_seconds_count{kind="train",status="cancelled"}'] == 0
        text = client.get("/metrics").text
    assert "# TYPE tokenizer_train_jobs_total counter" in text
    assert "# TYPE tokenizer_jobs gauge" in text


def test_the_process_and_its_jobs_are_measured():
    counted = ServiceMetrics()
    before = values(counted.render().decode())
    assert before["process_start_time_seconds"] == psutil.Process().create_time()
    assert before["process_resident_memory_bytes"] > 1 << 20
    assert 0 < before["process_open_fds"] < before["process_max_fds"]
    sum(range(100_000))
    counted.measure_process()
    counted.count_job("train", "live", 20.0)
    counted.count_job("train", "live", 7200.0)
    after = values(counted.render().decode())
    assert 0 < before["process_cpu_seconds_total"] <= after["process_cpu_seconds_total"]
    labels = 'kind="train",status="live"'
    assert after[f"tokenizer_job_duration_seconds_sum{{{labels}}}"] == 7220
    assert after['tokenizer_job_duration_seconds_bucket{kind="train",le="60.0",status="live"}'] == 1
    assert after['tokenizer_train_jobs_total{status="live"}'] == 2


def test_a_process_without_a_free_file_descriptor_keeps_its_last_measures(monkeypatch):
    def refuse(process):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    counted = ServiceMetrics()
    monkeypatch.setattr(psutil.Process, "num_fds", refuse)
    counted.measure_process()  # an error would end the sampler for good
    assert values(counted.render().decode())["process_open_fds"] > 0


COUNT_A_JOB = """
from tokenizer_service.observability.metrics import ServiceMetrics
counted = ServiceMetrics()
counted.count_job('encode', 'succeeded', 1.5)
counted.hand_over()
print(counted.render().decode())
"""


def test_the_metrics_of_ended_processes_are_kept(tmp_path):
    """Their files stay when a process ends, so that the sums never fall."""
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COUNT_A_JOB]
    first, second = (
        values(subprocess.check_output(command, cwd=REPOSITORY, env=environment, text=True))
        for _ in range(2)
    )
    succeeded = 'tokenizer_encode_jobs_total{status="succeeded"}'
    resident = "process_resident_memory_bytes"
    assert (first[succeeded], second[succeeded]) == (1, 2)
    assert first["process_cpu_seconds_total"] < second["process_cpu_seconds_total"]
    assert second[resident] < 2 * first[resident]


KEYS = [f"{index}-é{'x' * 1000}" for index in range(FIRST_BYTES // 500)]
EXPECTED = {key: (float(index), 1.0) for index, key in enumerate(KEYS)}


def written(file):
    for key, (value, stamp) in EXPECTED.items():
        file.read_value(key)
        file.write_value(key, value, stamp)
    return {key: file.read_value(key) for key in KEYS}


def test_every_block_of_a_file_is_reserved_before_it_gets_its_name(tmp_path, monkeypatch):
    """Another process may read every file of the folder at any moment to serve /metrics."""
    path, seen = tmp_path / "counter_1.db", []
    reserve = metrics_files._reserve

    def look_and_reserve(descriptor, n_bytes):
        seen.append(path.exists())
        reserve(descriptor, n_bytes)

    monkeypatch.setattr(metrics_files, "_reserve", look_and_reserve)
    file = ReservedFile(str(path))
    assert seen == [False]
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_blocks * 512 >= path.stat().st_size == FIRST_BYTES
    assert written(file) == EXPECTED
    assert path.stat().st_blocks * 512 >= path.stat().st_size > FIRST_BYTES
    rows = MmapedDict.read_all_values_from_file(str(path))
    assert {key.strip(): (value, stamp) for key, value, stamp, _ in rows} == EXPECTED
    file.close()
    again = ReservedFile(str(path))
    assert {key.strip() for key, _, _ in again.read_all_values()} == set(EXPECTED)
    again.close()


@pytest.mark.row(36)
@pytest.mark.parametrize("n_bytes_free", [0, 3 * FIRST_BYTES])
def test_on_a_full_disk_the_numbers_stay_in_the_process(
    tmp_path, monkeypatch, caplog, n_bytes_free
):
    def reserve(descriptor, n_bytes):
        if n_bytes > n_bytes_free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(descriptor, 0, n_bytes)

    monkeypatch.setattr(metrics_files, "_reserve", reserve)
    path = tmp_path / "counter_1.db"
    file = ReservedFile(str(path))
    assert written(file) == EXPECTED
    file.close()
    assert not path.exists()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left" in caplog.text


def test_a_missing_folder_is_a_wrong_setting(tmp_path):
    with pytest.raises(FileNotFoundError):
        ReservedFile(str(tmp_path / "missing" / "counter_1.db"))


def test_without_a_folder_each_process_counts_alone(settings, monkeypatch, caplog):
    def fail(**options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    assert serving._make_metrics_dir(settings.model_copy(update={"workers": 2})) is None
    assert "No space left" in caplog.text
