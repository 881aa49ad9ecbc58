"""ObjectStorage: a storage in a bucket, `s3://bucket/prefix`, through botocore, S3's own library.

S3 supports both conditions we need: `If-None-Match: *` for `create`, `If-Match: etag` for `swap`.
A store that only resembles S3 may ignore them and answer 200, so that two writers both win;
`probe` detects this. The client repeats a write whose response was lost, and the second request
finds the object of the first. A random mark in each conditional write shows the writer that this
object is its own.
Messages name only the kind of the store's error, because its text may hold secrets.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tokenizer_core.blobs.protocol import (
    BUCKET,
    Versioned,
    checked_storage_name,
    checked_storage_prefix,
    is_storage_name,
    too_large,
)
from tokenizer_core.errors import StorageError, StorageMissingError, missing_extra

_ADDRESS: Final = re.compile(rf"s3://({BUCKET})((?:/[A-Za-z0-9_][A-Za-z0-9._@=-]*)*)/?")
_CONNECT_SECONDS: Final = 3
_SILENT_SECONDS: Final = 8
_TRIES: Final = 2

# S3's error codes: the condition is false; another write to the same key is in progress; a key
# that does not exist (the response to HEAD has no code, so botocore gives its status).
_CONDITION_FAILED: Final = "PreconditionFailed"
_CONFLICT: Final = "ConditionalRequestConflict"
_CONFLICT_PAUSES_SECONDS: Final = (0.1, 0.3, 1.0)
_NO_KEY: Final = frozenset({"NoSuchKey", "404"})
_MARK: Final = "write"

_NO_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError"})
_CREDENTIALS_REMEDY: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another source of credentials of S3 tools "
    "(AWS_PROFILE, ~/.aws/credentials, a role of the machine)"
)
_REMEDY: Final = "check the address, the network, the credentials, and the write permission"


class ObjectStorage:
    """A `Storage` under `s3://bucket/prefix`; use `open_object_storage` to make one."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client, self._bucket = client, bucket
        self._key_prefix = f"{prefix}/" if prefix else ""
        self.shown = f"s3://{bucket}/{prefix}".rstrip("/")

    def read(self, name: str, *, max_bytes: int) -> bytes:
        found = self.read_versioned(name, max_bytes=max_bytes)
        if found is None:
            raise self._missing(name)
        return found.data

    def read_versioned(self, name: str, *, max_bytes: int) -> Versioned | None:
        location = self._location(name)
        try:
            with self._translating_errors(name):
                found = self._get(location, max_bytes + 1)
        except StorageMissingError:
            return None
        if len(found.data) > max_bytes:
            raise too_large(self.shown, name, max_bytes, found.version)
        return found

    def fetch(self, name: str, path: Path) -> None:
        location = self._location(name)
        with self._translating_errors(name), path.open("wb") as file:
            self._transfer("download", *location.values(), file)

    def size(self, name: str) -> int | None:
        head = self._head(name)
        return None if head is None else int(head["ContentLength"])

    def names(self, prefix: str = "") -> list[str]:
        begin = self._key_prefix + checked_storage_prefix(prefix)
        with self._translating_errors(prefix or "the list of names"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=begin
            )
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        names = [key.removeprefix(self._key_prefix) for key in keys]
        return sorted(name for name in names if is_storage_name(name))

    def put(self, name: str, source: bytes | Path) -> None:
        location = self._location(name)
        with self._translating_errors(name):
            if isinstance(source, bytes):
                self._client.put_object(Body=source, **location)
            else:
                self._transfer("upload", str(source), *location.values())

    def create(self, name: str, data: bytes) -> bool:
        return self._put_if(name, data, IfNoneMatch="*")

    def swap(self, name: str, data: bytes, *, expected: str | None) -> bool:
        if expected is None:
            return self.create(name, data)
        try:
            return self._put_if(name, data, IfMatch=expected)
        except StorageMissingError:  # another process removed it
            return False

    def remove(self, name: str) -> None:
        location = self._location(name)
        with self._translating_errors(name):
            self._client.delete_object(**location)

    def probe(self) -> None:
        """Check that one of two writers wins, and that a swap from an old version is refused.

        Raises:
            StorageError: the storage cannot be reached, or lets both win.
        """
        name = f"probe/{secrets.token_hex(8)}"
        try:
            first = self.create(name, b"first") and not self.create(name, b"second")
            found = self.read_versioned(name, max_bytes=16)
            swapped = (
                found is not None
                and self.swap(name, b"third", expected=found.version)
                and not self.swap(name, b"fourth", expected=found.version)
            )
        finally:
            with contextlib.suppress(StorageError):
                self.remove(name)
        if not (first and swapped):
            raise StorageError(
                f"the storage {self.shown} lets two writers write the same name: it ignores "
                f"If-None-Match or If-Match. Use a storage with conditional writes, such as S3, "
                f"or a folder"
            )

    def _get(self, location: Mapping[str, str], n_bytes: int) -> Versioned:
        """The first `n_bytes` of an object, or all. Request a body that breaks off once more: the
        client repeats requests, but not reads of a body."""
        for tries_left in reversed(range(_TRIES)):
            response = self._client.get_object(**location)
            data = bytearray()
            try:
                with contextlib.closing(response["Body"]) as body:
                    # Only a read at the end notices that bytes are missing.
                    while len(data) < n_bytes and (piece := body.read(n_bytes - len(data))):
                        data += piece
                return Versioned(bytes(data), response["ETag"])
            except Exception:
                if not tries_left:
                    raise
        raise AssertionError

    def _head(self, name: str) -> Mapping[str, Any] | None:
        location = self._location(name)
        try:
            with self._translating_errors(name):
                head: Mapping[str, Any] = self._client.head_object(**location)
        except StorageMissingError:
            return None
        return head

    def _put_if(self, name: str, data: bytes, **condition: str) -> bool:
        """Write with a condition, and with a mark in the metadata; whether it succeeded."""
        mark = secrets.token_hex(16)
        request = {"Body": data, "Metadata": {_MARK: mark}, **condition, **self._location(name)}
        with self._translating_errors(name):
            for pause_seconds in (*_CONFLICT_PAUSES_SECONDS, None):
                try:
                    self._client.put_object(**request)
                    return True
                except Exception as error:
                    if _reason(error) == _CONFLICT and pause_seconds is not None:
                        time.sleep(pause_seconds)
                    elif _reason(error) == _CONDITION_FAILED:
                        break
                    else:
                        raise
        # The existing object may be our own: the client repeats a write after a lost response.
        head = self._head(name)
        return head is not None and head["Metadata"].get(_MARK) == mark

    def _transfer(self, verb: str, *arguments: object) -> None:
        """Move a file of any size, in parts of one version, several at once."""
        from s3transfer.manager import TransferManager

        with TransferManager(self._client) as manager:
            getattr(manager, verb)(*arguments).result()

    def _location(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key_prefix + checked_storage_name(name)}

    def _missing(self, name: str) -> StorageMissingError:
        return StorageMissingError(f"there is no {name} in {self.shown}")

    @contextlib.contextmanager
    def _translating_errors(self, name: str) -> Iterator[None]:
        """Translate the errors of botocore and of the disk into storage errors."""
        try:
            yield
        except Exception as error:
            if _reason(error) in _NO_KEY:
                raise self._missing(name) from None
            if isinstance(error, OSError) and error.strerror:
                raise StorageError(
                    f"{name} cannot be copied from the disk or to it: {error.strerror}"
                ) from error
            raise _unusable(self.shown, f" for {name}", error) from None


