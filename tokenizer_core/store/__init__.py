"""Artifacts: versioned tokenizers on disk, published whole or not at all.

`artifact_store` the store · `artifact_ref` names and versions · `artifact_folder` opening one
version · `manifest` what stands beside the pickles · `active_pointer` which version is served ·
`folders` reading and writing that neither a link nor a crash surprises · `golden_text` the last
check before publishing.
"""

from tokenizer_core.store.artifact_ref import ArtifactRef
from tokenizer_core.store.artifact_store import ArtifactStore
from tokenizer_core.store.manifest import FileRecord, Manifest

__all__ = ["ArtifactRef", "ArtifactStore", "FileRecord", "Manifest"]
