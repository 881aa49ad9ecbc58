"""Writes the token files of `tokenizer corpus encode` to the disk, then uploads them to an address.

After a failed upload, `--resume` uploads the finished files without encoding them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizer_core.blobs.atomic_files import remove_folder
from tokenizer_core.corpus import TokenManifest, upload_token_files
from tokenizer_core.corpus.remote_token_files import default_cache_folder, require_free
from tokenizer_core.documents import corpus_file_identity
from tokenizer_core.errors import StorageError
from tokenizer_service.commands.command_line import CommandError, CommandParser
from tokenizer_service.commands.progress import follow, progress_bar


def add_temp_dir(parser: CommandParser) -> None:
    """Add `--temp-dir`."""
    parser.add(
        "--temp-dir FOLDER",
        "folder for unfinished token files of an address (default: below ~/.cache), and for "
        "unfinished shards (default: the system's)",
    )


def encode_and_upload(
    encode: Callable[[Path], TokenManifest],
    address: str,
    settings: object,
    *,
    find_uploaded: Callable[[], TokenManifest | None],
    files: Sequence[str],
    temp_dir: Path | None,
    resume: bool,
    quiet: bool,
) -> TokenManifest:
    """Write token files to a folder on the disk, upload them to the address, and remove the folder.

    The name of the folder is derived from the address and `settings`, which hold everything that
    affects the token files but the content of `files`, the corpus. So `resume` finds only token
    files of the same command: it uploads finished ones and continues unfinished ones. If there are
    none, it returns the manifest of uploaded ones that `find_uploaded` finds.

    Raises:
        CommandError: the upload failed; or finished token files exist, and `resume` is false or the
            corpus has changed since.
        TokenFilesError: the address holds other token files.
    """
    key = hashlib.sha256(repr((address, settings)).encode()).hexdigest()[:24]
    folder = (temp_dir or default_cache_folder().with_name("encoding")) / key
    versions = folder.with_suffix(".versions.json")
    found = json.dumps([corpus_file_identity(file) for file in files])
    if not folder.exists():
        if resume and (found_there := find_uploaded()) is not None:
            return found_there
        require_free(address)
        versions.parent.mkdir(parents=True, exist_ok=True)
        versions.write_text(found, encoding="utf-8")
        encode(folder)
    elif versions.exists() and versions.read_text(encoding="utf-8") != found:
        raise CommandError(
            f"the corpus has changed since an earlier run of this command wrote its token files to "
            f"{folder} and did not upload them; remove that folder to encode the corpus as it is "
            f"now"
        )
    elif not resume:
        raise CommandError(
            f"an earlier run of this command wrote its token files to {folder} and did not upload "
            f"them; give --resume to do that, or remove the folder"
        )
    try:
        with progress_bar(quiet=quiet, desc="uploading", leave=True) as bar:
            manifest = upload_token_files(folder, address, progress=follow(bar))
    except StorageError as error:
        raise CommandError(f"{error}. {_whole(folder)}") from error
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_whole(folder))
        raise
    remove_folder(folder)
    versions.unlink(missing_ok=True)
    return manifest


def _whole(folder: Path) -> str:
    return (
        f"the token files are complete in {folder}; the same command with --resume uploads them "
        f"without encoding again"
    )
