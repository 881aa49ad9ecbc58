"""Errors in the shape and status of each protocol, and the prefixes that name one."""

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from tests.tokenizer_service.chats import SPEC, say, with_templates
from tests.tokenizer_service.conftest import settings_for
from tests.tokenizer_service.routes.exchanges import post, problem
from tokenizer_service.access.work_queue import WorkQueue
from tokenizer_service.http.dialect_errors import DIALECTS
from tokenizer_service.main import create_app

pytestmark = pytest.mark.usefixtures("rendering_here")

HELLO = say("Hello")
KEY = "a-read-key"


@pytest.fixture(scope="module")
def client(shared_store):
    """A service with a read key, a small limit of bodies, and a tokenizer with templates."""
    shared_store.publish(with_templates(SPEC), name="dialects")
    settings = settings_for(shared_store).model_copy(
        update={"default": "dialects", "read_keys": (SecretStr(KEY),), "max_body_bytes": 8192}
    )
    with TestClient(create_app(settings), headers={"X-API-Key": KEY}) as client:
        yield client


def openai(status, kind, code, param=None):
    return status, {"error": {"message": ..., "type": kind, "param": param, "code": code}}


def vllm(status, kind, param=None):
    return openai(status, kind, status, param)


def sglang(status, kind, param=None):
    error = vllm(status, kind, param)[1]["error"]
    return status, {"object": "error", **error}


def anthropic(status, kind):
    error = {"type": kind, "message": ...}
    return status, {"type": "error", "error": error, "request_id": "r1"}


def gemini(status, kind):
    return status, {"error": {"code": status, "message": ..., "status": kind}}


def llama(status, kind):
    return status, {"error": {"code": status, "message": ..., "type": kind}}


def tei(status, kind):
    return status, {"error": ..., "error_type": kind}


def cohere(status):
    return status, {"id": "r1", "message": ...}


LONG = "a" * 5000  # no such body is served on the event loop
MESSAGES = {"messages": [{"role": "user", "content": LONG}]}
GEMINI = "/v1beta/models/dialects:countTokens"
CONTENTS = {"contents": [{"parts": [{"text": LONG}]}]}
ERRORS = {
    # route: body, then the errors for no key, a large body, a wrong field, an unknown model, and
    # too many requests
    "/v1/chat/completions/render": (
        MESSAGES,
        vllm(401, "Unauthorized"),
        vllm(413, "Request Entity Too Large"),
        vllm(400, "BadRequestError", "tools"),
        vllm(404, "NotFoundError"),
        vllm(503, "ServiceUnavailableError"),
    ),
    "/as/sglang/v1/chat/completions/render": (
        MESSAGES,
        sglang(401, "Unauthorized"),
        sglang(413, "Request Entity Too Large"),
        sglang(400, "BadRequestError", "tools"),
        sglang(404, "NotFoundError"),
        sglang(503, "ServiceUnavailableError"),
    ),
    "/v1/responses/input_tokens": (
        {"input": LONG},
        openai(401, "authentication_error", "key_required"),
        openai(413, "invalid_request_error", "body_too_large"),
        openai(400, "invalid_request_error", "invalid_request", "tools"),
        openai(404, "not_found_error", "model_not_found"),
        openai(503, "server_error", "overloaded"),
    ),
    "/v1/messages/count_tokens": (
        MESSAGES,
        anthropic(401, "authentication_error"),
        anthropic(413, "request_too_large"),
        anthropic(400, "invalid_request_error"),
        anthropic(404, "not_found_error"),
        anthropic(529, "overloaded_error"),
    ),
    GEMINI: (
        CONTENTS,
        gemini(401, "UNAUTHENTICATED"),
        gemini(400, "INVALID_ARGUMENT"),
        gemini(400, "INVALID_ARGUMENT"),
        None,
        gemini(503, "UNAVAILABLE"),
    ),
    "/apply-template": (
        MESSAGES,
        llama(401, "authentication_error"),
        llama(413, "invalid_request_error"),
        llama(400, "invalid_request_error"),
        llama(404, "not_found_error"),
        llama(503, "unavailable_error"),
    ),
    # What is refused before the body is read has no key yet.
    "/as/tei/tokenize": (
        {"inputs": ["Hello"] * 100},
        tei(401, "Validation"),
        tei(413, "Validation"),
        tei(422, "Tokenizer"),
        tei(404, "Validation"),
        tei(429, "Overloaded"),
    ),
    "/as/cohere/v1/tokenize": (
        {"text": LONG},
        cohere(401),
        cohere(413),
        cohere(400),
        cohere(404),
        cohere(503),
    ),
}


def check(response, expected):
    """Compare an error with what its protocol says; `...` stands for a text."""
    status, document = expected
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.content.isascii()

    def fill(wanted, found):
        if wanted is ...:
            assert isinstance(found, str)
            assert found
            return found
        if isinstance(wanted, dict):
            return {name: fill(value, found.get(name)) for name, value in wanted.items()}
        return wanted

    found = response.json()
    assert found == fill(document, found)


