"""Artifacts in object storage: tests of the unit tier, and those of the cache of a host."""

import pytest

from tests.integration.s3_server import open_with_shared_client
from tests.tokenizer_core.registry.test_bucket_store import (
    test_a_pointer_that_is_too_large_is_replaced_by_promoting,
    test_a_promotion_that_was_overtaken_or_fenced_is_refused,
    test_hosts_share_versions_and_the_pointer,
    test_hosts_that_publish_and_promote_at_once_all_succeed,
)
from tests.tokenizer_core.registry.test_folder_store import A, B
from tokenizer_core.errors import ArtifactStorageError, StorageError
from tokenizer_core.registry import bucket_store, open_artifacts

__all__ = [
    "test_a_pointer_that_is_too_large_is_replaced_by_promoting",
    "test_a_promotion_that_was_overtaken_or_fenced_is_refused",
    "test_hosts_share_versions_and_the_pointer",
    "test_hosts_that_publish_and_promote_at_once_all_succeed",
]


@pytest.fixture
def objects(s3_bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(bucket_store, "open_storage", open_with_shared_client)
    return lambda host="a": open_artifacts(f"{s3_bucket}/some", tmp_path / host)


@pytest.fixture
def make(objects):
    return objects


def test_what_is_in_the_cache_is_opened_while_the_storage_is_away(objects, s3_server, monkeypatch):
    store = objects()
    a, b = store.publish(A, name="t"), store.publish(B, name="u")
    store.open(a)
    fresh = objects()
    monkeypatch.setattr(
        bucket_store, "open_storage", lambda _: (_ for _ in ()).throw(StorageError("away"))
    )
    assert fresh.resolve(str(a)) == fresh.resolve("t") == a
    assert fresh.open(a) == A
    for call in (fresh.list, lambda: fresh.resolve("u"), lambda: fresh.open(b), fresh.fence):
        with pytest.raises(ArtifactStorageError):
            call()
    monkeypatch.setattr(bucket_store, "open_storage", open_with_shared_client)
    fresh._unreachable_until = 0.0
    assert fresh.open(b) == B
