"""The tests of tests/tokenizer_core/blobs/test_storage.py, repeated on object storage."""

import pytest

from tests.tokenizer_core.blobs.test_storage import *  # noqa: F403 -- all tests of the module


@pytest.fixture
def place(s3_bucket: str) -> str:
    return f"{s3_bucket}/some/prefix"
