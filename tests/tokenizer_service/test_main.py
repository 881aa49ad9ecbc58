import json
import re
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest

from tests.slow_packages import REGEX
from tests.tokenizer_service.conftest import ADMIN_KEY
from tokenizer_core.engines import choose_engine, native_import
from tokenizer_core.errors import EngineUnavailableError
from tokenizer_service import main
from tokenizer_service.http.dialect_errors import dialects_of_route
from tokenizer_service.main import _guard, create_app
from tokenizer_service.settings import Settings


def test_openapi_shows_models_and_problems(shared_client):
    document = shared_client.get("/openapi.json").json()
    assert shared_client.get("/v1/openapi.json").json() == document
    assert document["openapi"].startswith("3.1")
    text = json.dumps(document)
    assert "HTTPValidationError" not in text
    assert "$defs" not in text
    references = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', text))
    assert len(references) > 50
    assert references <= document["components"]["schemas"].keys()
    ids = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            ids.append(operation["operationId"])
            problems = {s for s in operation["responses"] if s[0] in "45"}
            shapes = {"application/problem+json"}
            if dialects_of_route(path.removeprefix("/v1").replace("{model}", "{model:path}")):
                shapes.add("application/json")
            for status in problems - {"503"}:
                content = operation["responses"][status]["content"]
                assert set() < set(content) <= shapes, (path, method, status)
            if method in ("post", "put") and not path.endswith("/rollback"):
                assert operation["requestBody"]["content"], path
    # The names of the endpoints.
    assert len(set(ids)) == len(ids)
    assert {"encode", "decode_stream", "show_job", "remove_corpus"} <= set(ids)
    assert [id_ for id_ in ids if not re.fullmatch("[a-z_]{1,30}", id_)] == []


def test_errors_outside_routes_are_problems_too(shared_client):
    for method, path, status in (
        ("GET", "/nope", 404),
        ("GET", "/encode/", 404),
        ("DELETE", "/encode", 405),
        ("GET", "/v1/encode", 405),
        ("GET", "/tokenizers/UPPER", 422),
        ("GET", "/tokenizers/nothing", 404),
        ("GET", "/tokenizers/%00", 422),
        ("GET", "/tokenizers/..%2f", 404),
    ):
        response = shared_client.request(method, path)
        assert response.status_code == status, path
        assert response.headers["content-type"] == "application/problem+json"
        problem = response.json()
        assert problem["status"] == status
        assert set(problem) >= {"type", "title", "detail", "instance", "code", "error"}
    for path in ("/v1/chat/completions", "/api/tags"):  # of a server with a model
        assert "has no model" in shared_client.post(path, json={}).json()["detail"]
    refused = shared_client.delete("/encode")
    assert refused.headers["Allow"] == "POST"
    assert refused.json()["detail"] == "This route does not support DELETE; it has POST."


def test_promotion_over_http(client, store, other_spec):
    def put(name, **headers):
        named = {"X-API-Key": ADMIN_KEY, **headers}
        return client.put("/tokenizers/active", json={"tokenizer": name}, headers=named)

    nothing = client.post("/rollback", headers={"X-API-Key": ADMIN_KEY})
    assert (nothing.status_code, "nothing was promoted" in nothing.json()["detail"]) == (404, True)
    listed = client.get("/tokenizers")
    assert listed.content.endswith(b"}\n")
    assert int(listed.headers["Content-Length"]) == len(listed.content)
    [only] = client.get("/tokenizers").json()["tokenizers"]
    assert (only["name"], only["active"]) == ("starter", True)
    active = client.get("/tokenizers/active")
    first = active.json()["digest"]
    assert active.json()["manifest"]["fingerprint"] == first == only["digest"]
    assert active.headers["ETag"] == f'"{first}-starter@{only["version"]}"'
    store.publish(other_spec, name="starter")  # newer than what is served
    other = store.publish(other_spec, name="other")
    assert put("other", **{"If-Match": '"wrong"'}).status_code == 412
    done = put("other", **{"If-Match": f'"{first}"'})
    assert done.status_code == 200
    assert done.json()["active"]["digest"] == other.digest
    assert done.json()["previous"]["digest"] == first
    again = put("other")  # is active already
    assert (again.json(), again.headers["ETag"]) == (done.json(), done.headers["ETag"])
    active = client.get("/tokenizers/active")
    assert done.headers["ETag"] == active.headers["ETag"]
    assert active.json()["previous"]["digest"] == first
    for tag, status in ((f'"{first}"', 412), (active.headers["ETag"], 200)):
        headers = {"X-API-Key": ADMIN_KEY, "If-Match": tag}
        back = client.post("/rollback", headers=headers)
        assert back.status_code == status
    assert back.json()["active"]["digest"] == first
    back = client.post("/rollback", headers={"X-API-Key": ADMIN_KEY})
    assert back.json()["active"]["digest"] == other.digest
    unknown = ("nope", "starter@20200101T000000Z-00000000", "../x", "é")
    assert [put(name).status_code for name in unknown] == [404, 404, 404, 422]
    for file in (store.root / "tokenizers" / "starter").rglob("merges.pkl"):
        file.write_bytes(b"garbage")
    refused = put("starter")
    assert (refused.status_code, refused.json()["code"]) == (409, "artifact_corrupt")
    assert str(store.root) not in refused.text
    assert client.post("/encode", json={"text": "a"}).json()["tokens"] == [1097]


