"""ObjectStorage: a storage in a bucket, `s3://bucket/prefix`, through fsspec's s3fs.

S3 supports both conditions we need: `If-None-Match: *` for `create`, `If-Match: etag` for `swap`.
A store that only resembles S3 may ignore them and answer 200, so that two writers both win;
`probe` detects this. The client repeats a write whose response was lost, and the second request
finds the object of the first. A random mark in each conditional write shows the writer that this
object is its own.
Messages name only the kind of the store's error, because its text may hold secrets.
"""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from tokenizer_core.blobs.protocol import (
    Versioned,
    checked_storage_name,
    checked_storage_prefix,
    is_storage_name,
    too_large,
)
from tokenizer_core.errors import StorageError, StorageMissingError

_ADDRESS: Final = re.compile(
    r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[A-Za-z0-9_][A-Za-z0-9._@=-]*)*)/?"
)
_CONNECT_SECONDS: Final = 3
_SILENT_SECONDS: Final = 8
_TRIES: Final = 2
_PIECE_BYTES: Final = 1 << 20

# Limits all attempts of a request together: aiohttp's own timeout ends with a `100 Continue`.
_RESPONSE_SECONDS: Final = 20
_MIN_BYTES_PER_SECOND: Final = 1 << 18

# S3's error codes: the condition is false; another write to the same key is in progress.
_CONDITION_FAILED: Final = "PreconditionFailed"
_CONFLICT: Final = "ConditionalRequestConflict"
_CONFLICT_PAUSES_SECONDS: Final = (0.1, 0.3, 1.0)
_NO_BUCKET: Final = "NoSuchBucket"
_MARK: Final = "write"

_NO_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError"})
_CREDENTIALS_REMEDY: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another source of credentials of S3 tools "
    "(AWS_PROFILE, ~/.aws/credentials, a role of the machine)"
)
_REMEDY: Final = "check the address, the network, the credentials, and the write permission"


