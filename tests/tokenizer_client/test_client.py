"""The address of the service, and a key that no message shows."""

import httpx
import pytest

from tokenizer_client import AuthenticationError, Client, ClientError
from tokenizer_client.client import DEFAULT_URL, ServiceAddress

KEY = "a-key-that-nobody-may-see"


def test_arguments_come_before_the_environment_and_that_before_this_machine():
    environment = {"TOKENIZER_URL": "https://tokens.example/v1/", "TOKENIZER_API_KEY": KEY}
    assert ServiceAddress.of(None, None, {}) == ServiceAddress(DEFAULT_URL)
    found = ServiceAddress.of(None, None, environment)
    assert (found.url, found.api_key) == ("https://tokens.example/v1", KEY)
    assert KEY not in repr(found)
    found = ServiceAddress.of("http://other.example", "other", environment)
    assert (found.url, found.api_key) == ("http://other.example", "other")


@pytest.mark.parametrize(
    "url",
    [
        "tokens.example",
        "ftp://tokens.example",
        "http://",
        "http://tokens.example?a=1",
        f"http://user:{KEY}@tokens.example",
        "http://tokens.example:port",
    ],
)
def test_what_is_no_address(url):
    with pytest.raises(ValueError, match="the address of the service") as told:
        ServiceAddress.of(url, None, {})
    assert KEY not in str(told.value)


@pytest.mark.parametrize("key", [f"{KEY} ", f"{KEY}\n", f"{KEY}é"])
def test_what_is_no_key(key):
    with pytest.raises(ValueError, match="visible ASCII") as told:
        ServiceAddress.of(None, key, {})
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


def test_a_prefix_of_the_address_stays(play):
    urls = []

    def answer(request):
        urls.append(str(request.url))
        return httpx.Response(401, json={"code": "c"})

    client = Client("http://tokens.example/v1", transport=httpx.MockTransport(answer))
    with client, pytest.raises(AuthenticationError):
        client.describe_corpus("../a")
    assert urls == ["http://tokens.example/v1/corpora/..%2Fa"]
