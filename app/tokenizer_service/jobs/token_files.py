"""Token files of encoding jobs: their layout on the disk, and the store that the routes use.

    <artifacts>/token-files/<id>/                 published token files
    <artifacts>/token-files/.unfinished/<job>/    complete, waiting for permission to publish
    <artifacts>/token-files/.unfinished/.<job>.partial/    being written by a job
    <artifacts>/token-files/.unfinished/.<job>.json        the manifest that the job publishes

`TokenFilesFolder` implements this layout; the child process of a job writes through it. A job
writes only below its own id in `.unfinished`, so that a job that lost its lease cannot damage other
files. After a takeover from another host, whose process may still write, the name of the folder
also has the number of the takeover (`<job>.1`).

`TokenFilesStore` serves the routes: it lists, describes, opens and removes token files, and keeps
them within a quota. It opens only files that a manifest names. Every call blocks: use a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from tokenizer_client.schemas.token_files import (
    TokenFile,
    TokenFilesSplit,
    TokenFilesSummary,
    TokenFilesTokenizer,
    TokenFilesView,
)
from tokenizer_core.blobs.atomic_files import make_folder, remove_folder, sync_folder
from tokenizer_core.corpus import LostTokens, SplitRecord, TokenFiles, TokenManifest
from tokenizer_core.corpus.token_manifest import MANIFEST_NAME
from tokenizer_core.errors import TokenFilesError
from tokenizer_core.registry.versions import NAME
from tokenizer_service.jobs.errors import (
    DiskTooSmallError,
    TokenFileNotFoundError,
    TokenFilesDamagedError,
    TokenFilesExistError,
    TokenFilesNotFoundError,
    TokenFilesQuotaError,
)
from tokenizer_service.jobs.folder import bytes_below, is_job_id, names_in

log = logging.getLogger("tokenizer_service.jobs")

_Summary = TypeVar("_Summary", bound=TokenFilesSummary)

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_UNFINISHED: Final = ".unfinished"
_TAKEN: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})


_OF_PLAN: Final = (
    *("tokens_per_shard", "begin_of_document_id", "end_of_document_id", "end_of_document"),
    *("end_reason", "not_added", "seed", "max_length"),
)
"""Fields of the plan that `TokenFilesView` shows under their names."""


class TokenFilesTakenError(TokenFilesError):
    """Other token files have that id."""

    code = "token_files_exist"

    def __init__(self) -> None:
        super().__init__(
            "there are other token files of this id; remove them with DELETE /token-files/{id}, or "
            "name others in token_files_id, and post the request again"
        )


@dataclass(frozen=True, slots=True)
class TokenFilesFolder:
    """The folder `root` of all token files; the first publication creates it."""

    root: Path

    @classmethod
    def of(cls, artifacts_dir: Path) -> TokenFilesFolder:
        """The token files of an artifacts folder."""
        return cls(artifacts_dir.absolute() / "token-files")

    def path(self, token_files_id: str) -> Path:
        """The folder of published token files; raises ValueError for no valid id."""
        if not NAME.fullmatch(token_files_id):
            raise ValueError("not an id of token files")
        return self.root / token_files_id

    def growing(self, job_id: str, takeovers: int = 0) -> Path:
        """The folder where a job writes its token files, on the same volume."""
        if not is_job_id(job_id):
            raise ValueError("not a job id")
        return self.root / _UNFINISHED / (f"{job_id}.{takeovers}" if takeovers else job_id)

    def note(self, growing: Path) -> Path:
        """The file with the manifest of the token files that the job publishes from `growing`."""
        return growing.with_name(f".{growing.name}.json")

    def notes(self, job_id: str) -> list[bytes]:
        """The manifests of the token files that this job's attempts were about to publish."""
        found = []
        for name in self.left_over():
            if _job_of(name) == job_id and name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError):
                    found.append((self.root / _UNFINISHED / name).read_bytes())
        return found

    def names(self) -> list[str]:
        """The ids of all published token files, sorted."""
        return sorted(filter(NAME.fullmatch, names_in(self.root)))

    def publish(self, growing: Path, token_files_id: str) -> None:
        """Publish the finished folder `growing` under its id; raises TokenFilesTakenError."""
        path = self.path(token_files_id)
        try:
            growing.rename(path)
        except OSError as error:
            if error.errno in _TAKEN:
                raise TokenFilesTakenError from None
            raise
        sync_folder(self.root)

    def drop(self, job_id: str) -> None:
        """Remove everything that a job wrote and did not publish."""
        for name in self.left_over():
            if _job_of(name) == job_id:
                self._remove_left_over(name)  # `sweep` removes the rest if this fails

    def remove(self, token_files_id: str) -> None:
        """Remove token files: first hide them by a rename, then free their space.

        Processes that have a file open or mapped can still read it. Raises FileNotFoundError.
        """
        aside = self.root / _UNFINISHED / f"removed-{secrets.token_hex(8)}"
        make_folder(aside.parent)
        self.path(token_files_id).rename(aside)
        sync_folder(self.root)
        remove_folder(aside)

    def left_over(self) -> list[str]:
        """The names below `.unfinished`. Call this before listing the unfinished jobs for `sweep`,
        so that the result has no entry of a job that started in between."""
        return names_in(self.root / _UNFINISHED)

    def sweep(self, names: list[str], kept_jobs: Collection[str]) -> None:
        """Remove the entries in `names` that belong to no job in `kept_jobs`."""
        for name in names:
            if _job_of(name) not in kept_jobs:
                self._remove_left_over(name)

    def _remove_left_over(self, name: str) -> None:
        path = self.root / _UNFINISHED / name
        if path.is_dir():
            remove_folder(path)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _job_of(name: str) -> str:
    """The job that an entry of `.unfinished` belongs to."""
    return name.lstrip(".").partition(".")[0]


