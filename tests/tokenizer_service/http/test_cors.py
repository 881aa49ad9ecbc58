"""CORS over the protocol of the service, as a browser uses it."""

import pytest

from tests.tokenizer_service.conftest import ADMIN_KEY, settings_for
from tests.tokenizer_service.handlers.test_at_once import Served, request

ORIGIN = "https://app.example"
OTHER = "https://app.example.evil"
TEXT = {"text": "the fox"}


@pytest.fixture
def served(store):
    served = Served(settings_for(store).model_copy(update={"cors_origins": (ORIGIN,)}))
    yield served
    served.close()


def ask(served, method, path, *lines, origin=ORIGIN, site="cross-site"):
    """Status and headers of a request that a page of `origin` sends."""
    sent = request(path, TEXT, f"Origin: {origin}", f"Sec-Fetch-Site: {site}", *lines)
    ((status, headers, _),) = served.converse(sent.replace(b"POST", method.encode(), 1)).responses
    return int(status), headers


def preflight(served, method, path, origin=ORIGIN):
    lines = f"Access-Control-Request-Method: {method}", "Access-Control-Request-Headers: x-api-key"
    return ask(served, "OPTIONS", path, *lines, origin=origin)


def test_a_page_of_a_listed_origin_uses_the_read_routes(served):
    gemini = "/v1beta/models/org/name:countTokens"
    for path in ("/encode", "/v1/count", gemini.replace("beta", ""), gemini, "/as/tei/tokenize"):
        status, headers = preflight(served, "POST", path)
        assert status == 200
        assert headers["access-control-allow-origin"] == ORIGIN
        assert headers["access-control-allow-headers"] == "x-api-key"
        assert "access-control-allow-credentials" not in headers
    for path in ("/encode", "/v1/count", "/as/cohere/tokenize", "/tokenizers"):
        status, headers = ask(served, "GET" if path == "/tokenizers" else "POST", path)
        assert status == 200
        assert headers["access-control-allow-origin"] == ORIGIN
        assert headers["access-control-expose-headers"] == "*"
    wrong = f"X-API-Key: {ADMIN_KEY}", "Content-Type: text/plain"
    status, headers = ask(served, "POST", "/encode", *wrong)
    assert (status, headers["access-control-allow-origin"]) == (415, ORIGIN)  # pages read errors


def test_admin_routes_and_other_origins_are_refused(served):
    key = f"X-API-Key: {ADMIN_KEY}"
    rows = [
        ("POST", "/train", ORIGIN),
        ("POST", "/as/vllm/train", ORIGIN),
        ("POST", "/rollback", ORIGIN),
        ("POST", "/tokenizers/mine", ORIGIN),
        ("PUT", "/tokenizers/active", ORIGIN),
        ("DELETE", "/tokenizers/starter/1", ORIGIN),
        ("POST", "/encode", OTHER),
        ("POST", "/encode", "null"),
        ("PUT", "/encode", ORIGIN),
    ]
    for method, path, origin in rows:
        status, headers = preflight(served, method, path, origin=origin)
        assert status >= 400
        assert "access-control-allow-origin" not in headers
        status, headers = ask(served, method, path, key, origin=origin)
        assert status == 403, (method, path, origin)
        assert "access-control-allow-origin" not in headers
    status, headers = ask(served, "GET", "/jobs", key)
    assert status == 200
    assert "access-control-allow-origin" not in headers


def test_a_program_is_served_at_once_beside_it(served):
    assert served.converse(request("/encode", TEXT)).n_at_once == 1
    assert served.converse(request("/encode", TEXT, f"Origin: {ORIGIN}")).n_at_once == 0


def test_without_the_setting_no_route_has_cors(store):
    served = Served(settings_for(store))
    try:
        assert ask(served, "POST", "/encode")[0] == 403
        assert preflight(served, "POST", "/encode")[0] == 405
        status, headers = ask(served, "POST", "/encode", site="same-site")
        assert (status, "access-control-allow-origin" in headers) == (200, False)
    finally:
        served.close()
