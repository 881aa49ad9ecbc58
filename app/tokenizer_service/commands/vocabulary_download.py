"""`tokenizer pull`: download the file of a preset, or the tokenizer of a model, into a cache.

Only the person at the command line chooses what is fetched and from where, so the list of hosts for
the URLs of clients (`tokenizer_service.egress`) does not apply. A proxy of the environment does.
"""

from __future__ import annotations

import argparse
import os
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, build_opener

from tokenizer_core.blobs.atomic_files import make_folder, read_whole_file, write_whole_file
from tokenizer_core.errors import FormatError
from tokenizer_core.presets import (
    PRESETS,
    PUBLISHED_AT,
    Preset,
    cached_paths,
    download_model_folder,
    own_cache_path,
)
from tokenizer_service.commands.command_line import CommandError, UsageError, add_command
from tokenizer_service.commands.progress import add_quiet, progress_bar

URL_VARIABLE: Final = "TOKENIZER_VOCABULARIES_URL"

_MAX_BYTES: Final = 8 << 20
"""The size cap of a download; the largest of these files, o200k_base, has 3.6 MB."""

_READ_BYTES: Final = 1 << 16
_PAUSE_SECONDS: Final = 30.0
_MOST_SECONDS: Final = 600.0


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    pull = add_command(
        subcommands,
        run_pull,
        description=(
            "Download the vocabulary file of a preset into the cache folder and check its sha256.\n"
            "Tokenizer.from_preset(NAME) and tokenizer import find it there. Presets:\n"
            f"{', '.join(PRESETS)}.\n"
            "A name with a slash is a model of the Hugging Face Hub: its tokenizer files are\n"
            "downloaded (extra hub; HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE apply)."
        ),
        epilog=(
            f"{URL_VARIABLE} names another folder to download from, for instance a mirror\n"
            "(default: the address that tiktoken uses). HTTPS_PROXY and SSL_CERT_FILE apply.\n\n"
            "examples:\n"
            "  tokenizer pull cl100k_base\n"
            "  tokenizer import --preset cl100k_base --name cl100k\n"
            "  tokenizer import $(tokenizer pull Qwen/Qwen3-8B) --name qwen3"
        ),
    )
    pull.add("names PRESET", "a preset, or a model as owner/name", nargs="+")
    pull.add("--revision REVISION", "branch, tag or commit of the models (default: main)")
    add_quiet(pull)


def run_pull(arguments: argparse.Namespace) -> None:
    """Download each file that the cache folder lacks, and print its path."""
    names = list(dict.fromkeys(arguments.names))
    presets = [name for name in names if "/" not in name]
    for name in presets:
        if name not in PRESETS:
            raise UsageError(
                f"there is no preset {name!r:.80} ({', '.join(PRESETS)}); a model is owner/name"
            )
    if presets and arguments.revision is not None:
        raise UsageError("--revision belongs to models; a preset has one version")
    for name in names:
        if name not in presets:
            print(download_model_folder(name, arguments.revision))
            continue
        preset = PRESETS[name]
        if there := [path for path in cached_paths(preset) if _is_complete(path, preset)]:
            print(there[0])  # alone, for `tokenizer import $(tokenizer pull ...)`
            continue
        path = own_cache_path(preset)
        data = _download(_url_of(preset), quiet=arguments.quiet)
        if not preset.matches(data):
            raise CommandError(
                f"what {_url_of(preset)} gave is not {preset.file_name} as published (sha256 "
                f"{preset.sha256}); nothing was kept. Check {URL_VARIABLE} and the proxy"
            )
        make_folder(path.parent, mode=0o700)
        write_whole_file(path, data)
        print(path)


def _is_complete(path: Path, preset: Preset) -> bool:
    try:
        return preset.matches(read_whole_file(path, max_bytes=_MAX_BYTES))
    except (OSError, FormatError):
        return False  # write_whole_file replaces it, or says why it cannot


def _url_of(preset: Preset) -> str:
    base = os.environ.get(URL_VARIABLE) or PUBLISHED_AT
    if not base.startswith(("http://", "https://")):
        raise UsageError(f"{URL_VARIABLE} must begin with https:// or http://")
    return f"{base.rstrip('/')}/{preset.file_name}"


class _RefuseRedirects(HTTPRedirectHandler):
    """Makes every redirect an `HTTPError`."""

    def redirect_request(self, *_: object) -> None:
        return None


def _download(url: str, *, quiet: bool) -> bytes:
    """The body at `url`, within the limits of size and time."""
    data = bytearray()
    deadline = time.monotonic() + _MOST_SECONDS
    try:
        with (
            build_opener(_RefuseRedirects).open(url, timeout=_PAUSE_SECONDS) as response,
            progress_bar(quiet=quiet, desc=url.rpartition("/")[2]) as bar,
        ):
            bar.total = response.length
            while part := response.read1(_READ_BYTES):
                data += part
                bar.update(len(part))
                if len(data) > _MAX_BYTES:
                    raise CommandError(
                        f"{url} gives more than {_MAX_BYTES} bytes, so it is not a vocabulary; "
                        f"check {URL_VARIABLE}"
                    )
                if time.monotonic() > deadline:
                    raise CommandError(
                        f"{url} took more than {_MOST_SECONDS:.0f} s; try again, or name a mirror "
                        f"in {URL_VARIABLE}"
                    )
    except HTTPError as error:
        raise CommandError(
            f"{url} gave status {error.code} instead of 200; check {URL_VARIABLE}"
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        raise CommandError(
            f"{url} could not be fetched ({type(error).__name__}: {error}); check the network, the "
            f"proxy, or name a mirror in {URL_VARIABLE}. Without a network, copy the file from "
            f"another machine and pass it to tokenizer import"
        ) from error
    return bytes(data)
