"""Texts and ids: options on the wire, and responses of the previous release."""

import httpx

from tokenizer_client.calls.retries import Session
from tokenizer_client.calls.text import plain_options, query_of


def test_options_as_json_and_as_a_query():
    options = {"allowed_special": {"b"}, "disallowed_special": (), "errors": "strict", "x": None}
    assert plain_options(options) == {
        "allowed_special": ["b"],
        "disallowed_special": [],
        "errors": "strict",
    }
    pairs = query_of(Session(tokenizer="n"), options | {"skip_special_tokens": True})
    assert pairs == (
        ("tokenizer", "n"),
        ("allowed_special", "b"),
        ("errors", "strict"),
        ("skip_special_tokens", "true"),
    )


def test_a_service_of_the_release_before_sends_the_old_name_alone(play):
    fields = {"count": 1, "tokenizer": {"name": "n", "version": "v", "digest": "d"}}
    client, _ = play(
        httpx.Response(200, json={**fields, "limit_reached": True}),
        httpx.Response(200, json={**fields, "limit_reached": False}),
    )
    assert not client.fits("a b", 1)
    assert client.fits("a", 1)