class ObjectStorage:
    """A `Storage` under `s3://bucket/prefix`; use `open_object_storage` to make one."""

    def __init__(self, store: Any, bucket: str, prefix: str) -> None:
        self._store, self._bucket = store, bucket
        self._key_prefix = f"{prefix}/" if prefix else ""
        self.shown = f"s3://{bucket}/{prefix}".rstrip("/")

    def read(self, name: str, *, max_bytes: int) -> bytes:
        found = self.read_versioned(name, max_bytes=max_bytes)
        if found is None:
            raise self._missing(name)
        return found.data

    def read_versioned(self, name: str, *, max_bytes: int) -> Versioned | None:
        file = io.BytesIO()
        try:
            version = self._get(name, file, max_bytes)
        except StorageMissingError:
            return None
        return Versioned(file.getvalue(), version)

    def fetch(self, name: str, path: Path) -> None:
        checked_storage_name(name)
        try:
            with path.open("wb") as file:
                self._get(name, file, None)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"{name} cannot be copied to the disk: {error.strerror}") from error

    def size(self, name: str) -> int | None:
        head = self._head(name)
        return None if head is None else int(head["ContentLength"])

    def names(self, prefix: str = "") -> list[str]:
        request: dict[str, Any] = {
            "Bucket": self._bucket,
            "Prefix": self._key_prefix + checked_storage_prefix(prefix),
        }
        found: list[str] = []
        with self._translating_errors(prefix or "the list of names"):
            while True:
                page = self._call(self._store._call_s3, "list_objects_v2", **request)
                found += [
                    entry["Key"].removeprefix(self._key_prefix)
                    for entry in page.get("Contents", ())
                ]
                if not page.get("IsTruncated"):
                    break
                request["ContinuationToken"] = page["NextContinuationToken"]
        return sorted(name for name in found if is_storage_name(name))

    def put(self, name: str, source: bytes | Path) -> None:
        path = self._path(name)
        with self._translating_errors(name):
            self._write(path, source, mode="overwrite")

    def create(self, name: str, source: bytes | Path) -> bool:
        path = self._path(name)
        return self._write_if(
            name, lambda marked: self._write(path, source, mode="create", **marked)
        )

    def swap(self, name: str, data: bytes, *, expected: str | None) -> bool:
        if expected is None:
            return self.create(name, data)
        location = self._location(name)
        try:
            return self._write_if(
                name,
                lambda marked: self._call(
                    *(self._store._call_s3, "put_object"),
                    **{"Body": data, "IfMatch": expected, **location, **marked},
                    n_bytes=len(data),
                ),
            )
        except StorageMissingError:  # another process removed it
            return False

    def remove(self, name: str) -> None:
        location = self._location(name)
        with contextlib.suppress(StorageMissingError), self._translating_errors(name):
            self._call(self._store._call_s3, "delete_object", **location)

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

    def _get(self, name: str, file: BinaryIO, max_bytes: int | None) -> str:
        """Write the bytes of a name into `file`, from one response; return their version."""
        location = self._location(name)
        with self._translating_errors(name):
            # No total time limit, as the size is unknown; the read timeout bounds each pause.
            version: str = self._call(self._get_into, location, file, max_bytes, n_bytes=None)
        if max_bytes is not None and file.tell() > max_bytes:
            raise too_large(self.shown, name, max_bytes, version)
        return version

    async def _get_into(
        self, location: Mapping[str, str], file: BinaryIO, max_bytes: int | None
    ) -> str:
        """As `_get`, reading at most one byte beyond `max_bytes`. Request a body that breaks off
        once more: the client repeats requests, but not reads of a body."""
        for tries_left in reversed(range(_TRIES)):
            response = await self._store._call_s3("get_object", **location)
            file.seek(0)
            file.truncate()
            with contextlib.closing(response["Body"]) as body:
                try:
                    while max_bytes is None or file.tell() <= max_bytes:
                        left = _PIECE_BYTES if max_bytes is None else max_bytes + 1 - file.tell()
                        piece = await body.read(min(_PIECE_BYTES, left))
                        if not piece:
                            break
                        file.write(piece)
                    return str(response["ETag"])
                except Exception:
                    if not tries_left:
                        raise
        raise AssertionError

    def _head(self, name: str) -> Mapping[str, Any] | None:
        location = self._location(name)
        try:
            with self._translating_errors(name):
                head: Mapping[str, Any] = self._call(
                    self._store._call_s3, "head_object", **location
                )
        except StorageMissingError:
            return None
        return head

    def _write(self, path: str, source: bytes | Path, *, mode: str, **marked: Any) -> None:
        store = self._store
        if isinstance(source, bytes):
            options = {"n_bytes": len(source), "mode": mode, **marked}
            self._call(store._pipe_file, path, source, **options)
        else:
            options = {"n_bytes": source.stat().st_size, "mode": mode, **marked}
            self._call(store._put_file, str(source), path, **options)

    def _call(
        self,
        call: Callable[..., object],
        *arguments: object,
        n_bytes: int | None = 0,
        **options: Any,
    ) -> Any:
        """Run a coroutine of the store in fsspec's thread and return its result.

        The time limit grows with `n_bytes`, the size of the request; None: no limit.
        """
        from fsspec.asyn import sync

        seconds = (
            n_bytes if n_bytes is None else _RESPONSE_SECONDS + n_bytes / _MIN_BYTES_PER_SECOND
        )
        return sync(self._store.loop, call, *arguments, timeout=seconds, **options)

    def _write_if(self, name: str, write: Callable[[dict[str, Any]], object]) -> bool:
        """Run a conditional write, with a mark in its metadata; whether it succeeded."""
        mark = secrets.token_hex(16)
        marked = {"Metadata": {_MARK: mark}}
        with self._translating_errors(name):
            for pause_seconds in (*_CONFLICT_PAUSES_SECONDS, None):
                try:
                    write(marked)
                    return True
                except OSError as error:
                    if _code(error) == _CONFLICT and pause_seconds is not None:
                        time.sleep(pause_seconds)
                    elif _code(error) == _CONDITION_FAILED or isinstance(error, FileExistsError):
                        break
                    else:
                        raise
        # The existing object may be our own: the client repeats a write after a lost response.
        head = self._head(name)
        return head is not None and head.get("Metadata", {}).get(_MARK) == mark

    def _location(self, name: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._key_prefix + checked_storage_name(name)}

    def _path(self, name: str) -> str:
        return f"{self._bucket}/{self._key_prefix}{checked_storage_name(name)}"

    def _missing(self, name: str) -> StorageMissingError:
        return StorageMissingError(f"there is no {name} in {self.shown}")

    @contextlib.contextmanager
    def _translating_errors(self, name: str) -> Iterator[None]:
        """Translate the errors of s3fs and botocore into storage errors."""
        try:
            yield
        except StorageError:
            raise
        except Exception as error:
            reason = _code(error) or type(error).__name__
            if isinstance(error, FileNotFoundError) and reason != _NO_BUCKET:
                raise self._missing(name) from None
            remedy = _CREDENTIALS_REMEDY if reason in _NO_CREDENTIALS else _REMEDY
            raise StorageError(
                f"the storage {self.shown} cannot be used for {name} ({reason}); {remedy}"
            ) from None


def open_object_storage(address: str, *, probe: bool = True) -> ObjectStorage:
    """The storage at `s3://bucket/prefix`, probed unless `probe` is false.

    Raises:
        StorageError: as `open_storage`.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        # Leave out the address: it may hold a password.
        raise StorageError(
            "a storage is a folder or s3://bucket/prefix, with nothing beside; other stores have "
            "no conditional writes known to work, so two writers could both win"
        )
    try:
        import s3fs
    except ImportError:
        raise StorageError(
            f"the storage {address} needs a package: pip install 'tokenizer-service[s3]'"
        ) from None
    config = {
        "connect_timeout": _CONNECT_SECONDS,
        "read_timeout": _SILENT_SECONDS,
        "retries": {"total_max_attempts": _TRIES, "mode": "standard"},
    }
    # A new instance: fsspec's cached one may use another endpoint.
    store = s3fs.S3FileSystem(config_kwargs=config, skip_instance_cache=True)
    store.retries = 1  # `config` sets the attempts; the two would multiply
    storage = ObjectStorage(store, match[1], match[2].strip("/"))
    if probe:
        storage.probe()
    return storage


def _code(error: BaseException | None) -> str:
    """The error code of S3, which s3fs keeps in the cause."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        error = error.__cause__
    return ""
