"""Jobs that download their corpus, with real child processes."""

from __future__ import annotations

from collections.abc import Callable

from tests.tokenizer_service.jobs.conftest import Service
from tests.tokenizer_service.jobs.test_downloads import OK, TEXT, Origin, origin, whole

__all__ = ["origin"]


def test_a_job_trains_on_what_it_fetched(
    start_service: Callable[..., Service], origin: Origin
) -> None:
    service = start_service(corpus_url_hosts=(f"127.0.0.1:{origin.port}",))
    url = origin.answer("/a?key=secret", whole(TEXT))
    job = service.wait(service.start(input_paths=None, input_urls=[url]))
    assert job["state"] == "live", job
    assert job["counters"]["download_done"] == len(TEXT)
    ref = service.store.resolve(f"n@{job['result']['version']}")
    (source,) = service.store.read_manifest(ref).provenance
    assert source["name"] == f"http://127.0.0.1:{origin.port}/a"
    assert "secret" not in str(job)
    folder = service.settings.artifacts_dir / "jobs" / job["id"]
    assert not (folder / "documents").exists()
    assert b"secret" not in (folder / "train.log").read_bytes()


def test_a_job_that_cannot_fetch_fails_with_the_reason(
    start_service: Callable[..., Service], origin: Origin
) -> None:
    service = start_service(corpus_url_hosts=(f"127.0.0.1:{origin.port}",))
    codes = {
        origin.answer("/moved", b"HTTP/1.1 302 Found\r\nLocation: /a\r\n\r\n"): "download_refused",
        origin.answer("/latin", whole(b"caf\xe9")): "invalid_corpus",
    }
    for url, code in codes.items():
        job = service.wait(service.start(input_paths=None, input_urls=[url]))
        assert (job["state"], job["error"]["code"]) == ("failed", code), job
        folder = service.settings.artifacts_dir / "jobs" / job["id"]
        assert not (folder / "documents").exists()


def test_a_fetch_is_cancelled_with_its_job(
    start_service: Callable[..., Service], origin: Origin
) -> None:
    service = start_service(corpus_url_hosts=(f"127.0.0.1:{origin.port}",))
    url = origin.answer("/a", OK + b"Content-Length: 9\r\n\r\nx", b"")
    job_id = service.start(input_paths=None, input_urls=[url])
    service.wait_for_child(job_id, phases=("download",))
    service.client.delete(f"/train/{job_id}")
    assert service.wait(job_id)["state"] == "cancelled"