def open_object_storage(address: str, *, probe: bool = True) -> ObjectStorage:
    """The storage at `s3://bucket/prefix`, probed unless `probe` is false.

    Raises:
        StorageError: as `open_storage`.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        # Leave out the address: it may hold a password.
        raise StorageError(
            "a storage is a folder or s3://bucket/prefix, with nothing beside (the bucket is 3 to "
            "63 of a-z 0-9 . -); other stores have no conditional writes known to "
            "work, so two writers could both win"
        )
    try:
        from botocore.config import Config
        from botocore.session import Session
    except ImportError:
        raise missing_extra(StorageError, f"the storage {address}", "s3") from None
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_SILENT_SECONDS,
        retries={"total_max_attempts": _TRIES, "mode": "standard"},
    )
    try:
        client = Session().create_client("s3", config=config)
    except Exception as error:  # of the profile or the endpoint
        raise _unusable(address, "", error) from None
    storage = ObjectStorage(client, match[1], match[2].strip("/"))
    if probe:
        storage.probe()
    return storage


def _unusable(shown: str, use: str, error: Exception) -> StorageError:
    reason = _reason(error)
    remedy = _CREDENTIALS_REMEDY if reason in _NO_CREDENTIALS else _REMEDY
    return StorageError(f"the storage {shown} cannot be used{use} ({reason}); {remedy}")


def _reason(error: Exception) -> str:
    """S3's error code, or else the kind of the error."""
    response = getattr(error, "response", None)
    return response["Error"]["Code"] if isinstance(response, dict) else type(error).__name__
