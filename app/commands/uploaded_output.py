"""Token files that `tokenizer corpus encode` is to write to an address: first here, then there.

Apart from the command because it is a promise of its own: an upload that fails costs no encoding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.commands.command_line import CommandError
from app.commands.progress import progress_bar
from tokenizer_core.blobs.atomic_files import remove_folder
from tokenizer_core.corpus import TokenManifest, upload_token_files
from tokenizer_core.corpus.remote_token_files import default_cache_folder, require_free
from tokenizer_core.errors import StorageError


def add_scratch(parser: Any) -> None:
    """Add `--scratch`."""
    parser.add_argument(
        "--scratch",
        type=Path,
        metavar="FOLDER",
        help="where token files for an address grow (default: a folder below ~/.cache), and what "
        "a run's workers are at (default: the system's)",
    )


def encode_and_upload(
    encode: Callable[[Path], TokenManifest],
    address: str,
    settings: object,
    *,
    scratch: Path | None,
    resume: bool,
    quiet: bool,
) -> TokenManifest:
    """Have token files written into a folder of the disk, put them to the address, and remove them.

    The folder is called by `settings`, all that decides what is written, and the address. So with
    `resume` what is there is of the same command: whole files are uploaded, others gone on with.

    Raises:
        CommandError: the upload failed; or whole files are there, and `resume` was not asked for.
        TokenFilesError: other token files are at the address.
    """
    key = hashlib.sha256(repr((address, settings)).encode()).hexdigest()[:24]
    folder = (scratch or default_cache_folder().with_name("encoding")) / key
    if not folder.exists():
        require_free(address)
        encode(folder)
    elif not resume:
        raise CommandError(
            f"an earlier run of this command wrote its token files to {folder} and did not upload "
            f"them; give --resume to do that, or remove the folder"
        )
    try:
        with progress_bar(quiet=quiet, desc="uploading", leave=True) as bar:

            def show(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            manifest = upload_token_files(folder, address, progress=show)
    except StorageError as error:
        raise CommandError(f"{error}. {_whole(folder)}") from error
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_whole(folder))
        raise
    remove_folder(folder)
    return manifest


def _whole(folder: Path) -> str:
    return (
        f"the token files are whole in {folder}; the same command with --resume uploads them, "
        f"without encoding again"
    )
