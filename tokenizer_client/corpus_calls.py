"""Calls about corpora and token files: upload, list, remove, download.

An upload is read piece by piece; a download goes on where it was, also in another process, and is
there when its sha256 is right.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import httpx

from tokenizer_client.errors import ClientError, ConnectionLostError, UnexpectedAnswerError
from tokenizer_client.exchanges import (
    get,
    lost,
    open_answer,
    parse_json,
    path_of,
    read_whole,
    remove,
)
from tokenizer_client.partial_file import PartialFile, sha256_of
from tokenizer_client.retries import Attempts, Repeat, Session
from tokenizer_client.schemas.jobs import Corpus, CorpusList
from tokenizer_client.schemas.token_files import TokenFile, TokenFilesList, TokenFilesView
from tokenizer_client.sources import Given, Source, render_text
from tokenizer_client.steps import Flow, OnDisk, Read, Request, Wait

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called with the bytes that are done, and how many there are, where that is known."""

_MANIFEST: Final = "manifest.json"
_WRITE_BYTES: Final = 1 << 20


def upload_corpus(
    session: Session,
    corpus_id: str,
    source: Given[str | bytes],
    *,
    replace: bool = True,
    on_progress: Progress | None = None,
) -> Flow[Corpus]:
    """Upload a UTF-8 text of any size; it is there whole, or not at all.

    `source` is as in `encode_stream`. One that can be read again is sent again after a lost
    connection. With `replace=False` a corpus that is there stays.

    Raises:
        PreconditionFailedError: `replace=False`, and there is one.
        TooLargeError, InvalidRequestError: over the quota; not UTF-8, with the place.
    """
    body = Source(source, render_text, on_progress=on_progress)
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    if body.size_bytes is not None:
        headers["Content-Length"] = str(body.size_bytes)  # too much is refused at once
    if not replace:
        headers["If-None-Match"] = "*"
    path = path_of("corpora", corpus_id)
    request = Request("PUT", path, headers=headers, body=body, is_two_way=True)
    deadline = session.deadline(None)  # an upload takes as long as it takes
    attempts = session.attempts(deadline, Repeat.ALWAYS if replace else Repeat.UNLESS_DONE)
    while True:
        try:
            yield from open_answer(session, request, deadline)
            return parse_json((yield from read_whole(deadline)), Corpus)
        except ClientError as failed:
            error = failed
        if not body.is_repeatable:
            raise error
        yield Wait(attempts.wait_seconds(error))


def list_corpora(session: Session) -> Flow[CorpusList]:
    """The uploaded corpora, and what they take of the quota."""
    return get(session, "/corpora", CorpusList)


def describe_corpus(session: Session, corpus_id: str) -> Flow[Corpus]:
    """One corpus: its size, its sha256, when it came."""
    return get(session, path_of("corpora", corpus_id), Corpus)


def remove_corpus(session: Session, corpus_id: str) -> Flow[None]:
    """Remove a corpus for good.

    Raises:
        ConflictError: a job that has not ended names it.
    """
    return remove(session, path_of("corpora", corpus_id))


def list_token_files(session: Session) -> Flow[TokenFilesList]:
    """All token files, and what they take."""
    return get(session, "/token-files", TokenFilesList)


def describe_token_files(session: Session, token_files_id: str) -> Flow[TokenFilesView]:
    """What token files are: of which tokenizer and corpora, their splits, each file."""
    return get(session, path_of("token-files", token_files_id), TokenFilesView)


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
    """Download token files into `folder`, which `tokenizer_core.corpus` then opens.

    What is there already is not downloaded again, and what was broken off goes on. The manifest
    comes last: where it is, all is.

    Raises:
        UnexpectedAnswerError: a file has another sha256 than the service says.
    """
    view = yield from describe_token_files(session, token_files_id)
    target = Path(folder)
    yield OnDisk(partial(target.mkdir, parents=True, exist_ok=True))
    n_before, n_total = 0, sum(file.bytes for file in view.files)
    for file in sorted(view.files, key=lambda file: file.name == _MANIFEST):
        if Path(file.name).name != file.name:
            raise UnexpectedAnswerError("token files have a file whose name is a path")

        def tell(n_bytes: int, n_before: int = n_before) -> None:
            if on_progress is not None:
                on_progress(n_before + n_bytes, n_total)

        if not (yield OnDisk(partial(_is_there, target / file.name, file))):
            yield from _download(session, token_files_id, file, target / file.name, tell)
        n_before += file.bytes
        tell(0, n_before)
    return view


def _download(
    session: Session,
    token_files_id: str,
    wanted: TokenFile,
    path: Path,
    tell: Callable[[int], object],
) -> Flow[None]:
    file: PartialFile = yield OnDisk(partial(PartialFile, path, resume=True))
    was_resumed = file.n_bytes > 0
    url = path_of("token-files", token_files_id, wanted.name)
    try:
        yield from _fetch(session, url, wanted, file, tell)
        if file.sha256 != wanted.sha256 and was_resumed:
            file.restart()  # what an earlier process left was of something else
            yield from _fetch(session, url, wanted, file, tell)
        if file.sha256 != wanted.sha256:
            file.discard()
            raise UnexpectedAnswerError(f"{wanted.name} came with another sha256 than it should")
        yield OnDisk(file.publish)
    finally:
        file.close()


def _fetch(
    session: Session, url: str, wanted: TokenFile, file: PartialFile, tell: Callable[[int], object]
) -> Flow[None]:
    """Append what is missing; every piece that comes gives all attempts again."""
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
            head = yield from open_answer(session, Request("GET", url, headers=headers), deadline)
            if head.status != 206:
                file.restart()
            while (piece := (yield Read())) is not None:
                held += piece
                attempts = session.attempts(deadline)
                if len(held) >= _WRITE_BYTES:
                    piece, held = held, bytearray()
                    yield OnDisk(partial(file.write, piece))
                    tell(file.n_bytes)
            error: ClientError = ConnectionLostError("the answer ended early", was_sent=True)
        except httpx.TransportError as failed:
            error = lost(failed)
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