@dataclass(frozen=True, slots=True)
class OpenTokenFile:
    """An open file for a download; the caller closes `descriptor`."""

    descriptor: int
    n_bytes: int
    sha256: str


class TokenFilesStore:
    """The token files below `artifacts_dir`; `max_bytes` limits their sum, None for no limit."""

    def __init__(self, artifacts_dir: Path, max_bytes: int | None) -> None:
        self._artifacts_dir, self.max_bytes = artifacts_dir, max_bytes
        self.folder = TokenFilesFolder.of(artifacts_dir)

    def all(self) -> list[TokenFilesSummary]:
        """All token files, by id; logs and skips those that cannot be read."""
        found = []
        for token_files_id in self.folder.names():
            try:
                with self._opened(token_files_id) as opened:
                    found.append(_summarise(TokenFilesSummary, token_files_id, opened))
            except TokenFilesNotFoundError:
                continue  # removed meanwhile
            except TokenFilesDamagedError as error:
                log.warning("the token files %s are damaged: %s", token_files_id, error)
        return found

    def describe(self, token_files_id: str) -> TokenFilesView:
        """The content of the manifest of token files."""
        with self._opened(token_files_id) as opened:
            plan, encoding = opened.manifest.plan, opened.manifest.encoding or {}
            return _summarise(
                TokenFilesView,
                token_files_id,
                opened,
                **{name: getattr(plan, name) for name in _OF_PLAN},
                over_length=None if plan.max_length is None else plan.over_length,
                document_encoder=opened.manifest.document_encoder,
                **{name: encoding.get(name) for name in ("validation_share", "shuffle")},
                bad_documents=opened.manifest.bad_documents.to_fields(),
                corpora=[
                    TokenFile(name=source.path, bytes=source.size_bytes, sha256=source.sha256)
                    for source in opened.manifest.sources
                ],
                files=_files(opened),
            )

    def open_file(self, token_files_id: str, name: str) -> OpenTokenFile:
        """Open one file for a download."""
        with self._opened(token_files_id) as opened:
            files = {file.name: file for file in _files(opened)}
            if name not in files:
                raise TokenFileNotFoundError
            # This is safe: the manifest has only plain names, and `_OPEN` follows no symbolic link.
            try:
                descriptor = os.open(opened.folder / name, _OPEN)
            except OSError:
                raise FileNotFoundError(f"{name} cannot be opened") from None
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != files[name].bytes:
                os.close(descriptor)
                raise _damaged(f"{name} is no file of the size the manifest says")
            return OpenTokenFile(descriptor, status.st_size, files[name].sha256)

    def remove(self, token_files_id: str) -> None:
        """Remove token files; processes that have them open can still read them."""
        try:
            self.folder.remove(token_files_id)
        except FileNotFoundError:
            raise TokenFilesNotFoundError from None

    def require_free(self, token_files_id: str) -> None:
        """Raise TokenFilesExistError if token files have that id."""
        if self.folder.path(token_files_id).exists():
            raise TokenFilesExistError

    def require_room(self, n_bytes: int) -> None:
        """Raise TokenFilesQuotaError or DiskTooSmallError unless `n_bytes` more fit."""
        if self.max_bytes is not None:
            wanted = self.used_bytes() + n_bytes
            if wanted > self.max_bytes:
                raise TokenFilesQuotaError(self.max_bytes, wanted)
        free = shutil.disk_usage(self._artifacts_dir).free
        if n_bytes > free:
            raise DiskTooSmallError(free, n_bytes)

    def used_bytes(self) -> int:
        """Bytes of all token files, including those that jobs are writing."""
        return bytes_below(self.folder.root)

    @contextlib.contextmanager
    def _opened(self, token_files_id: str) -> Iterator[TokenFiles]:
        """Open token files, and translate errors of the block: token files that were removed
        meanwhile are not found, others are damaged."""
        path = self.folder.path(token_files_id)
        try:
            if not path.exists():
                raise TokenFilesNotFoundError
            yield TokenFiles.open(path)
        except (TokenFilesError, FileNotFoundError, IsADirectoryError) as error:
            if not path.exists():
                raise TokenFilesNotFoundError from None
            raise _damaged(str(error)) from None


