"""The examples in the docstrings of the library and of the service print what they show.

Those of the client need a service: see its integration tests.
"""

import doctest
import importlib

import pytest

from tests.conftest import REPOSITORY

MODULES = [
    ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
    for folder in (REPOSITORY / "tokenizer_core", REPOSITORY / "app" / "tokenizer_service")
    for path in sorted(folder.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0
