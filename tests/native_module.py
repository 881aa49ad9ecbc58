"""The compiled module for tests: skipped by name without it, failing where it is required."""

import importlib
import importlib.util
import os
from types import ModuleType

import pytest

MODULE = "tokenizer_core._native"
IS_INSTALLED = importlib.util.find_spec(MODULE) is not None
IS_REQUIRED = os.environ.get("TOKENIZER_REQUIRE_NATIVE", "") not in ("", "0")


def native_module() -> ModuleType:
    """The module; skips the test that asks when it was not built, unless it is required."""
    if not IS_INSTALLED and not IS_REQUIRED:
        pytest.skip(f"{MODULE} is not in this installation")
    return importlib.import_module(MODULE)