def _summarise(
    made: type[_Summary], token_files_id: str, opened: TokenFiles, **more: object
) -> _Summary:
    manifest = opened.manifest
    plan = manifest.plan
    written_at = (opened.folder / MANIFEST_NAME).stat().st_mtime
    fields = {
        "id": token_files_id,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written_at)),
        "bytes": manifest.size_bytes,
        "layout": plan.layout_name,
        "dtype": plan.dtype,
        "tokenizer": TokenFilesTokenizer.model_validate(plan.tokenizer, from_attributes=True),
        "counts": dict(manifest.counts),
        "splits": {split.name: _describe_split(manifest, split) for split in manifest.splits},
    }
    return made.model_validate({**fields, **more})


def _describe_split(manifest: TokenManifest, split: SplitRecord) -> TokenFilesSplit:
    lost = split.lost or LostTokens()
    return TokenFilesSplit(
        documents=split.n_documents,
        tokens=split.n_tokens,
        text_bytes=split.n_bytes,
        bytes_per_token=round(manifest.bytes_per_token(split.name), 4),
        shards=len(split.shards),
        special_tokens_found=dict(split.special_tokens_found),
        loss_tokens=split.n_loss_tokens,
        documents_truncated=lost.n_cut,
        documents_dropped=lost.n_dropped,
        tokens_lost=lost.n_tokens,
        conversations_without_loss=lost.n_without_loss,
    )


def _files(opened: TokenFiles) -> list[TokenFile]:
    """The manifest and the files that it names."""
    data = (opened.folder / MANIFEST_NAME).read_bytes()
    itself = TokenFile(name=MANIFEST_NAME, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    named = opened.manifest.files().items()
    return [
        itself,
        *(
            TokenFile(name=name, bytes=record.size_bytes, sha256=record.sha256)
            for name, record in named
        ),
    ]


def _damaged(reason: str) -> TokenFilesDamagedError:
    log.error("token files were refused: %s", reason)
    return TokenFilesDamagedError(reason)
