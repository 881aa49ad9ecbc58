"""The address of the service, and a key that no message shows."""

import httpx
import pytest

from tests.tokenizer_client.conftest import problem
from tests.tokenizer_client.test_exchange import JOB, counted, promoted
from tokenizer_client import (
    AsyncClient,
    Client,
    ClientError,
    RetryPolicy,
    UnavailableError,
    UnexpectedResponseError,
)
from tokenizer_client.address import DEFAULT_URL, ServiceAddress
from tokenizer_client.schemas.jobs import Corpus, PublishedVersion
from tokenizer_client.schemas.tokens import TokenizerIdentity

KEY = "a-key-that-nobody-may-see"


def test_arguments_override_the_environment():
    environment = {"TOKENIZER_URL": "https://tokens.example/v1/", "TOKENIZER_API_KEY": KEY}
    assert ServiceAddress.of(None, None, {}) == ServiceAddress(DEFAULT_URL)
    found = ServiceAddress.of(None, None, environment)
    assert (found.url, found.api_key) == ("https://tokens.example/v1", KEY)
    found = ServiceAddress.of("http://other.example", "other", environment)
    assert (found.url, found.api_key) == ("http://other.example", "other")
    found = ServiceAddress.of(None, KEY, {"TOKENIZER_URL": "unix:/run/a b.sock"})
    assert (found.url, found.socket_path) == ("http://localhost", "/run/a b.sock")
    assert KEY not in repr(found)


WRONG_URLS = [
    "tokens.example",
    "ftp://tokens.example",
    "http://",
    "http://tokens.example?a=1",
    f"http://user:{KEY}@tokens.example",
    "http://tokens.example:port",
    "unix:",
    "unix:tokenizer.sock",
]


def test_a_wrong_address_or_key_is_refused_without_showing_the_key():
    for url, key, reason in (
        *((url, None, "the address of the service") for url in WRONG_URLS),
        *((None, wrong, "visible ASCII") for wrong in (f"{KEY} ", f"{KEY}\n", f"{KEY}é")),
    ):
        with pytest.raises(ValueError, match=reason) as told:
            ServiceAddress.of(url, key, {})
        assert KEY not in str(told.value)


def test_the_key_goes_to_the_service_and_shows_nowhere(play):
    sent = httpx.Response(401, json={"code": "unauthorized", "detail": "A key is needed."})
    client, service = play(sent, httpx.ReadError("reset"), httpx.Response(200), api_key=KEY)
    shown = [repr(client), str(client), repr(client.pinned("n"))]
    for _ in range(2):
        with pytest.raises(ClientError) as told:
            client.train(documents=["a"], idempotency_key="k" if len(shown) < 4 else None)
        shown += [str(told.value), repr(told.value), repr(vars(told.value))]
    assert [r.headers["Authorization"] for r in service.requests] == [f"Bearer {KEY}"] * 3
    assert all(KEY not in text for text in shown)


def test_max_retries_and_the_timeout_bound_the_attempts(play):
    client, service = play(*[problem(503)] * 9, max_retries=2, timeout=5.0)
    with pytest.raises(UnavailableError):
        client.count("a")
    timeouts = [request.extensions["timeout"]["read"] for request in service.requests]
    assert timeouts == [5.0] * 3
    for kind in (Client, AsyncClient):
        for wrong in ({"max_retries": -1}, {"max_retries": 1, "retries": RetryPolicy()}):
            with pytest.raises(ValueError, match="max_retries"):
                kind(**wrong)
        for timeout in (None, 0, -1, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="for no limit give a large one"):
                kind(timeout=timeout)


def test_a_client_of_the_caller_sends_the_requests_and_stays_open():
    seen = []

    def answer(request):
        seen.append((str(request.url), request.headers["Authorization"], request.headers["X-Mine"]))
        return counted() if len(seen) == 1 else httpx.Response(307, headers={"Location": "/x"})

    mine = httpx.Client(
        transport=httpx.MockTransport(answer),
        headers={"X-Mine": "1", "Authorization": "wrong"},
        base_url="http://elsewhere.example",
        follow_redirects=True,
    )
    with mine:
        with Client("http://service.example/v1", api_key="k", http_client=mine) as client:
            assert client.count("a") == 3
            with pytest.raises(UnexpectedResponseError, match="redirect"):
                client.count("a")
        assert not mine.is_closed
    assert seen == [("http://service.example/v1/count", "Bearer k", "1")] * 2


def test_a_client_of_the_caller_does_not_replace_a_unix_socket():
    for kind, mine in ((Client, httpx.Client()), (AsyncClient, httpx.AsyncClient())):
        with pytest.raises(ValueError, match="leave http_client out"):
            kind("unix:/run/a.sock", api_key=KEY, http_client=mine)


def test_calls_take_objects_of_the_service_or_their_names(play):
    job, gone = httpx.Response(200, json=JOB), httpx.Response(204)
    client, service = play(job, job, gone, promoted("m"), promoted("m"), gone)
    client.jobs.cancel(client.jobs.get("j"))
    client.corpora.remove(Corpus(id="c", bytes=1, sha256="", format="txt", uploaded_at=""))
    identity = TokenizerIdentity(name="m", version="v", digest="d")
    client.tokenizers.promote(identity)
    client.tokenizers.promote(PublishedVersion(name="m", version="v", digest="d", vocab_size=1))
    client.tokenizers.remove(identity)
    assert [request.url.path for request in service.requests] == [
        *["/jobs/j"] * 2,
        "/corpora/c",
        *["/tokenizers/active"] * 2,
        "/tokenizers/m/v",
    ]
    assert "pinned to m@v" in repr(client.pinned(identity))
    for ask, wrong in ((client.jobs.get, 5), (client.jobs.wait, None), (client.pinned, 5)):
        with pytest.raises(TypeError, match="give"):
            ask(wrong)