@pytest.mark.parametrize("path", ERRORS)
def test_an_error_has_the_shape_and_status_of_its_protocol(client, path, monkeypatch):
    body, no_key, large, wrong, unknown, busy = ERRORS[path]

    def send(given, **headers):
        return client.post(path, json=given, headers={"X-Request-Id": "r1", **headers})

    assert send(body).status_code == 200
    unauthorized = send(body, **{"X-API-Key": "another-key"})
    check(unauthorized, no_key)
    assert unauthorized.headers["WWW-Authenticate"].startswith("Bearer")
    check(send({**body, "user": "x" * 9000}), large)
    refused = send({**body, "tools": 5})
    check(refused, wrong)
    assert refused.headers["Problem-Pointer"] == "/tools"
    assert refused.headers["Problem-Code"] == "invalid_request"
    if unknown is not None:
        check(send({**body, "model": "gpt-4"}), unknown)
    monkeypatch.setattr(WorkQueue, "check_waiting", _refuse)
    overloaded = send(body)
    check(overloaded, busy)
    assert overloaded.headers["Retry-After"] == "1"


def _refuse(queue):
    from tokenizer_service.access.errors import OverloadedError

    raise OverloadedError("wait for a thread")


def test_the_key_of_the_text_chooses_the_shape(client):
    for key, expected in (
        ("prompt", vllm(404, "NotFoundError")),
        ("content", llama(404, "not_found_error")),
        ("inputs", tei(404, "Validation")),
        ("text", cohere(404)),
    ):
        headers = {"X-Request-Id": "r1"}
        asked = {key: "a", "model": "gpt-4"}
        check(client.post("/tokenize", json=asked, headers=headers), expected)
    ids = client.post("/decode", json={"ids": [999], "model": "dialects"})
    check(ids, tei(422, "Tokenizer"))
    for body in ({"prompt": "a", "text": "b"}, {}, []):
        problem(client.post("/tokenize", json=body), 422)
    assert problem(client.post("/detokenize", json={"tokens": [999]}), 422)["type"]


def test_only_the_name_of_a_model_is_repeated(client):
    model = "a\n\u202eb\u0000é" + "x" * 300
    answer = client.post("/v1/messages/count_tokens", json={**MESSAGES, "model": model})
    message = answer.json()["error"]["message"]
    shown = "abé" + "x" * (200 - 6)
    assert message.startswith(f"The model `{shown}` does not exist. ")
    assert "x" * 195 not in message
    secret = "s3cr3t"
    for body in ({"messages": secret}, {**MESSAGES, "chat_template": secret}):
        assert secret not in client.post("/v1/messages/count_tokens", json=body).text


def test_a_prefix_answers_in_the_keys_of_one_protocol(client):
    ids = [*b"Hi", 257]
    for name, document in (
        ("vllm", {"prompt": "Hi<|im_end|>"}),
        ("sglang", {"text": "Hi"}),
        ("llama.cpp", {"content": "Hi<|im_end|>"}),
        ("cohere", {"text": "Hi"}),
    ):
        for path in (f"/as/{name}/detokenize", f"/as/{name}/v1/detokenize"):
            assert post(client, path, tokens=ids) == document
    assert set(post(client, "/detokenize", tokens=ids)) == {"prompt", "content", "text"}
    prompt = post(client, "/as/vllm/tokenize", prompt="Hi")
    assert set(prompt) == {"count", "max_model_len", "tokens", "token_strs"}
    for body in ({"prompt": ["Hi", "a"]}, {"messages": HELLO}):
        answer = post(client, "/as/sglang/v1/tokenize", **body)
        assert set(answer) == {"count", "max_model_len", "tokens"}
    info = client.get("/as/tei/info").json()
    assert info["model_id"] == "dialects"
    assert not {"tokenizer", "limits", "engine"} & set(info)
    assert {"tokenizer", "model_id"} <= set(client.get("/info").json())
    for path in ("/as/nobody/detokenize", "/as/vllm/nothing", "/v1beta/models"):
        answer = client.post(path, json={"tokens": ids})
        assert answer.status_code == 404, path
    check(client.post("/as/vllm/nothing", json={}), vllm(404, "NotFoundError"))


def test_a_prefix_leads_only_to_routes_of_other_servers(client):
    assert client.get("/as/vllm/v1/models").status_code == 200
    for path in ("metrics", "openapi.json", "tokenizers", "v1/tokenizers", "train", "v1/jobs"):
        assert client.get(f"/{path}").status_code in (200, 403)  # a route
        check(client.get(f"/as/vllm/{path}"), vllm(404, "NotFoundError"))
    model = client.get("/v1/models").json()["data"][0]["id"]
    asked = {"name": model}
    check(client.put("/as/vllm/v1/models/alias", json=asked), vllm(404, "NotFoundError"))


def test_a_google_key_opens_the_routes(client):
    wrong = client.post(GEMINI, json=CONTENTS, headers={"X-API-Key": "", "x-goog-api-key": "no"})
    assert wrong.status_code == 401
    right = client.post(GEMINI, json=CONTENTS, headers={"X-API-Key": "", "x-goog-api-key": KEY})
    assert right.status_code == 200


def test_every_prefix_is_a_dialect():
    named = {path.split("/")[2] for path in ERRORS if path.startswith("/as/")}
    assert named < set(DIALECTS)


def test_the_document_describes_the_errors_of_each_protocol(client):
    paths = client.get("/openapi.json").json()["paths"]
    counted = paths["/messages/count_tokens"]["post"]["responses"]
    error = counted["529"]["content"]["application/json"]["schema"]["anyOf"]
    assert [schema["required"] for schema in error] == [["type", "error", "request_id"]]
    shared = paths["/tokenize"]["post"]["responses"]["400"]["content"]
    assert set(shared) == {"application/json", "application/problem+json"}
    assert len(shared["application/json"]["schema"]["anyOf"]) == 4
    assert "429" in paths["/decode"]["post"]["responses"]
    assert set(paths["/encode"]["post"]["responses"]["400"]["content"]) == {
        "application/problem+json"
    }
