"""The package's examples, run with a real server."""

import doctest
import importlib
import pkgutil

import pytest

import tokenizer_client
from tokenizer_client import Client

MODULES = [
    module.name
    for module in pkgutil.walk_packages(tokenizer_client.__path__, "tokenizer_client.")
    if not module.ispkg
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(server, name):
    """With a real service, which the doctests of the unit tier do not have."""
    with Client(server.url) as client:
        done = doctest.testmod(importlib.import_module(name), extraglobs={"client": client})
    assert done.failed == 0
    assert done.attempted or name not in (
        "tokenizer_client.calls.text",
        "tokenizer_client.calls.wire_formats",
    )
