"""Two services with one store in a bucket: promotions, jobs, and outages of the storage."""

import contextlib

from pydantic import SecretStr
from starlette.testclient import TestClient

from tests.integration.server_process import ADMIN, ADMIN_KEY, wait_until
from tokenizer_core.registry import open_artifacts
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings


def replica(store, artifacts_dir):
    keys = (SecretStr(ADMIN_KEY),)
    return TestClient(
        create_app(Settings(artifacts_dir=artifacts_dir, store=store, admin_keys=keys))
    )


def served(client, named=None):
    answer = client.post("/encode", json={"text": "a", "tokenizer": named})
    assert answer.status_code == 200, answer.text
    return answer.headers["Tokenizer-Version"]


def status(client):
    answer = client.get("/readyz")
    assert answer.status_code == 200
    return str(answer.json()["status"])


def test_replicas_follow_promotions_and_outlast_their_storage(
    s3_server, s3_bucket, tmp_path, small_spec, other_spec
):
    store = open_artifacts(s3_bucket, tmp_path / "publisher")
    starter = store.publish(small_spec, name="starter")
    other = store.publish(other_spec, name="other")
    with replica(s3_bucket, tmp_path / "a") as a, replica(s3_bucket, tmp_path / "b") as b:
        assert served(a) == served(b) == str(starter)
        wanted = {"tokenizer": "other"}
        assert a.put("/tokenizers/active", json=wanted, headers=ADMIN).status_code == 200
        wait_until(lambda: served(b) == str(other))
        s3_server.requests.clear()
        for named in (str(starter), "starter"):
            assert served(a, named) == str(starter)
        # Of the promoted one, a poll may still read the manifest.
        manifests = [request for request in s3_server.requests if "manifest" in request]
        assert not [request for request in manifests if "/starter/" in request]
        s3_server.stop()
        try:
            wait_until(lambda: status(a) == status(b) == "degraded")
            assert served(a) == served(b) == str(other)
            assert served(b, "starter") == served(b, str(starter)) == str(starter)
            # If a poll reads the pointer but not the version it names, the next poll notices.
            wait_until(lambda: "tokenizer_store_away 1.0" in a.get("/metrics").text)
            refused = a.put("/tokenizers/active", json={"tokenizer": str(other)}, headers=ADMIN)
            assert refused.status_code == 503
            assert refused.json()["code"] == "storage_failed"
        finally:
            s3_server.start()
        wait_until(lambda: status(a) == status(b) == "ok")
    s3_server.stop()
    with contextlib.ExitStack() as ending:
        ending.callback(s3_server.start)
        b = ending.enter_context(replica(s3_bucket, tmp_path / "b"))  # it starts from its cache
        assert (served(b), status(b)) == (str(other), "degraded")
