"""Responses of /count, /truncate, /chunk and /verify: pure functions without HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenizer_client.schemas.tokens import MAX_BATCH_ITEMS
from tokenizer_core import truncate_text
from tokenizer_core.errors import MaxTokensTooSmallError
from tokenizer_core.text.round_trips import check_text
from tokenizer_core.text.truncate import TextChunks
from tokenizer_service.access.limits import check_wanted, reserve_memory
from tokenizer_service.http.problem import Problem
from tokenizer_service.rendering.decode import check_decoded_size
from tokenizer_service.rendering.json_values import (
    Rendered,
    dump,
    escaped_length,
    joined,
    policies,
    render_ids,
    render_text,
    sources_of,
    special_token_problem,
    utf8_length,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer_client.schemas.text import (
        ChunkRequest,
        CountRequest,
        TruncateRequest,
        VerifyRequest,
    )
    from tokenizer_core import TextPart
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer


def render_count(request: CountRequest, live: LiveTokenizer) -> Rendered:
    """Count the tokens of the text, the segments or the texts of `request`.

    Engines count different distances past the limit, so the response never contains that count.

    Raises:
        Problem: 422 for a forbidden special token or one the tokenizer does not have.
    """
    is_batch, limit = isinstance(request.text, list), request.limit
    counts, exceeded, n_tokens, n_bytes = [], [], 0, 0
    for pointer, source in sources_of(request.text, request.segments):
        check_wanted()
        try:
            if isinstance(source, str):
                count = live.tokenizer.count(source, limit=limit, **policies(request))
            else:
                count = live.tokenizer.count_segments(
                    source, added_tokens=request.added_tokens, limit=limit
                )
        except ValueError as error:
            raise special_token_problem(error, pointer) from None
        is_exceeded = limit is not None and count > limit
        counts.append(limit if is_exceeded else count)
        exceeded.append(is_exceeded)
        if not is_exceeded:
            n_tokens += count
            n_bytes += utf8_length(joined(source))
    fields = {
        "count": counts if is_batch else counts[0],
        "limit_exceeded": exceeded if is_batch else exceeded[0],
    }
    chunks = [dump(fields)[:-1], b',"tokenizer":' + live.identity_json + b"}"]
    return Rendered(chunks, n_tokens, n_bytes)


def render_truncation(request: TruncateRequest, live: LiveTokenizer) -> Rendered:
    """Cut the text of `request` at its limit. Raises as `render_count`."""
    try:
        part = truncate_text(
            live.tokenizer,
            request.text,
            request.max_tokens,
            side=request.side,
            **policies(request),
        )
    except ValueError as error:
        raise special_token_problem(error, "/text") from None
    is_truncated = len(part.text) < len(request.text)
    chunks = [
        b'{"text":',
        *render_text(part.text),
        b',"tokens":',
        *render_ids(part.ids, live.tokenizer),
        b',"count":%d,"truncated":%b' % (len(part.ids), b"true" if is_truncated else b"false"),
        b',"tokenizer":' + live.identity_json + b"}",
    ]
    return Rendered(chunks, len(part.ids), utf8_length(part.text))


def render_chunks(request: ChunkRequest, live: LiveTokenizer, *, max_bytes: int) -> Rendered:
    """Cut the text of `request` into chunks.

    Raises:
        Problem: as `render_count`; 413 for more chunks than a batch has items, or, with overlaps,
            for more than `max_bytes` of repeated text and ids, before they are made; 422 where a
            character does not fit.
    """
    rendered: list[bytes] = []
    n_chunks = n_tokens = n_bytes = n_repeated = covered = 0
    try:
        parts = TextChunks(
            live.tokenizer,
            request.text,
            request.max_tokens,
            overlap_tokens=request.overlap_tokens,
            **policies(request),
        )
        _check_plan(parts, request, max_bytes)
        for part, start, end in _with_offsets(iter(parts), request.offset_unit):
            check_wanted()
            n_chunks += 1
            n_tokens += len(part.ids)
            n_bytes += utf8_length(part.text)
            n_repeated += covered - part.start
            covered = part.end
            _check_chunks(n_chunks)
            _check_repeated(n_repeated, max_bytes)  # the plan may have ended early
            rendered += [
                b',{"text":' if n_chunks > 1 else b'{"text":',
                *render_text(part.text),
                b',"tokens":',
                *render_ids(part.ids, live.tokenizer),
                b',"start":%d,"end":%d}' % (start, end),
            ]
    except MaxTokensTooSmallError as error:
        raise _max_tokens_too_small(error) from None
    except ValueError as error:
        raise special_token_problem(error, "/text") from None
    chunks = [b'{"chunks":[', *rendered, b'],"tokenizer":' + live.identity_json + b"}"]
    return Rendered(chunks, n_tokens, n_bytes)


def render_verification(
    request: VerifyRequest, live: LiveTokenizer, *, max_decoded_bytes: int
) -> Rendered:
    """Check that the text or the ids of `request` survive a round trip.

    Raises:
        Problem: as `render_count`; 413 for ids of more text than `max_decoded_bytes`.
        UnknownTokenIdError: an id is not in the vocabulary.
    """
    is_lossy = False
    try:
        if request.tokens is None:
            text = request.text or ""
            difference, is_lossy = check_text(live.tokenizer, text, **policies(request))
        else:
            check_decoded_size([(request.tokens, "/tokens")], live, max_decoded_bytes)
            difference = live.tokenizer.first_drift(request.tokens, **policies(request))
    except ValueError as error:
        pointer = "/text" if request.tokens is None else "/tokens"
        raise special_token_problem(error, pointer) from None
    fields = {"ok": difference is None, "first_difference": difference, "lossy": is_lossy}
    chunks = [dump(fields)[:-1], b',"tokenizer":' + live.identity_json + b"}"]
    return Rendered(chunks, 0, 0)  # no ids left the service


def _max_tokens_too_small(error: MaxTokensTooSmallError) -> Problem:
    return Problem(
        422,
        error.code,
        f"A character of the text has {error.n_tokens} tokens by itself and max_tokens is "
        f"{error.max_tokens}; a chunk never ends inside a character, so allow more.",
        errors=[("/max_tokens", f"below the {error.n_tokens} tokens of one character")],
        limit=error.max_tokens,
        actual=error.n_tokens,
        byte_offset=error.byte_offset,
    )


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


def _check_plan(parts: TextChunks, request: ChunkRequest, max_bytes: int) -> None:
    """Raise 413 for too many chunks or too much overlap; else reserve the response's memory."""
    n_id_bytes = 2 * len(parts.ids)  # one digit and a comma
    for power in range(1, 10):
        n_id_bytes += int(np.count_nonzero(parts.ids >= 10**power))
    n_text_bytes = utf8_length(request.text)
    bytes_per_text_byte = (escaped_length(request.text) + n_id_bytes) / max(1, n_text_bytes)
    n_repeated = covered = 0
    for n_chunks, (start, end) in enumerate(parts.plan(), 1):
        check_wanted()
        n_repeated += covered - start
        covered = end
        _check_chunks(n_chunks)
    _check_repeated(int(n_repeated * bytes_per_text_byte), max_bytes)
    reserve_memory(int((n_text_bytes + n_repeated) * bytes_per_text_byte))


def _check_repeated(n_bytes: int, max_bytes: int) -> None:
    if n_bytes > max_bytes:
        raise Problem(
            413,
            "chunks_too_large",
            f"The overlaps would repeat {n_bytes} bytes of text and ids, more than {max_bytes}; "
            f"send less text, or let the chunks overlap less. The operator can raise "
            f"TOKENIZER_MAX_RESPONSE_BYTES.",
            limit=max_bytes,
            actual=n_bytes,
        )


def _check_chunks(n_chunks: int) -> None:
    if n_chunks > MAX_BATCH_ITEMS:
        raise Problem(
            413,
            "too_many_chunks",
            f"A response holds at most {MAX_BATCH_ITEMS} chunks; send less text, or allow more "
            f"tokens in each.",
            limit=MAX_BATCH_ITEMS,
            actual=n_chunks,
        )
