"""open_artifacts: the store of artifacts that a setting names."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tokenizer_core.registry.artifact_store import ArtifactStore
from tokenizer_core.registry.artifacts import Artifacts
from tokenizer_core.registry.object_artifact_store import ObjectArtifactStore


def open_artifacts(store: str | None, artifacts_dir: Path) -> Artifacts:
    """The store at `store`, `s3://bucket/prefix` (cached below `artifacts_dir`) or a folder;
    without one, that in `artifacts_dir`. Nothing is asked of it yet.

    Example:
        >>> open_artifacts(None, Path("artifacts")).root
        PosixPath('artifacts')
    """
    if not store:
        return ArtifactStore(artifacts_dir)
    if "://" not in store:
        return ArtifactStore(Path(store))
    place = hashlib.sha256(store.rstrip("/").encode()).hexdigest()[:16]
    return ObjectArtifactStore(store, artifacts_dir / "cache" / place)
