"""Published tokenizers: versions, their manifests, and the pointer to the active one."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tokenizer_core.blobs.addresses import is_store_address
from tokenizer_core.registry.folder_store import ArtifactStore
from tokenizer_core.registry.manifest import FileRecord, Manifest
from tokenizer_core.registry.pointer import StoredState
from tokenizer_core.registry.store import Artifacts
from tokenizer_core.registry.versions import ArtifactRef

__all__ = [
    "ArtifactRef",
    "ArtifactStore",
    "Artifacts",
    "FileRecord",
    "Manifest",
    "StoredState",
    "open_artifacts",
]


def open_artifacts(store: str | None, artifacts_dir: Path) -> Artifacts:
    """The registry at `store`: `s3://bucket/prefix`, cached below `artifacts_dir`, or a folder;
    without `store`, the registry in `artifacts_dir`. This call sends no request.

    Raises:
        StorageError: an address with one slash after the colon, which would name a folder.
    """
    if not store:
        return ArtifactStore(artifacts_dir)
    if not is_store_address(store):
        return ArtifactStore(Path(store))
    # Imported here: most processes need no bucket.
    from tokenizer_core.registry.bucket_store import BucketArtifactStore

    folder_name = hashlib.sha256(store.rstrip("/").encode()).hexdigest()[:16]
    return BucketArtifactStore(store, artifacts_dir / "cache" / folder_name)
