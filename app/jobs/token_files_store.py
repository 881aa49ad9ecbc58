"""The token files that encoding jobs have published, as the routes ask for them.

It stands alone because a child writes them and trainers beside the service read them where they
lie: here they are listed, described, opened for a download, removed, and kept within a quota. What
a manifest does not name is never given out, whatever stands in the folder. Every call blocks: use a
thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from app.jobs.errors import (
    DiskTooSmallError,
    TokenFileNotFoundError,
    TokenFilesDamagedError,
    TokenFilesExistError,
    TokenFilesNotFoundError,
    TokenFilesQuotaError,
)
from app.jobs.token_files_folder import TokenFilesFolder
from tokenizer_client.schemas.token_files import (
    TokenFile,
    TokenFilesSplit,
    TokenFilesSummary,
    TokenFilesTokenizer,
    TokenFilesView,
)
from tokenizer_core.corpus import TokenFiles
from tokenizer_core.corpus.token_manifest import MANIFEST_NAME
from tokenizer_core.errors import TokenFilesError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tokenizer_core.corpus import SplitRecord, TokenManifest

log = logging.getLogger("app.jobs")

_Summary = TypeVar("_Summary", bound=TokenFilesSummary)

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class OpenTokenFile:
    """A file that is held open for a download; whoever has it closes `descriptor`."""

    descriptor: int
    n_bytes: int
    sha256: str


class TokenFilesStore:
    """The token files below `artifacts_dir`. `max_bytes`: of all together, None for no bound."""

    def __init__(self, artifacts_dir: Path, max_bytes: int | None) -> None:
        self._artifacts_dir, self.max_bytes = artifacts_dir, max_bytes
        self._folder = TokenFilesFolder.of(artifacts_dir)

    def all(self) -> list[TokenFilesSummary]:
        """All token files, by id; those that cannot be read are left out and logged."""
        found = []
        for token_files_id in self._folder.names():
            try:
                with self._opened(token_files_id) as opened:
                    found.append(_summarise(TokenFilesSummary, token_files_id, opened))
            except TokenFilesNotFoundError:
                continue  # removed meanwhile
            except TokenFilesDamagedError as error:
                log.warning("the token files %s are damaged: %s", token_files_id, error)
        return found

    def describe(self, token_files_id: str) -> TokenFilesView:
        """What the manifest says of token files.

        Raises:
            TokenFilesNotFoundError, TokenFilesDamagedError
        """
        with self._opened(token_files_id) as opened:
            plan = opened.manifest.plan
            return _summarise(
                TokenFilesView,
                token_files_id,
                opened,
                tokens_per_shard=plan.tokens_per_shard,
                begin_of_document_id=plan.begin_of_document_id,
                end_of_document_id=plan.end_of_document_id,
                seed=plan.seed,
                corpora=[
                    TokenFile(name=source.path, bytes=source.size_bytes, sha256=source.sha256)
                    for source in opened.manifest.sources
                ],
                files=_files(opened),
            )

    def open_file(self, token_files_id: str, name: str) -> OpenTokenFile:
        """One file, held open.

        Raises:
            TokenFilesNotFoundError, TokenFilesDamagedError
            TokenFileNotFoundError: the token files have no such file.
        """
        with self._opened(token_files_id) as opened:
            files = {file.name: file for file in _files(opened)}
            if name not in files:
                raise TokenFileNotFoundError
            # The name is one of the manifest's: a plain one. A link in its place is not followed.
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
        """Remove token files for good; who reads them goes on.

        Raises:
            TokenFilesNotFoundError
            OSError: the disk refuses.
        """
        try:
            self._folder.remove(token_files_id)
        except FileNotFoundError:
            raise TokenFilesNotFoundError from None

    def require_free(self, token_files_id: str) -> None:
        """Raise TokenFilesExistError where token files have that id."""
        if self._folder.place(token_files_id).exists():
            raise TokenFilesExistError

    def require_room(self, n_bytes: int) -> None:
        """Check that `n_bytes` more fit.

        Raises:
            TokenFilesQuotaError: they would be over the quota.
            DiskTooSmallError: the disk has not so many bytes free.
            OSError: the disk cannot be asked.
        """
        if self.max_bytes is not None:
            wanted = self.used_bytes() + n_bytes
            if wanted > self.max_bytes:
                raise TokenFilesQuotaError(self.max_bytes, wanted)
        free = shutil.disk_usage(self._artifacts_dir).free
        if n_bytes > free:
            raise DiskTooSmallError(free, n_bytes)

    def used_bytes(self) -> int:
        """What all token files take, with what jobs are writing."""
        used = 0
        for folder, _, names in os.walk(self._folder.root):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # one that goes meanwhile
                    used += (Path(folder) / name).stat(follow_symlinks=False).st_size
        return used

    def left_over(self) -> list[str]:
        """What `sweep` is to look at, asked before the jobs are: what a new one writes is not in
        it."""
        return self._folder.left_over()

    def sweep(self, names: list[str], unfinished_jobs: Collection[str]) -> None:
        """Remove what killed processes have left and no job will come back to."""
        self._folder.sweep(names, set(unfinished_jobs))

    @contextlib.contextmanager
    def _opened(self, token_files_id: str) -> Iterator[TokenFiles]:
        """Token files for as long as something is read of them; also inside, what was removed
        meanwhile is not found rather than damaged."""
        place = self._folder.place(token_files_id)
        try:
            if not place.exists():
                raise TokenFilesNotFoundError
            yield TokenFiles.open(place)
        except (TokenFilesError, FileNotFoundError, IsADirectoryError) as error:
            if not place.exists():
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
        "bytes": _total_bytes(manifest),
        "layout": plan.layout_name,
        "dtype": plan.dtype,
        "tokenizer": TokenFilesTokenizer(
            name=plan.tokenizer.name,
            version=plan.tokenizer.version,
            fingerprint=plan.tokenizer.fingerprint,
            vocab_size=plan.tokenizer.vocab_size,
            largest_id=plan.tokenizer.largest_id,
        ),
        "splits": {split.name: _describe_split(split) for split in manifest.splits},
    }
    return made.model_validate({**fields, **more})


def _describe_split(split: SplitRecord) -> TokenFilesSplit:
    return TokenFilesSplit(
        documents=split.n_documents,
        tokens=split.n_tokens,
        text_bytes=split.n_bytes,
        bytes_per_token=round(split.n_bytes / split.n_tokens, 4),
        shards=len(split.shards),
        special_tokens_found=dict(split.special_tokens_found),
    )


def _total_bytes(manifest: TokenManifest) -> int:
    return sum(record.size_bytes for record in manifest.files().values())


def _files(opened: TokenFiles) -> list[TokenFile]:
    """The files that the manifest names, and itself, which nothing names."""
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
