"""Faults that only storage behind a network has: lost responses, and servers that ignore
conditions, are unreachable or silent, or refuse."""

from __future__ import annotations

import sys

import pytest

from tokenizer_core.blobs import open_storage
from tokenizer_core.errors import StorageError

s3fs = pytest.importorskip("s3fs", reason="the extra s3 is not installed")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(StorageError, match=r"pip install 'tokenizer-service\[s3\]'"):
        open_storage("s3://bucket/x")