def test_info(shared_client, make_client, engine, caplog):
    info = shared_client.get("/info").json()
    choice = choose_engine()
    assert (info["engine"], info["engine_reason"]) == (choice.name, choice.reason)
    assert info["native_unavailable"] == choice.native_unavailable
    assert info["pattern"] == "gpt2"
    assert info["limits"]["max_body_bytes"] == Settings().max_body_bytes
    assert info["special_tokens"]["<|endoftext|>"] == 256
    caplog.set_level("INFO", "tokenizer_service.main")
    with make_client(engine=engine) as client:
        info = client.get("/info").json()
    assert (info["engine"], info["engine_reason"]) == (engine, "it was asked for by name")
    assert f"the {engine} engine runs: it was asked for by name" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_without_the_native_engine_auto_serves_with_python_and_warns(
    make_client, settings, monkeypatch, caplog
):
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    monkeypatch.setenv("TOKENIZER_ADMIN_KEY", "x")
    monkeypatch.setattr(native_import, "_import_error", ImportError("an undefined symbol"))
    with make_client() as client:
        info = client.get("/info").json()
        assert client.post("/encode", json={"text": "low"}).status_code == 200
    assert info["engine"] == "python"
    assert "an undefined symbol" in info["engine_reason"]
    assert "an undefined symbol" in info["native_unavailable"]
    misspelt, warning = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "did you mean TOKENIZER_ADMIN_KEYS" in misspelt
    assert "the Python engine runs" in warning
    assert "an undefined symbol" in warning
    with pytest.raises(EngineUnavailableError, match="an undefined symbol"):
        create_app(settings.model_copy(update={"engine": "native"}))


@pytest.mark.promise(20)
def test_the_lifespan_leaves_nothing_behind(make_client):
    at_first = sys.getswitchinterval()
    sys.setswitchinterval(0.004)  # another test's app may have set the service's own
    try:
        with make_client() as client:
            assert sys.getswitchinterval() < 0.004
            services = client.app.services
        assert sys.getswitchinterval() == 0.004
    finally:
        sys.setswitchinterval(at_first)
    assert services.queue._threads._executor._shutdown
    assert not list((services.store.root / "run" / "workers").glob("*.json"))


def test_memory_is_given_back_in_a_quiet_moment_after_large_requests(make_client, monkeypatch):
    budgets = []
    monkeypatch.setattr(main, "_SAMPLE_SECONDS", 0.01)
    monkeypatch.setattr(main, "_LEAST_GIVEN_BACK", 50_000)
    monkeypatch.setattr(main, "give_back_memory", lambda budget: budgets.append(budget.most))
    with make_client() as client:
        client.post("/encode", json={"text": "a" * 10_000})
        time.sleep(0.2)
        assert budgets == []
        client.post("/encode", json={"text": "a" * 100_000})
        start = time.monotonic()
        while not budgets and time.monotonic() - start < 20:
            time.sleep(0.01)
    assert budgets[0] > 100_000


SLOW = {
    *("botocore", "fsspec", "httpx", "jinja2", "psycopg", "pyarrow", "ray", "tqdm", *REGEX),
    *(
        "tokenizer_core.distributed",
        "tokenizer_core.evaluation",
        "tokenizer_core.formats.any_format",
    ),
}
"""What a request or a job may need, and no start."""


def test_the_service_starts_without_slow_packages():
    code = "import sys, tokenizer_service.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not SLOW.intersection(done.stdout.split())


FORKS = """
import os
import tokenizer_service.main
from tokenizer_service.http.problem import new_request_id
for _ in range(3):
    if os.fork() == 0:
        print(new_request_id(), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there serving processes are forks")
def test_forks_of_one_process_give_other_request_ids():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert len(set(done.stdout.split())) == 3


def test_the_limits_of_connections_are_those_of_the_settings():
    for idle, stall in ((9, 9), (5, 7)):
        settings = Settings(header_seconds=3, send_seconds=7, stream_idle_seconds=idle)
        guard = _guard(settings, Mock(), None)
        assert (guard.header_seconds, guard.send_seconds, guard.stall_seconds) == (3, 7, stall)
