"""The address and the key, the service, its tokenizers; responses about another thing."""

import httpx
import pytest

from tests.tokenizer_client.conftest import JOB, TOKENIZER, counted, problem, promoted
from tokenizer_client import (
    AsyncClient,
    Client,
    ClientError,
    ConnectionLostError,
    DeadlineExceededError,
    RetryPolicy,
    UnavailableError,
    UnexpectedResponseError,
)
from tokenizer_client.address import DEFAULT_URL, ServiceAddress
from tokenizer_client.schemas.jobs import Corpus, PublishedVersion
from tokenizer_client.schemas.tokens import PromoteResponse, TokenizerIdentity

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
    "", "tokens.example", "ftp://tokens.example", "http://", "http://tokens.example?a=1",
    f"http://user:{KEY}@tokens.example", "http://tokens.example:port", "unix:",
    "unix:tokenizer.sock",
]  # fmt: skip


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
    with pytest.raises(ClientError, match="closed"):
        client.count("a")
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


READY = httpx.Response(200, json={"status": "ok"})
MODEL = httpx.Response(
    200, json={"id": "org/M:b?", "object": "model", "created": 0, "owned_by": "", "root": "n@v"}
)


def test_readiness_is_requested_once_or_waited_for(play, clock):
    failures = [httpx.ConnectError("refused"), problem(503)]
    for failure in failures:
        client, service = play(failure, READY)
        assert client.is_ready() is False
        assert len(service.requests) == 1
    assert clock.slept == []
    client, service = play(*failures, READY)
    client.wait_until_ready()
    assert len(service.requests) == 3
    clock.slept.clear()
    client, service = play(*failures[:1] * 100)
    with pytest.raises(DeadlineExceededError, match="within 5 s") as told:
        client.wait_until_ready(deadline_seconds=5)
    assert isinstance(told.value.__cause__, ConnectionLostError)
    assert sum(clock.slept) <= 5


def test_a_roll_back_undoes_one_promotion_and_no_other(play):
    now, before = ({"name": name, "version": "v", "digest": name * 2} for name in "ab")
    client, service = play(promoted("b"))
    client.tokenizers.roll_back(PromoteResponse(active=now, previous=before))
    assert [request.headers["If-Match"] for request in service.requests] == ['"aa"']
    active = {**now, "active": True, "created_at": "", "previous": before}
    client, service = play(httpx.Response(200, json=active), promoted("b"))
    assert client.tokenizers.roll_back().active.name == "b"
    assert service.requests[-1].headers["If-Match"] == '"aa"'
    with pytest.raises(ValueError, match="no tokenizer was active before"):
        client.tokenizers.roll_back(PromoteResponse(active=now, previous=None))


def test_a_name_is_escaped_in_the_path(play):
    client, service = play(httpx.Response(204))
    client.tokenizers.remove("a/b@../c")
    assert service.requests[0].url.raw_path == b"/tokenizers/a%2Fb/..%2Fc"
    client, service = play(MODEL, httpx.Response(204))
    assert client.tokenizers.add_alias("org/M:b?", "n").root == "n@v"
    client.tokenizers.remove_alias("org/M:b?")
    assert {request.url.raw_path for request in service.requests} == {b"/models/org%2FM%3Ab%3F"}


def test_an_import_is_a_form_that_says_its_special_tokens(play):
    imported = httpx.Response(201, json={**TOKENIZER, "vocab_size": 256, "warnings": []})
    for special, query in ((None, ""), ({}, "no_special=true"), ({"a=b": 3}, "special=a%3Db%3D3")):
        client, service = play(imported)
        client.tokenizers.import_files("n", {"r.tiktoken": b"x"}, special_tokens=special)
        assert service.requests[0].url.query.decode() == query
        assert b'name="r.tiktoken"' in service.requests[0].content
    with pytest.raises(ValueError, match="files is empty"):
        client.tokenizers.import_files("n", {})


PAGE = httpx.Response(200, html="<p>Log in first")
CORPUS = httpx.Response(
    200, json={"id": "x", "bytes": 3, "sha256": "", "format": "txt", "uploaded_at": ""}
)
OTHER_JOB = httpx.Response(200, json={**JOB, "id": "x"})
EVENT = httpx.Response(
    200,
    content=b"id: 1\ndata: %b\n\n" % OTHER_JOB.content,
    headers={"Content-Type": "text/event-stream; charset=utf-8"},
)
VERSION = {**TOKENIZER, "active": True, "created_at": ""}
VERSIONS = httpx.Response(200, json={"tokenizers": [VERSION], "active": None})


def test_a_response_about_another_thing_is_an_error(play):
    for answer, call in (
        (PAGE, lambda client: client.is_ready()),
        (PAGE, lambda client: client.wait_until_ready()),
        (PAGE, lambda client: client.info()),
        (PAGE, lambda client: client.tokenizers.file("n@v", "vocab.pkl")),
        (PAGE, lambda client: client.tokenizers.file("n@v", "tokenizer.json")),
        (VERSIONS, lambda client: client.tokenizers.versions("m")),
        (promoted("n"), lambda client: client.tokenizers.promote("m")),
        (promoted("n"), lambda client: client.tokenizers.promote("n@w")),
        (MODEL, lambda client: client.tokenizers.add_alias("m", "n")),
        (OTHER_JOB, lambda client: client.jobs.get("j")),
        (OTHER_JOB, lambda client: client.jobs.cancel("j")),
        (EVENT, lambda client: client.jobs.wait("j")),
        (CORPUS, lambda client: client.corpora.get("c")),
        (CORPUS, lambda client: client.corpora.upload("c", b"abc")),
        (PAGE, lambda client: client.corpora.upload("c", b"abc")),
    ):
        client, _ = play(answer)
        with pytest.raises(UnexpectedResponseError, match="check the address"):
            call(client)
    jobs = httpx.Response(200, json={"jobs": [JOB]})
    client, service = play(jobs, jobs, jobs)
    assert [job.id for job in client.jobs.list(kind="train").jobs] == ["j"]
    with pytest.raises(UnexpectedResponseError, match="kind"):
        client.jobs.list(kind="encode")
    assert [job.id for job in client.jobs.list().jobs] == ["j"]
    assert service.requests[-1].url.params.get("kind") is None
