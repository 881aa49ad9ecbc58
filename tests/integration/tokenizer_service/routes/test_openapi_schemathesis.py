"""Schemathesis with our own OpenAPI document, in process: no 5xx, no undocumented response.

It makes requests that fit the document and requests that do not, sends them to the app with and
without a key, and checks every response against the document: status, media type, body, headers.
Every run sends the same requests. Other tests run jobs: here they stay in the queue.
"""

import json

import pytest
import schemathesis
from hypothesis import settings as hypothesis_settings
from pydantic import SecretStr
from schemathesis.checks import not_a_server_error
from schemathesis.config import (
    GenerationConfig,
    HealthCheck,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from tests.profiles import examples
from tests.tokenizer_service.conftest import ADMIN_KEY, settings_for, shared_store
from tokenizer_core.corpus import TokenFilesWriter, plan_token_files
from tokenizer_service.handlers import jobs as rendered_jobs
from tokenizer_service.jobs.runner import JobRunner
from tokenizer_service.jobs.token_files import TokenFilesFolder
from tokenizer_service.main import create_app
from tokenizer_service.serving.artifact_files import MEDIA_TYPES
from tokenizer_service.settings import Settings

__all__ = ["shared_store"]

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    allow_header_conformance,
]


@schemathesis.serializer("application/x-npy", "application/x-ndjson")
def as_it_is(context, value):
    """A strategy for bodies of any bytes, which Schemathesis does not provide."""
    given = getattr(value, "data", value)
    return given if isinstance(given, bytes) else json.dumps(given).encode()


def described():
    """The document and the request generator; it comes from an app that never starts."""
    app = create_app(Settings(admin_keys=(SecretStr(ADMIN_KEY),)))
    generation = GenerationConfig(deterministic=True, max_examples=examples(1 / 30).max_examples)
    config = SchemathesisConfig(
        projects=ProjectsConfig(default=ProjectConfig(generation=generation)),
        suppress_health_check=[HealthCheck.too_slow],  # which depends on the machine
    )
    return schemathesis.openapi.from_dict(app.openapi(), config=config)


DOCUMENT = described()
KEYS = pytest.mark.parametrize(
    "key",
    [pytest.param(ADMIN_KEY, id="admin"), pytest.param(None, id="bare", marks=pytest.mark.slow)],
)


@pytest.fixture(scope="module")
def client(shared_store):
    # The jobs of the document's examples stay in the queue.
    changes = {"corpus_roots": (shared_store.root,), "train_queue": 1000}
    settings = settings_for(shared_store).model_copy(update=changes)

    async def do_nothing(runner):
        pass

    async def do_not_wait(request, job, seconds):
        return job

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobRunner, "start", do_nothing)
        # No job ends, so one request with `wait` took more than a minute.
        patch.setattr(rendered_jobs, "wait_for_job", do_not_wait)
        with TestClient(create_app(settings), raise_server_exceptions=False) as client:
            yield client


def send(client, case, key):
    """Send the request unchanged, and check the response against the document."""
    headers = {} if key is None else {"X-API-Key": key}
    made = case.as_transport_kwargs(base_url=str(client.base_url), headers=headers)
    body = {"content": made["data"]} if "data" in made else {}
    if "json" in made:
        body = {"json": made["json"]}
    response = client.request(
        made["method"], made["url"], params=made["params"], headers=made["headers"], **body
    )
    checks = CHECKS
    # An alias may end like this, /models/{model} matches; /tokenizers/{name} matches active.
    if case.path.endswith((":countTokens", "/tokenizers/active")):
        checks = [check for check in CHECKS if check is not allow_header_conformance]
    case.validate_response(response, checks=checks)
    return response


@KEYS
@hypothesis_settings(deadline=None)
@DOCUMENT.parametrize()
def test_every_answer_is_as_described(case, client, key):
    send(client, case, key)


def test_what_is_there_is_answered_as_described(client):
    """Names that no generator finds: a version, its files, and a job from request to end."""

    def answer(method, path, status, body=None, **parts):
        if body is not None:
            parts |= {"body": body, "media_type": "application/json"}
        got = send(client, DOCUMENT[path][method].Case(**parts), ADMIN_KEY)
        assert got.status_code == status, (method, path)
        return got

    version = client.get("/tokenizers/active").json()["version"]
    one = {"name": "starter", "version": version}
    answer("GET", "/tokenizers/{name}", 200, path_parameters={"name": "starter"})
    for file in MEDIA_TYPES:
        path = "/tokenizers/{name}/{version}/{file}"
        answer("GET", path, 200, path_parameters={**one, "file": file})
    answer("DELETE", "/tokenizers/{name}/{version}", 409, path_parameters=one)
    answer("PUT", "/tokenizers/active", 200, {"tokenizer": f"starter@{version}"})
    key = {"X-API-Key": ADMIN_KEY}
    assert client.put("/corpora/news", content=b"low lower", headers=key).status_code == 201
    training = {"documents": ["low lower"], "vocab_size": 257, "name": "never"}
    trained = answer("POST", "/train", 202, training).json()
    corpus = {"path_parameters": {"corpus_id": "news"}}
    encoded = answer("POST", "/corpora/{corpus_id}/encode", 202, {}, **corpus).json()
    for path, job in (("/train", trained), ("/jobs", encoded)):
        its = {"path_parameters": {"job_id": job["id"]}}
        assert answer("GET", f"{path}/{{job_id}}", 200, **its).json()["state"] == "queued"
        assert answer("GET", path, 200, query={"limit": 1}).json()["jobs"]
        assert answer("DELETE", f"{path}/{{job_id}}", 200, **its).json()["state"] == "cancelled"
        answer("GET", f"{path}/{{job_id}}/events", 200, **its)
    services = client.app.services
    place = TokenFilesFolder.of(services.settings.artifacts_dir).path("tokens")
    plan = plan_token_files(services.live.require_active().tokenizer, end_of_document="")
    with TokenFilesWriter(place, plan) as writer:
        writer.append([1, 2])
        writer.finish()
    those = {"token_files_id": "tokens"}
    assert answer("GET", "/token-files", 200).json()["token_files"][0]["id"] == "tokens"
    answer("GET", "/token-files/{token_files_id}", 200, path_parameters=those)
    its = {"path_parameters": {**those, "file": "train.bin"}}
    for headers, status in (({}, 200), ({"Range": "bytes=0-0"}, 206), ({"Range": "bytes=4-"}, 416)):
        answer("GET", "/token-files/{token_files_id}/{file}", status, headers=headers, **its)
    answer("DELETE", "/token-files/{token_files_id}", 204, path_parameters=those)
