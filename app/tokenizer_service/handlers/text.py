"""Other operations on a text: /count, /truncate, /chunk, /verify and /align."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tokenizer_client.schemas.text import (
    AlignRequest,
    ChunkRequest,
    CountRequest,
    TruncateRequest,
    VerifyRequest,
)
from tokenizer_client.schemas.tokens import MAX_BATCH_ITEMS
from tokenizer_core import TextPart, truncate_text
from tokenizer_core.engines import COUNT
from tokenizer_core.text.alignment import align_spans
from tokenizer_core.text.round_trips import check_text
from tokenizer_core.text.truncate_and_chunk import TextChunks
from tokenizer_service.access.errors import ChunksTooLargeError, TooManyChunksError
from tokenizer_service.access.limits import repeat_limit
from tokenizer_service.access.work_queue import check_not_abandoned, reserve_memory
from tokenizer_service.handlers.encode import encode_all, n_bytes_of, policy_of, sources_of
from tokenizer_service.responses.decode import check_decoded_size
from tokenizer_service.responses.errors import refused_text
from tokenizer_service.responses.json_values import (
    Rendered,
    dump_with_identity,
    escaped_length,
    render_ids,
    render_text,
    utf8_length,
)
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_ALIGN_BYTES_PER_TOKEN: Final = 100
"""Of memory, with ids and offsets, measured."""


def count(request: CountRequest, live: LiveTokenizer) -> Rendered:
    """Count the tokens of the text, the segments or the texts of `request`.

    Engines count different distances past the limit, so the response never contains that count.
    """
    policy = policy_of(request, live)
    is_batch, limit = isinstance(request.text, list), request.limit
    counts, exceeded, n_tokens, n_bytes = [], [], 0, 0
    for pointer, source in sources_of(request.text, request.segments):
        check_not_abandoned()
        try:
            n_found = live.tokenizer.encode_source(source, policy, COUNT._replace(limit=limit))
        except ValueError as error:
            raise refused_text(error, pointer) from None
        is_exceeded = limit is not None and n_found > limit
        counts.append(limit if is_exceeded else n_found)
        exceeded.append(is_exceeded)
        if not is_exceeded:
            n_tokens += n_found
            n_bytes += n_bytes_of(source)
    fields = {
        "count": counts if is_batch else counts[0],
        "limit_exceeded": exceeded if is_batch else exceeded[0],
    }
    return Rendered(dump_with_identity(fields, live), n_tokens, n_bytes)


def truncate(request: TruncateRequest, live: LiveTokenizer) -> Rendered:
    """Cut the text of `request` at its limit."""
    policy = policy_of(request, live)
    try:
        part = truncate_text(
            live.tokenizer, request.text, request.max_tokens, side=request.side, **policy.options
        )
    except ValueError as error:
        raise refused_text(error, "/text") from None
    is_truncated = len(part.text) < len(request.text)
    chunks = [
        b'{"text":',
        *render_text(part.text),
        b',"tokens":',
        *render_ids(part.ids),
        b',"count":%d,"truncated":%b' % (len(part.ids), b"true" if is_truncated else b"false"),
        b',"tokenizer":%b}' % live.identity_json,
    ]
    return Rendered(chunks, len(part.ids), utf8_length(part.text))


def chunk(request: ChunkRequest, live: LiveTokenizer, *, max_bytes: int) -> Rendered:
    """Cut the text of `request` into chunks."""
    policy = policy_of(request, live)
    max_bytes = repeat_limit(utf8_length(request.text), max_bytes)
    rendered: list[bytes] = []
    n_chunks = n_tokens = n_bytes = n_repeated = covered = 0
    try:
        parts = TextChunks(
            live.tokenizer,
            request.text,
            request.max_tokens,
            overlap_tokens=request.overlap_tokens,
            **policy.options,
        )
        bytes_per_byte = _check_plan(parts, request, max_bytes)
        for part, start, end in _with_offsets(iter(parts), request.offset_unit):
            check_not_abandoned()
            n_chunks += 1
            n_tokens += len(part.ids)
            n_bytes += utf8_length(part.text)
            n_repeated += covered - part.start
            covered = part.end
            _check_chunks(n_chunks)
            if n_repeated * bytes_per_byte > max_bytes:  # the plan may have ended early
                raise _too_large(parts, request, max_bytes, bytes_per_byte)
            rendered += [
                b',{"text":' if n_chunks > 1 else b'{"text":',
                *render_text(part.text),
                b',"tokens":',
                *render_ids(part.ids),
                b',"start":%d,"end":%d}' % (start, end),
            ]
    except ValueError as error:
        raise refused_text(error, "/text") from None
    chunks = [b'{"chunks":[', *rendered, b'],"tokenizer":%b}' % live.identity_json]
    return Rendered(chunks, n_tokens, n_bytes)


def verify(request: VerifyRequest, live: LiveTokenizer, *, max_decoded_bytes: int) -> Rendered:
    """Check that the text or the ids of `request` survive a round trip."""
    policy, is_lossy = policy_of(request, live), False
    try:
        if request.tokens is None:
            text = request.text or ""
            difference, is_lossy = check_text(live.tokenizer, text, **policy.options)
        else:
            check_decoded_size([(request.tokens, "/tokens")], live, max_decoded_bytes)
            difference = live.tokenizer.first_drift(request.tokens, **policy.options)
    except ValueError as error:
        pointer = "/text" if request.tokens is None else "/tokens"
        raise refused_text(error, pointer) from None
    fields = {"ok": difference is None, "first_difference": difference, "lossy": is_lossy}
    return Rendered(dump_with_identity(fields, live), 0, 0)  # no ids left the service


def align(
    request: AlignRequest, live: LiveTokenizer, *, find: Callable[[str], LiveTokenizer]
) -> Rendered:
    """Align the tokens of the text of `request` with those of the other tokenizer, which `find`
    returns.
    """
    other = find(request.other)
    [one], [its] = (
        encode_all(
            [("/text", request.text)], each, policy_of(request, each), is_detailed=True, unit="byte"
        )
        for each in (live, other)
    )
    reserve_memory(_ALIGN_BYTES_PER_TOKEN * (len(one.ids) + len(its.ids)))
    offsets, its_offsets, byte_offsets = align_spans(one.offsets, its.offsets, one.n_bytes)
    chunks = [
        b'{"tokens":',
        *render_ids(one.ids),
        b',"other_tokens":',
        *render_ids(its.ids),
        b',"offsets":',
        *render_ids(offsets),
        b',"other_offsets":',
        *render_ids(its_offsets),
        b',"byte_offsets":',
        *render_ids(byte_offsets),
        b',"tokenizer":%b,"other":%b}' % (live.identity_json, other.identity_json),
    ]
    return Rendered(chunks, len(one.ids) + len(its.ids), one.n_bytes)


def _with_offsets(parts: Iterator[TextPart], unit: str) -> Iterator[tuple[TextPart, int, int]]:
    """Each part with its start and end in `unit`."""
    before: TextPart | None = None
    start = 0
    for part in parts:
        if unit == "byte":
            yield part, part.start, part.end
            continue
        if before is not None:
            start += len(before.text.encode()[: part.start - before.start].decode())
        yield part, start, start + len(part.text)
        before = part


def _check_plan(parts: TextChunks, request: ChunkRequest, max_bytes: int) -> float:
    """Refuse too many chunks and too much overlap; else reserve the response's memory. Returns how
    many bytes the response has for each byte of a chunk."""
    n_id_bytes = 2 * len(parts.ids)  # one digit and a comma
    for power in range(1, 10):
        n_id_bytes += int(np.count_nonzero(parts.ids >= 10**power))
    n_text_bytes = utf8_length(request.text)
    n_bytes = escaped_length(request.text) + n_id_bytes
    bytes_per_byte = n_bytes / n_text_bytes if n_text_bytes else 1.0
    n_repeated = _count_repeated(parts.plan(), max_bytes / bytes_per_byte)
    if n_repeated * bytes_per_byte > max_bytes:
        raise _too_large(parts, request, max_bytes, bytes_per_byte)
    reserve_memory(int((n_text_bytes + n_repeated) * bytes_per_byte))
    return bytes_per_byte


def _count_repeated(plan: Iterator[tuple[int, int]], most: float) -> int:
    """The bytes that the chunks of a plan repeat, of which only `most` and some are counted."""
    n_repeated = covered = 0
    for n_chunks, (start, end) in enumerate(plan, 1):
        check_not_abandoned()
        _check_chunks(n_chunks)
        n_repeated += covered - start
        covered = end
        if n_repeated > most:
            break
    return n_repeated


def _too_large(
    parts: TextChunks, request: ChunkRequest, max_bytes: int, bytes_per_byte: float
) -> ChunksTooLargeError:
    """The error, with the largest overlap whose plan fits."""
    n_tokens, max_tokens = len(parts.ids), request.max_tokens
    bytes_per_token = utf8_length(request.text) * bytes_per_byte / n_tokens

    def estimate(overlap: int) -> int:
        n_chunks = -((overlap - n_tokens) // (max_tokens - overlap))
        return int((n_chunks - 1) * overlap * bytes_per_token)

    actual = estimate(request.overlap_tokens)
    candidates = range(request.overlap_tokens)
    overlap = bisect_right(candidates, max_bytes, key=estimate) - 1
    most = max_bytes / bytes_per_byte
    while overlap and _count_repeated(parts.plan(overlap), most) > most:
        overlap -= overlap // 8 + 1  # the tokens at the ends of chunks are longer than others
    return ChunksTooLargeError(max_bytes, max(actual, max_bytes + 1), overlap)


def _check_chunks(n_chunks: int) -> None:
    if n_chunks > MAX_BATCH_ITEMS:
        raise TooManyChunksError(MAX_BATCH_ITEMS, n_chunks)
