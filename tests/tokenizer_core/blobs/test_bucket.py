"""Faults that only storage behind a network has: lost responses, and servers that ignore
conditions, are unreachable or silent, or refuse."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tokenizer_core.blobs import open_storage
from tokenizer_core.errors import StorageError

s3fs = pytest.importorskip("s3fs", reason="the extra s3 is not installed")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(StorageError, match=r"pip install 'tokenizer-service\[s3\]'"):
        open_storage("s3://bucket/x")


def test_without_credentials_their_sources_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError) as caught:
        open_storage(f"s3://bucket/{tmp_path.name}")
    assert "(NoCredentialsError); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in str(
        caught.value
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with pytest.raises(StorageError, match=r"check the address, the network, the credentials"):
        open_storage(f"s3://bucket/{tmp_path.name}-again")
