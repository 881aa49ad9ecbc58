"""Published tokenizers: versions, manifests and the pointer to the active one."""

from tokenizer_core.registry.active_pointer import PointerState
from tokenizer_core.registry.artifact_ref import ArtifactRef
from tokenizer_core.registry.artifact_store import ArtifactStore
from tokenizer_core.registry.artifacts import Artifacts
from tokenizer_core.registry.manifest import FileRecord, Manifest
from tokenizer_core.registry.open_artifacts import open_artifacts

__all__ = [
    "ArtifactRef",
    "ArtifactStore",
    "Artifacts",
    "FileRecord",
    "Manifest",
    "PointerState",
    "open_artifacts",
]
