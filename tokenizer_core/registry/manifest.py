"""Manifest: the contents of `manifest.json`, which is in the folder of an artifact's pickles.

It holds the settings that decide ids but are not in the pickles, the hashes that show damage, and
the origin of the tokenizer. `formats.manifest_fields` reads and writes the settings, so that
loading the two pickles by hand applies them too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from tokenizer_core.errors import ArtifactError, FormatError
from tokenizer_core.formats.manifest_fields import MANIFEST, MANIFEST_NAME, render_spec_fields
from tokenizer_core.formats.pickle_files import PICKLE_NAMES, render_pickle
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.chat_templates import CHAT_FILE
from tokenizer_core.strict_json import parse_record

FILE_NAMES: Final = PICKLE_NAMES

_SHA256: Final = re.compile("[0-9a-f]{64}")
_LIBRARIES: Final = ("regex", "numpy")


@dataclass(frozen=True)
class FileRecord:
    """The expected sha256 (hex) and size of a file."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Manifest:
    """The contents of a `manifest.json`.

    - `spec_fields`: fingerprint, kind, pattern, added tokens, gaps and the rest, from
      `render_spec_fields`.
    - `provenance`: one entry per corpus: name, size_bytes, sha256 and the caller's own fields.
    - `training`: the trainer's report, None for an import. `command`: the command line that made
      the artifact.
    """

    name: str
    version: str
    created_at: str
    files: Mapping[str, FileRecord]
    spec_fields: Mapping[str, Any]
    libraries: Mapping[str, str]
    provenance: tuple[Mapping[str, Any], ...] = ()
    training: Mapping[str, Any] | None = None
    command: str | None = None

    @property
    def fingerprint(self) -> str:
        """The spec's, which is the artifact's digest."""
        found: str = self.spec_fields["fingerprint"]
        return found

    def to_json(self) -> bytes:
        """The content of `manifest.json`, sealed; raise FormatError if a value is not JSON."""
        return MANIFEST.render(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The fields of the file, ready for JSON, without format and seal."""
        return {
            "name": self.name,
            "version": self.version,
            "created_at": self.created_at,
            **self.spec_fields,
            "files": {name: asdict(record) for name, record in self.files.items()},
            "provenance": list(self.provenance),
            "training": self.training,
            "command": self.command,
            "libraries": dict(self.libraries),
        }

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """The manifest in `data`.

        Raises:
            FormatError: it is damaged or has another format, or a field is missing or malformed.
        """
        found = MANIFEST.parse(data)
        names = {each.name for each in fields(cls)} - {"spec_fields"}
        try:
            own = {name: found.pop(name) for name in names}
            manifest: Manifest = parse_record(cls, own | {"spec_fields": found})
            manifest._check()
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"the manifest is malformed: {error!r:.120}") from None
        return manifest

    def _check(self) -> None:
        if set(self.files) != set(FILE_NAMES):
            raise FormatError(f"the manifest must list {FILE_NAMES}, it lists {list(self.files)}")
        records = [*self.files.values()]
        if self.chat_record is not None:
            chat = dict(self.chat_record) if isinstance(self.chat_record, Mapping) else {}
            if chat.keys() != {"sha256", "size_bytes", "templates"}:
                raise FormatError("the manifest's chat_templates is malformed")
            records.append(FileRecord(chat["sha256"], chat["size_bytes"]))
        hashes = [self.fingerprint, *(record.sha256 for record in records)]
        if not all(isinstance(value, str) and _SHA256.fullmatch(value) for value in hashes):
            raise FormatError("the manifest holds a hash that is no sha256 in hexadecimal")
        if not all(type(record.size_bytes) is int for record in records):
            raise FormatError("the manifest holds a file size that is no integer")

    @property
    def chat_record(self) -> Mapping[str, Any] | None:
        """The digests of the chat templates (`ChatTemplates.record`); None without any."""
        found: Mapping[str, Any] | None = self.spec_fields.get("chat_templates")
        return found

    def record_of(self, filename: str) -> FileRecord | None:
        """The expected sha256 and size of a stored file; None if the version has no such file."""
        if filename == CHAT_FILE and self.chat_record is not None:
            return FileRecord(self.chat_record["sha256"], self.chat_record["size_bytes"])
        return self.files.get(filename)


def render_version(
    spec: TokenizerSpec,
    *,
    name: str,
    version: str,
    training: Mapping[str, Any] | None = None,
    provenance: Sequence[Mapping[str, Any]] | None = None,
    command: str | None = None,
) -> dict[str, bytes]:
    """The files of a version, the manifest last, with the current time and the installed libraries.

    Raises:
        ArtifactError: a report is not JSON.
    """
    # Slow imports, which reading a manifest does not need.
    import platform
    from importlib.metadata import version as installed_version

    vocab_name, merges_name = FILE_NAMES
    files = {vocab_name: render_pickle(spec.vocab), merges_name: render_pickle(spec.merges)}
    manifest = Manifest(
        name=name,
        version=version,
        created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        files={
            file: FileRecord(hashlib.sha256(data).hexdigest(), len(data))
            for file, data in files.items()
        },
        spec_fields=render_spec_fields(spec),
        libraries={
            "python": platform.python_version(),
            **{library: installed_version(library) for library in _LIBRARIES},
        },
        provenance=tuple(provenance or ()),
        training=training,
        command=command,
    )
    chat = {CHAT_FILE: spec.chat.to_json()} if spec.chat.record() else {}
    try:
        return {**files, **chat, MANIFEST_NAME: manifest.to_json()}
    except FormatError as error:
        raise ArtifactError(str(error)) from None
