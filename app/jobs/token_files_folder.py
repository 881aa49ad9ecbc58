"""Where the token files of encoding jobs stand, and how they get there.

    <artifacts>/token-files/<id>/                 whole: a folder of token files, and nothing else
    <artifacts>/token-files/.unfinished/<job>/    whole, but nobody has allowed it to be published
    <artifacts>/token-files/.unfinished/.<job>.partial/    what a job has written so far
    <artifacts>/token-files/.unfinished/.<job>.json        the manifest of what it publishes

It stands alone because the child writes there and the server reads and clears away. What is below
`.unfinished` is a job's own, under its id, so that a job that lost its place can spoil nobody's
files; and where it was taken over from another host, whose process may still write, under the id
and the number of that takeover (`<job>.1`). Knows no database and no web framework.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.jobs.folder import is_job_id
from tokenizer_core.blobs.atomic_files import make_folder, remove_folder, sync_folder
from tokenizer_core.errors import TokenFilesError
from tokenizer_core.registry.versions import NAME

_UNFINISHED: Final = ".unfinished"
_TAKEN: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})


class TokenFilesTakenError(TokenFilesError):
    """There are other token files of that id."""

    code = "token_files_exist"


@dataclass(frozen=True, slots=True)
class TokenFilesFolder:
    """The folder `root` of all token files; made when the first are published."""

    root: Path

    @classmethod
    def of(cls, artifacts_dir: Path) -> TokenFilesFolder:
        """That of an artifacts folder."""
        return cls(artifacts_dir.absolute() / "token-files")

    def place(self, token_files_id: str) -> Path:
        """Where token files stand once they are published.

        Raises:
            ValueError: no token files can have that id.
        """
        if not NAME.fullmatch(token_files_id):
            raise ValueError("not an id of token files")
        return self.root / token_files_id

    def growing(self, job_id: str, takeovers: int = 0) -> Path:
        """Where a job lets its token files grow, on the same volume.

        Raises:
            ValueError: `job_id` has not the form of one.
        """
        if not is_job_id(job_id):
            raise ValueError("not a job id")
        return self.root / _UNFINISHED / (f"{job_id}.{takeovers}" if takeovers else job_id)

    def note(self, growing: Path) -> Path:
        """Where a job keeps the manifest of what it publishes of `growing`."""
        return growing.with_name(f".{growing.name}.json")

    def notes(self, job_id: str) -> list[bytes]:
        """The manifests of all that a job, or whoever had it before, was about to publish."""
        found = []
        for name in self.left_over():
            if _job_of(name) == job_id and name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError):
                    found.append((self.root / _UNFINISHED / name).read_bytes())
        return found

    def names(self) -> list[str]:
        """The ids of all that are there, in order."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root) as entries:
            return sorted(entry.name for entry in entries if NAME.fullmatch(entry.name))
        return []

    def publish(self, growing: Path, token_files_id: str) -> None:
        """Give what a job has finished, at `growing`, its place.

        Raises:
            TokenFilesTakenError: there is something of that id.
            OSError: the disk refuses.
        """
        place = self.place(token_files_id)
        try:
            growing.rename(place)
        except OSError as error:
            if error.errno in _TAKEN:
                raise TokenFilesTakenError(
                    "token files of this id have come up meanwhile; remove them with DELETE "
                    "/token-files/{id}, or name others in token_files_id, and post the request "
                    "again"
                ) from None
            raise
        sync_folder(self.root)

    def drop(self, job_id: str) -> None:
        """Remove all that a job has not published; does nothing where there is nothing."""
        for name in self.left_over():
            if _job_of(name) == job_id:
                self._remove_left_over(name)  # as far as possible; `sweep` comes back to it

    def remove(self, token_files_id: str) -> None:
        """Remove token files for good: gone at once, then cleared away. Who has a file open, or
        mapped, goes on reading it.

        Raises:
            FileNotFoundError: there are none.
            OSError: the disk refuses.
        """
        aside = self.root / _UNFINISHED / f"removed-{secrets.token_hex(8)}"
        make_folder(aside.parent)
        self.place(token_files_id).rename(aside)
        sync_folder(self.root)
        remove_folder(aside)

    def left_over(self) -> list[str]:
        """The names below `.unfinished`, for `sweep`."""
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(self.root / _UNFINISHED)  # noqa: PTH208
        return []

    def sweep(self, names: list[str], kept_jobs: set[str]) -> None:
        """Remove those of `names` that belong to none of `kept_jobs`."""
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
    """The job that a name below `.unfinished` belongs to."""
    return name.lstrip(".").partition(".")[0]
