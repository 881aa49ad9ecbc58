"""Responses of /encode: pure functions without HTTP, for the event loop and for threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tokenizer_service.access.limits import MAX_DETAILED_TOKENS, check_wanted, reserve_memory
from tokenizer_service.http.id_formats import NPY, OCTETS, IdsForm, render_ids_form, require_fit
from tokenizer_service.http.problem import Problem
from tokenizer_service.rendering.json_values import (
    Rendered,
    describe_token,
    joined,
    policies,
    render_described,
    render_each,
    render_ids,
    sources_of,
    special_token_problem,
    utf8_length,
)
from tokenizer_service.rendering.preconditions import require_known_specials

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tokenizer_client.schemas.tokens import EncodeRequest
    from tokenizer_core import Tokenizer
    from tokenizer_service.rendering.json_values import Source
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer


_BYTES_PER_DETAILED_TOKEN: Final = 100


@dataclass(frozen=True, slots=True)
class _EncodedText:
    ids: NDArray[np.uint32]
    offsets: NDArray[np.uint64] | None


@dataclass  # without slots, because `respond` reads `vars`
class OneText:
    """A request for the ids of one text. `options` has all other fields: reading them once for many
    texts saves an eighth of a small request."""

    text: str
    options: EncodeRequest
    tokenizer: str | None


def render_encoding(
    request: EncodeRequest | OneText, live: LiveTokenizer, form: IdsForm | None = None
) -> Rendered:
    """Encode the text, segments or batch of `request`; the response is JSON, or ids in `form`.

    Raises:
        Problem: 413 over `max_tokens` or over the limit of detailed tokens; 422 for a forbidden
            special token, or one the tokenizer does not have.
    """
    if isinstance(request, OneText):
        return _render_one(request.text, request.options, live)
    if form is not None:
        return _render_binary(request, live, form)
    if not isinstance(request.text, str) or tuple(request.returned) != ("ids",):
        return _render_parts(request, live)
    return _render_one(request.text, request, live)


def _render_one(text: str, options: EncodeRequest, live: LiveTokenizer) -> Rendered:
    """Render the ids of one text."""
    if options.disallowed_special:
        require_known_specials(live, options.disallowed_special)
    try:
        ids, n_tokens = live.tokenizer.encode_to_json(
            text, add_special_tokens=options.add_special_tokens, **policies(options)
        )
    except ValueError as error:
        raise special_token_problem(error, "/text") from None
    if options.max_tokens is not None:
        check_counts(n_tokens, 0, options.max_tokens, "/text")
    tail = b',"count":%d,"tokenizer":%b}' % (n_tokens, live.identity_json)
    return Rendered([b'{"tokens":', ids, tail], n_tokens, utf8_length(text))


def _render_parts(request: EncodeRequest, live: LiveTokenizer) -> Rendered:
    """Render segments, a batch, or more than the ids."""
    require_known_specials(live, request.disallowed_special)
    is_batch = isinstance(request.text, list)
    encoded: list[_EncodedText] = []
    n_bytes = n_tokens = n_detailed = 0
    is_detailed = "pieces" in request.returned or "offsets" in request.returned
    for pointer, source in sources_of(request.text, request.segments):
        check_wanted()
        result = _encode(source, request, live.tokenizer, pointer)
        n_bytes += utf8_length(joined(source))
        n_tokens += len(result.ids)
        n_detailed += len(result.ids) * is_detailed
        check_counts(len(result.ids), n_detailed, request.max_tokens, pointer)
        encoded.append(result)
    reserve_memory(n_detailed * _BYTES_PER_DETAILED_TOKEN)
    chunks = list(_render(request, encoded, live, is_batch=is_batch))
    return Rendered(chunks, n_tokens, n_bytes)


def _render_binary(request: EncodeRequest, live: LiveTokenizer, form: IdsForm) -> Rendered:
    """Render only the ids, in `form`; no id becomes a Python int.

    Raises:
        Problem: also 406 for a batch as .npy or for ids too large for `form`, and 422 if `return`
            asks for more than the ids.
    """
    require_known_specials(live, request.disallowed_special)
    require_fit(form, live.tokenizer.spec.largest_id)
    if set(request.returned) != {"ids"}:
        detail = "a binary response holds the ids alone; take JSON for pieces, offsets or a count"
        raise Problem(422, "invalid_request", f"/return: {detail}", errors=[("/return", detail)])
    if not isinstance(request.text, list):
        [(pointer, source)] = sources_of(request.text, request.segments)
        ids = _encode_ids(source, request, live.tokenizer, pointer)
        check_counts(len(ids), 0, request.max_tokens, pointer)
        chunks = list(render_ids_form(ids, np.array([len(ids)], dtype=np.uint64), form))
        return Rendered(chunks, len(ids), utf8_length(joined(source)), form.media_type)
    if form.kind == NPY:
        raise Problem(
            406,
            "not_acceptable",
            f"An .npy file holds the ids of one text; for a batch, ask for {OCTETS}.",
        )
    form = replace(form, is_batch=True)
    ids, lengths = _encode_batch(request.text, request, live.tokenizer)
    if request.max_tokens is not None and len(lengths):
        longest = int(lengths.argmax())
        check_counts(int(lengths[longest]), 0, request.max_tokens, f"/text/{longest}")
    chunks = list(render_ids_form(ids, lengths, form))
    n_bytes = sum(map(utf8_length, request.text))
    return Rendered(chunks, len(ids), n_bytes, form.media_type)


def _encode(
    source: Source, request: EncodeRequest, tokenizer: Tokenizer, pointer: str
) -> _EncodedText:
    if "offsets" not in request.returned:
        return _EncodedText(_encode_ids(source, request, tokenizer, pointer), None)
    unit = request.offset_unit
    try:
        if isinstance(source, str):
            ids, offsets = tokenizer.encode_with_offsets(source, unit=unit, **policies(request))
        else:
            ids, offsets = tokenizer.encode_segments_with_offsets(
                source, added_tokens=request.added_tokens, unit=unit
            )
    except ValueError as error:
        raise special_token_problem(error, pointer) from None
    found = _EncodedText(np.array(ids, dtype=np.uint32), offsets)
    return _surround(found, joined(source), request, tokenizer)


def _encode_ids(
    source: Source, request: EncodeRequest, tokenizer: Tokenizer, pointer: str
) -> NDArray[np.uint32]:
    add = request.add_special_tokens
    try:
        if isinstance(source, str):
            return tokenizer.encode_to_numpy(source, add_special_tokens=add, **policies(request))
        return tokenizer.encode_segments_to_numpy(
            source, add_special_tokens=add, added_tokens=request.added_tokens
        )
    except ValueError as error:
        raise special_token_problem(error, pointer) from None


def _encode_batch(
    texts: list[str], request: EncodeRequest, tokenizer: Tokenizer
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """The ids of all texts, and the number of ids of each."""
    spec = tokenizer.spec
    if request.add_special_tokens and (spec.prefix_ids or spec.suffix_ids):
        parts = [
            _encode_ids(text, request, tokenizer, f"/text/{index}")
            for index, text in enumerate(texts)
        ]
        lengths = np.array([len(part) for part in parts], dtype=np.uint64)
        return np.concatenate([np.empty(0, np.uint32), *parts]), lengths
    try:
        ids, offsets = tokenizer.encode_batch_to_numpy(texts, **policies(request))
    except ValueError as error:
        raise special_token_problem(error, "/text") from None
    return ids, np.diff(offsets)


def _surround(
    encoded: _EncodedText, text: str, request: EncodeRequest, tokenizer: Tokenizer
) -> _EncodedText:
    """`encoded` between the post-processor's ids, which have empty offsets at both ends."""
    spec = tokenizer.spec
    if not request.add_special_tokens or not (spec.prefix_ids or spec.suffix_ids):
        return encoded
    end = len(text) if request.offset_unit == "char" else utf8_length(text)
    before = np.zeros((len(spec.prefix_ids), 2), dtype=np.uint64)
    after = np.full((len(spec.suffix_ids), 2), end, dtype=np.uint64)
    ids = [np.array(spec.prefix_ids), encoded.ids, np.array(spec.suffix_ids)]
    offsets = [before, encoded.offsets, after]
    return _EncodedText(
        np.concatenate(ids).astype(np.uint32),
        np.concatenate([part for part in offsets if part is not None]),
    )


