"""Calls about corpora and token files: upload, list, remove, download.

An upload reads its source piece by piece. A download continues where an earlier one stopped, even
one of another process; a file appears once its sha256 is verified.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import httpx

from tokenizer_client.calls.exchange import (
    Flow,
    OnDisk,
    Read,
    Request,
    Wait,
    WholeResponse,
    connection_lost,
    get,
    open_response,
    path_of,
    read_whole,
    remove,
    require_same,
)
from tokenizer_client.calls.local_files import Given, PartialFile, Source, render_text, sha256_of
from tokenizer_client.calls.retries import Attempts, Repeat, Session
from tokenizer_client.errors import ClientError, ConnectionLostError, UnexpectedResponseError
from tokenizer_client.schemas.jobs import FILE_FORMATS, Corpus, CorpusList, FileFormat
from tokenizer_client.schemas.token_files import TokenFile, TokenFilesList, TokenFilesView

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called with the bytes done and the total bytes (None if unknown)."""

_MANIFEST: Final = "manifest.json"
_WRITE_BYTES: Final = 1 << 20


def upload_corpus(
    session: Session,
    corpus_id: str,
    source: Given[str | bytes],
    *,
    replace: bool = True,
    format: FileFormat | None = None,  # noqa: A002
    field: str | None = None,
    on_progress: Progress | None = None,
) -> Flow[Corpus]:
    """Upload text, JSON lines or Parquet of any size; the service stores all of it or nothing."""
    body = Source(source, render_text, on_progress=on_progress)
    headers = {"Content-Type": "application/octet-stream"}
    if body.size_bytes is not None:
        headers["Content-Length"] = str(
            body.size_bytes
        )  # so that the service can refuse a large upload immediately
    if not replace:
        headers["If-None-Match"] = "*"
    path = path_of("corpora", corpus_id)
    if format is None and isinstance(source, os.PathLike):
        name = os.fsdecode(source).lower()
        format = next((known for known in FILE_FORMATS if name.endswith(f".{known}")), None)  # noqa: A001
    given = {"format": format, "field": field}
    query = tuple((key, value) for key, value in given.items() if value is not None)
    request = Request("PUT", path, query, headers, body, is_duplex=True)
    deadline = session.deadline(None)  # an upload may take any time
    attempts = session.attempts(deadline, Repeat.ALWAYS if replace else Repeat.UNLESS_DONE)
    while True:
        try:
            head = yield from open_response(session, request, deadline)
            stored = WholeResponse(head.headers, (yield from read_whole(deadline))).parse(Corpus)
            require_same("id", stored.id, corpus_id)
            require_same("number of bytes", stored.bytes, body.n_bytes)
            return stored
        except ClientError as failed:
            error = failed
        if not body.is_repeatable:
            raise error
        yield Wait(attempts.wait_seconds(error))


def list_corpora(session: Session) -> Flow[CorpusList]:
    """The uploaded corpora, and their share of the quota."""
    return get(session, "/corpora", CorpusList)


def describe_corpus(session: Session, corpus_id: str) -> Flow[Corpus]:
    """One corpus: its size, its sha256 and its upload time."""
    found = yield from get(session, path_of("corpora", corpus_id), Corpus)
    require_same("id", found.id, corpus_id)
    return found


def remove_corpus(session: Session, corpus_id: str) -> Flow[None]:
    """Remove a corpus for good."""
    return remove(session, path_of("corpora", corpus_id))


def list_token_files(session: Session) -> Flow[TokenFilesList]:
    """All token files, and their size."""
    return get(session, "/token-files", TokenFilesList)


def describe_token_files(session: Session, token_files_id: str) -> Flow[TokenFilesView]:
    """Token files: their tokenizer, corpora, splits and each file."""
    found = yield from get(session, path_of("token-files", token_files_id), TokenFilesView)
    require_same("id", found.id, token_files_id)
    return found


def remove_token_files(session: Session, token_files_id: str) -> Flow[None]:
    """Remove token files for good."""
    return remove(session, path_of("token-files", token_files_id))


def download_token_files(
    session: Session,
    token_files_id: str,
    folder: os.PathLike[str] | str,
    *,
    on_progress: Progress | None = None,
) -> Flow[TokenFilesView]:
    """Download token files into `folder`; `tokenizer_core.corpus` opens it."""
    view = yield from describe_token_files(session, token_files_id)
    target = Path(folder)
    yield OnDisk(partial(target.mkdir, parents=True, exist_ok=True))
    n_before, n_total = 0, sum(file.bytes for file in view.files)
    for file in sorted(view.files, key=lambda file: file.name == _MANIFEST):
        if Path(file.name).name != file.name:
            raise UnexpectedResponseError("the token files name a file that is a path")

        def report(n_bytes: int, n_before: int = n_before) -> None:
            if on_progress is not None:
                on_progress(n_before + n_bytes, n_total)

        if not (yield OnDisk(partial(_is_there, target / file.name, file))):
            yield from _download(session, token_files_id, file, target / file.name, report)
        n_before += file.bytes
        report(0, n_before)
    return view


def _download(
    session: Session,
    token_files_id: str,
    wanted: TokenFile,
    path: Path,
    report: Callable[[int], object],
) -> Flow[None]:
    file: PartialFile = yield OnDisk(partial(PartialFile, path, resume=True))
    was_resumed = file.n_bytes > 0
    url = path_of("token-files", token_files_id, wanted.name)
    try:
        yield from _fetch(session, url, wanted, file, report)
        if file.sha256 != wanted.sha256 and was_resumed:
            file.restart()  # an earlier process was downloading another file of this name
            yield from _fetch(session, url, wanted, file, report)
        if file.sha256 != wanted.sha256:
            file.discard()
            raise UnexpectedResponseError(f"{wanted.name} arrived with a wrong sha256")
        yield OnDisk(file.publish)
    finally:
        file.close()


def _fetch(
    session: Session,
    url: str,
    wanted: TokenFile,
    file: PartialFile,
    report: Callable[[int], object],
) -> Flow[None]:
    """Append the missing bytes; each received piece resets the count of attempts."""
    deadline = session.deadline(None)
    attempts: Attempts = session.attempts(deadline)
    if file.n_bytes > wanted.bytes:
        file.restart()
    while file.n_bytes < wanted.bytes:
        headers = {}
        if file.n_bytes:
            headers = {"Range": f"bytes={file.n_bytes}-", "If-Range": f'"{wanted.sha256}"'}
        held = bytearray()
        try:
            head = yield from open_response(session, Request("GET", url, headers=headers), deadline)
            if head.status != 206:
                file.restart()
            while (piece := (yield Read())) is not None:
                held += piece
                attempts = session.attempts(deadline)
                if len(held) >= _WRITE_BYTES:
                    piece, held = held, bytearray()
                    yield OnDisk(partial(file.write, piece))
                    report(file.n_bytes)
            error: ClientError = ConnectionLostError("the response ended early", was_sent=True)
        except httpx.TransportError as failed:
            error = connection_lost(failed)
        except ClientError as failed:
            error = failed
        finally:
            file.write(held)
        if file.n_bytes < wanted.bytes:
            yield Wait(attempts.wait_seconds(error))


def _is_there(path: Path, wanted: TokenFile) -> bool:
    return (
        path.is_file() and path.stat().st_size == wanted.bytes and sha256_of(path) == wanted.sha256
    )
