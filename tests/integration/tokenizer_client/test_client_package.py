"""The tests of tests/tokenizer_client/test_client_package.py that need a server."""

import doctest
import importlib
import pkgutil

import pytest

import tokenizer_client
from tokenizer_client import TokenizerClient

MODULES = [
    f"tokenizer_client.{module.name}" for module in pkgutil.iter_modules(tokenizer_client.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(server, name):
    """On a real service, which the doctests of the tree cannot have."""
    with TokenizerClient(server.url) as client:
        done = doctest.testmod(importlib.import_module(name), extraglobs={"client": client})
    assert done.failed == 0
    assert done.attempted or name not in (
        "tokenizer_client.text_calls",
        "tokenizer_client.id_bytes",
    )
