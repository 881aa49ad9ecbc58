"""The files of a published version for download, in every format that can hold the tokenizer.

The stored files (pickles, chat templates, manifest) are read from the disk and checked against
their hashes. Other formats are rendered, which takes two seconds for 200,000 tokens, and cached
within a limit. Calls block: use a thread.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from tokenizer_core import __version__
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.gpt2_files import render_gpt2_files
from tokenizer_core.formats.tiktoken_file import render_tiktoken
from tokenizer_core.formats.tokenizer_json.document import render_tokenizer_json
from tokenizer_core.registry import ArtifactRef, Artifacts
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.chat_templates import CHAT_FILE
from tokenizer_service.serving.errors import FormatCannotHoldError
from tokenizer_service.serving.live_tokenizers import LiveTokenizers

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_BYTES: Final = "application/octet-stream"

STORED: Final = {
    "manifest.json": _JSON,
    "vocab.pkl": _BYTES,
    "merges.pkl": _BYTES,
    CHAT_FILE: _JSON,
}
RENDERED: Final = {
    "tokenizer.json": _JSON,
    "vocab.json": _JSON,
    "merges.txt": _TEXT,
    "tokenizer.tiktoken": _TEXT,
}
MEDIA_TYPES: Final = {**RENDERED, **STORED}
"""File name -> media type of every file that can be downloaded."""

MAX_KEPT_BYTES: Final = 64 << 20
"""Most bytes of rendered files that a process caches; 200,000 tokens take 18 MB."""


class ArtifactFiles:
    """Reads or renders the files of versions. Thread-safe."""

    def __init__(
        self, store: Artifacts, live: LiveTokenizers, *, max_kept_bytes: int = MAX_KEPT_BYTES
    ) -> None:
        self._store, self._live = store, live
        self._max_kept_bytes = max_kept_bytes
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def tag(self, ref: ArtifactRef, filename: str) -> str:
        """The ETag of `read(ref, filename)`. The manifest has the hash of each stored file; a
        release may render the others anew.
        """
        digest = hashlib.sha256(self._store.read_manifest(ref).to_json())
        digest.update(__version__.encode())
        return f'"{digest.hexdigest()}-{filename}"'

    def read(self, ref: ArtifactRef, filename: str) -> bytes:
        """The bytes of one of `MEDIA_TYPES`; blocks, for seconds if the file must be rendered."""
        if filename in STORED:
            return self._store.read_file(ref, filename)
        # Cache by digest: versions with equal digests are the same tokenizer under several names.
        with self._lock:
            kept = self._kept.get((ref.digest, filename))
            if kept is not None:
                self._kept.move_to_end((ref.digest, filename))
                return kept
        try:
            made = _render(self._open(ref), filename)
        except FormatError as error:
            raise FormatCannotHoldError(
                f"{filename} cannot hold this tokenizer: {error}."
            ) from None
        self._keep(ref.digest, made)
        return made[filename]

    def _open(self, ref: ArtifactRef) -> TokenizerSpec:
        """The spec of a loaded tokenizer, or else from the disk, without loading the tokenizer."""
        for live in self._live.loaded():
            if live.ref.digest == ref.digest:
                return live.tokenizer.spec
        return self._store.open(ref)

    def _keep(self, digest: str, made: Mapping[str, bytes]) -> None:
        with self._lock:
            self._kept.update({(digest, name): data for name, data in made.items()})
            while sum(map(len, self._kept.values())) > self._max_kept_bytes:
                self._kept.popitem(last=False)


def _render(spec: TokenizerSpec, filename: str) -> dict[str, bytes]:
    """Render `filename` and the files that belong to it; raises FormatError."""
    if filename == "tokenizer.json":
        return {filename: render_tokenizer_json(spec)}
    if filename == "tokenizer.tiktoken":
        return {filename: render_tiktoken(spec)}
    return dict(zip(("vocab.json", "merges.txt"), render_gpt2_files(spec), strict=True))
