"""Artifacts: versioned tokenizers, published whole or not at all.

`artifacts` what every store can do · `artifact_store` one in a folder ·
`object_artifact_store` one in a bucket · `open_artifacts` either · `artifact_ref` names and
versions · `artifact_folder` opening one version · `manifest` what stands beside the pickles ·
`version_cache` what a host has of a bucket's versions · `active_pointer` which version is served ·
`folders` reading and writing that neither a link nor a crash surprises · `golden_text` the last
check before publishing.
"""

from tokenizer_core.store.active_pointer import PointerState
from tokenizer_core.store.artifact_ref import ArtifactRef
from tokenizer_core.store.artifact_store import ArtifactStore
from tokenizer_core.store.artifacts import Artifacts
from tokenizer_core.store.manifest import FileRecord, Manifest
from tokenizer_core.store.open_artifacts import open_artifacts

__all__ = [
    "ArtifactRef",
    "ArtifactStore",
    "Artifacts",
    "FileRecord",
    "Manifest",
    "PointerState",
    "open_artifacts",
]