def check_counts(count: int, n_detailed: int, max_tokens: int | None, pointer: str) -> None:
    """Raise 413 for more tokens than the client or the service allows."""
    if max_tokens is not None and count > max_tokens:
        raise Problem(
            413,
            "too_many_tokens",
            f"The text has {count} tokens and max_tokens is {max_tokens}.",
            errors=[(pointer, f"{count} tokens")],
            limit=max_tokens,
            actual=count,
        )
    check_detailed(n_detailed)


def check_detailed(n_tokens: int) -> None:
    """Raise 413 for more tokens than a response may describe beyond their ids."""
    if n_tokens > MAX_DETAILED_TOKENS:
        raise Problem(
            413,
            "too_many_detailed_tokens",
            f"Pieces, token strings and offsets are returned for at most {MAX_DETAILED_TOKENS} "
            f"tokens at once; send less text, or ask for ids only.",
            limit=MAX_DETAILED_TOKENS,
            actual=n_tokens,
        )


def _render(
    request: EncodeRequest, encoded: list[_EncodedText], live: LiveTokenizer, *, is_batch: bool
) -> Iterator[bytes]:
    vocab = live.tokenizer.spec.vocab
    yield b"{"
    if "ids" in request.returned:
        yield b'"tokens":'
        texts = (render_ids(text.ids, live.tokenizer) for text in encoded)
        yield from render_each(texts, is_batch=is_batch)
        yield b","
    yield b'"count":'
    yield from render_each((iter([b"%d" % len(text.ids)]) for text in encoded), is_batch=is_batch)
    if "pieces" in request.returned:
        yield b',"pieces":'
        yield from render_each(
            (_render_pieces(text.ids, vocab) for text in encoded), is_batch=is_batch
        )
    if "offsets" in request.returned:
        yield b',"offsets":'
        yield from render_each(
            (_render_offsets(text.offsets) for text in encoded), is_batch=is_batch
        )
    yield b',"tokenizer":' + live.identity_json + b"}"


def _render_pieces(ids: NDArray[np.uint32], vocab: Mapping[int, bytes]) -> Iterator[bytes]:
    yield from render_described(ids, lambda id_: describe_token(vocab[id_]))


def _render_offsets(offsets: NDArray[np.uint64] | None) -> Iterator[bytes]:
    rows = np.empty((0, 2), dtype=np.uint64) if offsets is None else offsets
    yield from render_described(rows, lambda row: row)
