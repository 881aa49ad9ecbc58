"""`tokenizer_core.store`, the old path of the registry."""

import importlib
import sys

import pytest

from tokenizer_core import registry


def test_the_old_path_warns_and_has_the_same_names(monkeypatch):
    monkeypatch.delitem(sys.modules, "tokenizer_core.store", raising=False)
    with pytest.warns(DeprecationWarning, match=r"tokenizer_core\.registry"):
        old = importlib.import_module("tokenizer_core.store")
    assert {name: getattr(old, name) for name in old.__all__} == {
        name: getattr(registry, name) for name in registry.__all__
    }
