"""Open one version in a folder: manifest, sizes, hashes, pickles, fingerprint, golden text.

The stores read versions, and check a version before they publish it, through the same functions.
`reading` and `writing` translate errors into those of the store.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenizer_core import compiled
from tokenizer_core.blobs.atomic_files import open_folder, read_file_in
from tokenizer_core.errors import (
    DISK_FULL,
    ArtifactCorruptError,
    ArtifactError,
    ArtifactNotFoundError,
    ArtifactStorageError,
    FormatError,
    InvalidSpecError,
    UnknownPatternError,
)
from tokenizer_core.formats.manifest_fields import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    build_spec,
    parse_chat_file,
)
from tokenizer_core.formats.pickle_files import MAX_PICKLE_BYTES, parse_plain_pickle
from tokenizer_core.registry.golden_text import check_round_trip
from tokenizer_core.registry.manifest import FILE_NAMES, FileRecord, Manifest
from tokenizer_core.spec.chat_templates import CHAT_FILE, ChatTemplates
from tokenizer_core.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokenizer_core.blobs.local_files import Folder
    from tokenizer_core.registry.versions import ArtifactRef
    from tokenizer_core.spec import TokenizerSpec


COMPILED_NAME: Final = "compiled"
"""The compiled file in the folder of a version. The manifest does not list it."""


def read_manifest(folder: Folder, name: str, version: str) -> Manifest:
    """The manifest in an open version folder, if it names this tokenizer and version.

    Raises:
        ArtifactCorruptError, FormatError: it is missing, damaged, or names another version.
    """
    with reading_file(MANIFEST_NAME):
        data = read_file_in(folder, MANIFEST_NAME, max_bytes=MAX_MANIFEST_BYTES)
    return parse_manifest(data, name, version)


def parse_manifest(data: bytes, name: str, version: str) -> Manifest:
    """The manifest in `data`, if it names this tokenizer and version; raise as `read_manifest`."""
    with reading_file(MANIFEST_NAME):
        manifest = Manifest.from_json(data)
        if (manifest.name, manifest.version) != (name, version):
            other = ascii(f"{manifest.name}@{manifest.version}")[1:-1]
            raise ArtifactCorruptError(f"the manifest is that of {other:.160}")
        return manifest


def read_version(folder: Folder, name: str, version: str) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest and the other files in an open version folder, after checking links, sizes and
    hashes.

    Raises:
        ArtifactCorruptError, FormatError: what is damaged.
    """
    manifest = read_manifest(folder, name, version)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                with reading_file(entry.name):
                    raise ArtifactCorruptError(f"{entry.name!a:.60} is a symbolic link")
    records = {file: manifest.record_of(file) for file in (*FILE_NAMES, CHAT_FILE)}
    return manifest, {
        file: _read_verified(folder, file, record)
        for file, record in records.items()
        if record is not None
    }


def build_spec_of(manifest: Manifest, files: Mapping[str, bytes]) -> TokenizerSpec:
    """The spec of a version, of which all files were read.

    Raises:
        ArtifactCorruptError, FormatError, InvalidSpecError: what is damaged.
    """
    vocab, merges = (parse_plain_pickle(files[file]) for file in FILE_NAMES)
    if not isinstance(vocab, dict) or not isinstance(merges, list):
        raise ArtifactCorruptError("vocab.pkl is no dict, or merges.pkl no list")
    spec = build_spec(manifest.spec_fields, vocab, merges)
    if CHAT_FILE not in files:
        return spec
    return spec.with_chat(parse_chat_file(manifest.spec_fields, files[CHAT_FILE]))


def key_of_version(manifest: Manifest) -> bytes:
    """The key of the compiled file of a version, by the hashes of its files."""
    records = [manifest.record_of(name) for name in (*FILE_NAMES, CHAT_FILE)]
    hashes = [record and record.sha256 for record in records]
    return compiled.key_of(b"version", json.dumps([manifest.spec_fields, hashes]).encode())


