"""Text to ids for every route that encodes: one text, its segments, or a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from tokenizer_client.schemas.chat import ChatEncodeRequest
from tokenizer_client.schemas.tokens import EncodeRequest, Segments
from tokenizer_core.engines import ARRAY
from tokenizer_core.engines import JSON as IDS_IN_JSON
from tokenizer_core.specials.policy import Policy
from tokenizer_service.access.errors import TooManyDetailedTokensError, TooManyTokensError
from tokenizer_service.access.limits import MAX_DETAILED_TOKENS
from tokenizer_service.access.work_queue import check_not_abandoned, reserve_memory
from tokenizer_service.handlers.preconditions import require_known_specials
from tokenizer_service.http.id_formats import JSON, NPY, OCTETS, IdsForm, require_fit
from tokenizer_service.http.problem import Problem
from tokenizer_service.responses.encode import Encoded, is_detailed, render_binary, render_encoded
from tokenizer_service.responses.errors import InvalidFieldError, refused_text
from tokenizer_service.responses.json_values import Rendered, utf8_length
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

Source = str | Segments
"""A text, or the segments of one."""

_DEFAULT: Final = Policy()
BYTES_PER_ID: Final = 16
"""Of memory for ids that no body sent, as an array and as JSON: those of the post-processor, which
a batch repeats for each text, and those of a template."""

_BYTES_PER_OFFSETS: Final = 32
"""Of the places of a token in a text, as the engine and as other servers write them."""


def encode_body(body: bytes, live: LiveTokenizer, form: IdsForm | None = None) -> Rendered | None:
    """The response to a body with one text whose ids alone are wanted, by one call of the native
    engine, in JSON or in `form`. None for any other body and for errors, which the plan names."""
    around = _around(live.identity_json) if form is None else None
    try:
        found = live.encode_body(around, body)
    except ValueError:
        return None
    if found is None:
        return None
    content, n_tokens, n_bytes = found
    return Rendered([content], n_tokens, n_bytes, JSON if form is None else form.media_type)


@lru_cache(maxsize=64)
def _around(identity: bytes) -> tuple[bytes, bytes, bytes]:
    return b'{"tokens":', b',"count":', b',"tokenizer":%b}' % identity


def encode_to_json(request: EncodeRequest, live: LiveTokenizer) -> Rendered:
    """Encode the text, segments or batch of `request`; the response is JSON."""
    policy = policy_of(request, live)
    sources = sources_of(request.text, request.segments)
    is_batch = isinstance(request.text, list)
    if is_batch or request.wants_more_than_ids:
        encoded = encode_all(
            sources,
            live,
            policy,
            is_detailed=is_detailed(request.returned),
            max_tokens=request.max_tokens,
            unit=request.offset_unit if "offsets" in request.returned else None,
            add_special_tokens=request.add_special_tokens,
        )
        return render_encoded(encoded, request.returned, live, is_batch=is_batch)
    [(pointer, source)] = sources
    try:
        ids, n_tokens = live.tokenizer.encode_source(
            source, policy, IDS_IN_JSON, add_special_tokens=request.add_special_tokens
        )
    except ValueError as error:
        raise refused_text(error, pointer) from None
    check_count(n_tokens, request.max_tokens, pointer)
    before, between, after = _around(live.identity_json)
    chunks = [before, ids, b"%b%d%b" % (between, n_tokens, after)]
    return Rendered(chunks, n_tokens, n_bytes_of(source))


def encode_binary(request: EncodeRequest, live: LiveTokenizer, form: IdsForm) -> Rendered:
    """As `encode_to_json`; the response is only the ids, in `form`."""
    policy = policy_of(request, live)
    require_ids_alone(request, form, live)
    adds, sources = request.add_special_tokens, sources_of(request.text, request.segments)
    if not isinstance(request.text, list):
        most = request.max_tokens
        [one] = encode_all(sources, live, policy, max_tokens=most, add_special_tokens=adds)
        return render_binary(one.ids, None, one.n_bytes, form)
    if form.kind == NPY:
        detail = f"An .npy file holds the ids of one text; for a batch, ask for {OCTETS}."
        raise Problem(406, "not_acceptable", detail)
    if adds and any(live.around):
        encoded = encode_all(sources, live, policy, add_special_tokens=True)
        parts = [one.ids for one in encoded]
        lengths = np.array([len(part) for part in parts], dtype=np.uint64)
        ids = np.concatenate([np.empty(0, np.uint32), *parts])
    else:
        try:
            ids, ends = live.tokenizer.encode_batch_to_numpy(request.text, **policy.options)
        except ValueError as error:
            raise refused_text(error, "/text") from None
        lengths = np.diff(ends)
    if len(lengths):
        longest = int(lengths.argmax())
        check_count(int(lengths[longest]), request.max_tokens, f"/text/{longest}")
    n_bytes = sum(map(utf8_length, request.text))
    return render_binary(ids, lengths, n_bytes, replace(form, is_batch=True))


def require_ids_alone(
    request: EncodeRequest | ChatEncodeRequest, form: IdsForm, live: LiveTokenizer
) -> None:
    """Raise Problem (406) for ids too large for `form`, InvalidFieldError if more is wanted."""
    require_fit(form, live.tokenizer.spec.largest_id)
    if request.wants_more_than_ids:
        detail = "a binary response holds the ids alone; take JSON for the rest"
        raise InvalidFieldError("/return", detail)


def encode_all(
    sources: Iterable[tuple[str, Source]],
    live: LiveTokenizer,
    policy: Policy = _DEFAULT,
    *,
    is_detailed: bool = False,
    max_tokens: int | None = None,
    unit: Literal["byte", "char"] | None = None,
    add_special_tokens: bool = False,
) -> list[Encoded]:
    """Encode texts or segments, each at its JSON pointer, with offsets in `unit` if given."""
    encoded: list[Encoded] = []
    n_tokens = 0
    n_around = sum(live.around) if add_special_tokens else 0
    n_reserved = n_around * (BYTES_PER_ID + (0 if unit is None else _BYTES_PER_OFFSETS))
    for pointer, source in sources:
        check_not_abandoned()
        if n_reserved:
            reserve_memory(n_reserved)
        try:
            if unit is None:
                ids = live.tokenizer.encode_source(
                    source, policy, ARRAY, add_special_tokens=add_special_tokens
                )
                one = Encoded(ids, n_bytes_of(source))
            else:
                ids, offsets = live.tokenizer.encode_source_with_offsets(
                    source, policy, unit, add_special_tokens=add_special_tokens
                )
                one = Encoded(ids, n_bytes_of(source), offsets)
        except ValueError as error:
            raise refused_text(error, pointer) from None
        check_count(len(one.ids), max_tokens, pointer)
        n_tokens += len(one.ids)
        if is_detailed:
            check_detailed(n_tokens)
        encoded.append(one)
    return encoded


def sources_of(
    text: str | list[str] | None, segments: Segments | None = None
) -> Iterator[tuple[str, Source]]:
    """What a request wants to have encoded, each with its JSON pointer."""
    if segments is not None:
        yield "/segments", segments
    elif isinstance(text, list):
        for index, item in enumerate(text):
            yield f"/text/{index}", item
    elif text is not None:
        yield "/text", text
    else:
        raise InvalidFieldError("", "give either text or segments")


def n_bytes_of(source: Source) -> int:
    """The size of the text of a source in bytes of UTF-8."""
    if not isinstance(source, str):
        return sum(utf8_length(text) for text, _ in source)
    return utf8_length(source)


def policy_of(request: Any, live: LiveTokenizer) -> Policy:
    """What a request says of special tokens; raises UnknownSpecialTokenError."""
    if request.disallowed_special:
        require_known_specials(live, request.disallowed_special)
    if vars(request).get("segments") is not None:
        return Policy(added_tokens=request.added_tokens)
    return Policy.of_text(request.allowed_special, request.disallowed_special, request.added_tokens)


def check_count(n_tokens: int, limit: int | None, pointer: str) -> None:
    """Raise TooManyTokensError if the text at `pointer` has more tokens than `limit`."""
    if limit is not None and n_tokens > limit:
        raise TooManyTokensError(limit, n_tokens, pointer=pointer)


def check_detailed(n_tokens: int) -> None:
    """Raise TooManyDetailedTokensError for more tokens than a response may describe."""
    if n_tokens > MAX_DETAILED_TOKENS:
        raise TooManyDetailedTokensError(MAX_DETAILED_TOKENS, n_tokens)
