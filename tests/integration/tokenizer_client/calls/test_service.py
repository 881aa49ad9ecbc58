"""The service and its tokenizers: both clients with a real server."""

import json

import pytest

from tokenizer_client import NotFoundError


def test_info_and_versions_of_the_server(client, small_tokenizer):
    info = client.info()
    assert info.vocab_size == small_tokenizer.vocab_size
    assert info.tokenizer.digest == client.tokenizers.active().digest
    listed = client.tokenizers.list()
    assert {one.name for one in listed.tokenizers} == {"starter", "other"}
    (described,) = client.tokenizers.versions("starter")
    assert described.manifest is not None
    version = f"starter@{described.version}"
    model = json.loads(client.tokenizers.file(version, "tokenizer.json"))["model"]
    assert len(model["merges"]) == len(small_tokenizer.spec.merges)
    with pytest.raises(NotFoundError):
        client.tokenizers.versions("nobody")
    client.wait_until_ready()
    assert client.is_ready()
