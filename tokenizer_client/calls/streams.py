"""Calls that stream a text of any length to its ids, and ids to their text.

The response arrives in frames while the client sends the body. A call raises unless the last frame
arrives and matches the frames before it. After a failure the call starts again only if it has
yielded nothing yet and can read its source from the beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

import httpx
import numpy as np

from tokenizer_client.calls.exchange import (
    OCTETS,
    Emit,
    Emitting,
    Flow,
    Head,
    OnDisk,
    Read,
    Request,
    Step,
    Wait,
    consume,
    open_response,
    require_media_type,
)
from tokenizer_client.calls.local_files import Given, PartialFile, Source, render_text
from tokenizer_client.calls.retries import Session
from tokenizer_client.calls.text import DecodeOptions, SpecialOptions, query_of
from tokenizer_client.calls.wire_formats import (
    DTYPES,
    FrameReader,
    IdArray,
    Ids,
    Width,
    parse_id_bytes,
    render_ids,
)
from tokenizer_client.errors import ClientError, StreamCutOffError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """Summary of the file that `encode_file` wrote, with the digest of the tokenizer."""

    n_tokens: int
    n_text_bytes: int
    digest: str


def encode_stream(
    session: Session, source: Given[str | bytes], **options: Unpack[SpecialOptions]
) -> Emitting[IdArray]:
    """The ids of a text of any length, in arrays (n,) uint32, as they arrive."""
    yield from _encode(session, Source(source, render_text), options)


def decode_stream(
    session: Session,
    source: Given[Ids | bytes],
    *,
    width: Width = "u32",
    **options: Unpack[DecodeOptions],
) -> Emitting[str]:
    """The text of any number of ids, in parts that never end inside a character."""
    body = Source(source, partial(_render_item, width=width))
    request = Request(
        "POST",
        "/decode_stream",
        query_of(session, options),
        {"Content-Type": f"{OCTETS}; dtype={width}", "Accept": OCTETS, **session.pin_headers},
        body,
        is_duplex=True,
    )
    end = yield from _stream(session, request, body, bytes.decode)
    end.check(n_ids=body.n_bytes // DTYPES[width].itemsize, n_text_bytes=end.n_payload_bytes)


def encode_file(
    session: Session,
    source: Given[str | bytes],
    output: os.PathLike[str] | str,
    *,
    width: Width = "u32",
    **options: Unpack[SpecialOptions],
) -> Flow[EncodedFile]:
    """Write the ids of a text of any length to a file, raw and little-endian."""
    body = Source(source, render_text)  # first: a source that cannot be read leaves no file
    file: PartialFile = yield OnDisk(partial(PartialFile, Path(output)))

    def write(ids: IdArray) -> None:
        file.write(render_ids(ids, width))

    try:
        end = yield from consume(_encode(session, body, options), write, on_disk=True)
        yield OnDisk(file.publish)
    except BaseException:
        file.discard()
        raise
    return EncodedFile(end.n_payload_bytes // 4, body.n_bytes, end.digest)


@dataclass(frozen=True, slots=True)
class _End:
    """The last record of a stream, and the bytes before it."""

    record: dict[str, Any]
    n_payload_bytes: int
    digest: str

    def check(self, *, n_ids: int, n_text_bytes: int) -> None:
        reported = (self.record.get("count"), self.record.get("bytes"), self.record.get("digest"))
        if reported != (n_ids, n_text_bytes, self.digest):
            raise StreamCutOffError(
                f"the last record of the stream does not agree with its {n_ids} ids and "
                f"{n_text_bytes} bytes of text, or names another tokenizer"
            )


def _encode(
    session: Session, body: Source, options: SpecialOptions
) -> Generator[Step | Emit[IdArray], Any, _End]:
    request = Request(
        "POST",
        "/encode_stream",
        query_of(session, options),
        {
            "Content-Type": "text/plain; charset=utf-8",
            "Accept": OCTETS,
            **session.pin_headers,
        },
        body,
        is_duplex=True,
    )
    end = yield from _stream(session, request, body, _parse_payload)
    end.check(n_ids=end.n_payload_bytes // 4, n_text_bytes=body.n_bytes)
    return end


def _stream(
    session: Session, request: Request, body: Source, parse: Callable[[bytes], T]
) -> Generator[Step | Emit[T], Any, _End]:
    head = yield from _begin(session, request, body)
    frames, n_bytes = FrameReader(), 0
    try:
        while (piece := (yield Read())) is not None:
            if payload := frames.feed(piece):
                n_bytes += len(payload)
                yield Emit(parse(payload))
    except httpx.TransportError as error:
        raise StreamCutOffError(
            f"the stream was cut off ({type(error).__name__}); its parts so far are not all"
        ) from error
    return _End(frames.finish(), n_bytes, head.headers.get("tokenizer-digest", ""))


def _begin(session: Session, request: Request, body: Source) -> Flow[Head]:
    """Return the head of the response; retries only before the head has arrived."""
    deadline = session.deadline(None)  # a stream may take any time
    attempts = session.attempts(deadline)
    while True:
        try:
            head = yield from open_response(session, request, deadline)
            require_media_type(head.headers, OCTETS)
            return head
        except ClientError as failed:
            error = failed
        if not body.is_repeatable:
            raise error
        yield Wait(attempts.wait_seconds(error))


def _parse_payload(payload: bytes) -> IdArray:
    return parse_id_bytes(bytearray(payload))


def _render_item(item: Ids | bytes, width: Width) -> bytes:
    if isinstance(item, int | np.integer):
        raise TypeError("decode_stream() takes an iterable of lists of ids; give [ids] for one")
    return item if isinstance(item, bytes) else render_ids(item, width)