def check_version_folder(staged: Path, ref: ArtifactRef) -> None:
    """Open a staged version as a reader would, check it with the golden text, and compile it.

    Raises:
        ArtifactCorruptError, FormatError, InvalidSpecError: what is wrong with it.
    """
    with open_folder(staged) as folder:
        manifest, files = read_version(folder, ref.name, ref.version)
    spec = build_spec_of(manifest, files)
    if spec.fingerprint != ref.digest:
        raise ArtifactCorruptError("what was read back has another fingerprint")
    tokenizer = Tokenizer.from_spec(spec)
    check_round_trip(tokenizer)
    if compiled.is_used():
        with contextlib.suppress(OSError, MemoryError):  # it is loaded without
            key = key_of_version(manifest)
            compiled.keep(staged / COMPILED_NAME, key, spec, tokenizer.engine)


def read_artifact_file(folder: Folder, name: str, version: str, filename: str) -> tuple[bytes, str]:
    """The bytes of one file of an open version folder, and the fingerprint in its manifest.

    Raises:
        ArtifactCorruptError, FormatError: what is damaged.
    """
    manifest = read_manifest(folder, name, version)
    if filename == MANIFEST_NAME:
        data = read_file_in(folder, MANIFEST_NAME, max_bytes=MAX_MANIFEST_BYTES)
    else:
        record = manifest.record_of(filename)
        # The only optional file: a version without it has no templates and declares nothing.
        empty = ChatTemplates().to_json()
        data = empty if record is None else _read_verified(folder, filename, record)
    return data, manifest.fingerprint


def _read_verified(folder: Folder, name: str, record: FileRecord) -> bytes:
    """A file's bytes, after checking size and hash: nothing may parse unchecked bytes."""
    with reading_file(name):
        data = read_file_in(folder, name, max_bytes=MAX_PICKLE_BYTES)
        if len(data) != record.size_bytes:
            raise ArtifactCorruptError(
                f"{name} has {len(data)} bytes, the manifest says {record.size_bytes}"
            )
        if hashlib.sha256(data).hexdigest() != record.sha256:
            raise ArtifactCorruptError(f"{name} has another sha256 than the manifest says")
        return data


@contextlib.contextmanager
def reading_file(name: str) -> Iterator[None]:
    """Let the error of a damaged or missing file say which it is."""
    try:
        yield
    except ArtifactNotFoundError as error:  # while a version is removed from a bucket
        error.file = name
        raise
    except (FormatError, ArtifactCorruptError) as error:
        corrupt = ArtifactCorruptError(str(error))
        corrupt.file = name
        raise corrupt from error


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Translate any error in the block into the store's errors, which name `what`."""
    try:
        yield
    except (ArtifactCorruptError, FormatError, InvalidSpecError, UnknownPatternError) as error:
        if isinstance(error, ArtifactCorruptError) and str(error).startswith(what):
            raise
        corrupt = ArtifactCorruptError(f"{what}: {error}")
        corrupt.version, corrupt.file = what, getattr(error, "file", None)
        raise corrupt from error
    except FileNotFoundError as error:
        raise ArtifactNotFoundError(f"{what} is not there") from error
    except OSError as error:
        if isinstance(error, ArtifactError):
            raise
        raise storage_error(f"read {what}", error) from error


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Translate any error in the block into the store's errors: it cannot `what`."""
    try:
        yield
    except (FormatError, InvalidSpecError) as error:
        raise ArtifactError(f"cannot {what}: {error}") from error
    except OSError as error:
        if isinstance(error, ArtifactError):
            raise
        raise storage_error(what, error) from error


def storage_error(what: str, error: OSError) -> ArtifactStorageError:
    """The store's error for an error of the operating system."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    file = None
    if isinstance(error.filename, str):  # a file of a version: which one
        file = Path(error.filename).name
        reason = f"{file!a:.60}: {reason}"
    remedy = "; free some space" if error.errno in DISK_FULL else ""
    translated = ArtifactStorageError(
        error.errno or errno.EIO, f"cannot {what}: {reason}{remedy}. Nothing has changed."
    )
    translated.file = file
    return translated
