"""The compiled module for tests: they skip without it, or fail where it is required."""

import importlib
import importlib.util
import os

import pytest

MODULE = "tokenizer_core._native"
IS_INSTALLED = importlib.util.find_spec(MODULE) is not None
IS_REQUIRED = os.environ.get("TOKENIZER_REQUIRE_NATIVE", "") not in ("", "0")


def native_module():
    """The module; if it was not built, skips the test, or fails it where it is required."""
    if not IS_INSTALLED and not IS_REQUIRED:
        pytest.skip(f"{MODULE} is not in this installation")
    return importlib.import_module(MODULE)
