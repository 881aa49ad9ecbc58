"""Calls about texts and ids: encode, decode, count, truncate, chunk, verify, one token.

Requests and responses carry ids as bytes. The tests run the examples, in which `client` is a
Client.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from tokenizer_client.calls.exchange import (
    JSON,
    OCTETS,
    Flow,
    Model,
    Request,
    exchange,
    json_request,
    plain_number,
    require_media_type,
    require_same,
)
from tokenizer_client.calls.retries import Session
from tokenizer_client.calls.wire_formats import (
    IdArray,
    Ids,
    parse_batch,
    parse_id_bytes,
    render_batch,
    render_ids,
)
from tokenizer_client.errors import UnexpectedResponseError
from tokenizer_client.schemas.text import (
    Chunk,
    ChunkResponse,
    CountResponse,
    TruncateResponse,
    VerifyResponse,
    VocabResponse,
)
from tokenizer_client.schemas.tokens import DecodeResponse, EncodeResponse

IDS: Final = f"{OCTETS}; dtype=u32"
_LAYOUT_BATCH: Final = "; layout=batch"
_BATCH: Final = IDS + _LAYOUT_BATCH
_NO_ROWS: Final = (str, bytes, bytearray, Mapping, Set)
"""Iterables whose items are not texts or ids in an order that the caller chose."""


AllowedSpecial: TypeAlias = Literal["all", "none", "ordinary"] | Collection[str]
"""Special tokens to recognise in a text; `ordinary`: no added token at all."""

AddedTokens: TypeAlias = Literal["all", "none"]
"""Whether added tokens that are no control tokens count in untrusted text."""

DisallowedSpecial: TypeAlias = Literal["all"] | Collection[str]
"""Special tokens that are an error in a text."""

Errors: TypeAlias = Literal["replace", "strict"]
"""Bytes that are not UTF-8 become U+FFFD, or are an error."""


class SpecialOptions(TypedDict, total=False):
    """Special tokens to recognise in a text, and to refuse."""

    allowed_special: AllowedSpecial
    disallowed_special: DisallowedSpecial


class EncodeOptions(SpecialOptions, total=False):
    """Options of an encode request with texts."""

    add_special_tokens: bool
    max_tokens: int | None


class SegmentOptions(TypedDict, total=False):
    """Options of an encode request with segments."""

    add_special_tokens: bool
    added_tokens: AddedTokens
    max_tokens: int | None


class DecodeOptions(TypedDict, total=False):
    """Options of a decode request."""

    skip_special_tokens: bool
    errors: Errors


def encode(session: Session, text: str, **options: Unpack[EncodeOptions]) -> Flow[list[int]]:
    """The token ids of a text."""
    ids: list[int] = (yield from _encode_one(session, text, options, "encode")).tolist()
    return ids


def encode_to_numpy(session: Session, text: str, **options: Unpack[EncodeOptions]) -> Flow[IdArray]:
    """The token ids of a text as an array, shape (n_tokens,), uint32; makes no Python ints."""
    return _encode_one(session, text, options, "encode_to_numpy")


def encode_batch(
    session: Session, texts: Sequence[str], **options: Unpack[EncodeOptions]
) -> Flow[list[list[int]]]:
    """The token ids of each of many texts, in one request."""
    ids, offsets = yield from _encode_many(session, texts, options, "encode_batch")
    listed: list[int] = ids.tolist()
    bounds = offsets.tolist()
    return [listed[start:end] for start, end in itertools.pairwise(bounds)]


def encode_batch_to_numpy(
    session: Session, texts: Sequence[str], **options: Unpack[EncodeOptions]
) -> Flow[tuple[IdArray, NDArray[np.uint64]]]:
    """The ids of many texts, (n_tokens,) uint32, and offsets, (n_texts + 1,) uint64."""
    return _encode_many(session, texts, options, "encode_batch_to_numpy")


def encode_segments(
    session: Session, segments: Iterable[tuple[str, bool]], **options: Unpack[SegmentOptions]
) -> Flow[list[int]]:
    """The token ids of a text given in parts, each with whether special tokens count in it."""
    ids = yield from encode_segments_to_numpy(session, segments, **options)
    listed: list[int] = ids.tolist()
    return listed


def encode_segments_to_numpy(
    session: Session, segments: Iterable[tuple[str, bool]], **options: Unpack[SegmentOptions]
) -> Flow[IdArray]:
    """As `encode_segments`, as an array, shape (n_tokens,), uint32."""
    fields = {"segments": _segment_fields(segments), **plain_options(options)}
    response = yield from exchange(session, json_request(session, "/encode", fields, accept=IDS))
    require_media_type(response.headers, IDS)
    ids = parse_id_bytes(response.body)
    check_most_tokens(len(ids), options.get("max_tokens"))
    return ids


def encode_with_pieces(
    session: Session,
    text: str,
    *,
    offset_unit: Literal["byte", "char"] = "byte",
    **options: Unpack[EncodeOptions],
) -> Flow[EncodeResponse]:
    """The ids of a text, the bytes and the offsets of each token, and the tokenizer."""
    _require_text(text, "encode_with_pieces")
    wanted = {"return": ["ids", "pieces", "offsets"], "offset_unit": offset_unit}
    request = json_request(session, "/encode", {"text": text, **plain_options(options), **wanted})
    found = (yield from exchange(session, request)).parse(EncodeResponse)
    for part in (found.tokens, found.pieces, found.offsets):
        if part is None or len(part) != found.count or any(isinstance(x, list) for x in part):
            raise UnexpectedResponseError(
                "the response has not one id, one piece and one pair of offsets for each token"
            )
    check_most_tokens(cast("int", found.count), options.get("max_tokens"))
    return found


def decode(session: Session, ids: Ids, **options: Unpack[DecodeOptions]) -> Flow[str]:
    """The text of token ids, given as a list or a numpy array of integers."""
    _require_ids(ids, "decode", "decode_batch")
    body = render_ids(ids)
    data = yield from _decode_bytes(session, body, IDS, options)
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = yield from _decode_text(session, body, IDS, options)
    if not isinstance(text, str):
        raise UnexpectedResponseError("the response to one list of ids has the texts of many")
    return text


def decode_bytes(session: Session, ids: Ids, **options: Unpack[DecodeOptions]) -> Flow[bytes]:
    """The bytes of token ids, which may be invalid UTF-8."""
    _require_ids(ids, "decode_bytes", "decode_batch")
    return bytes((yield from _decode_bytes(session, render_ids(ids), IDS, options)))


def decode_batch(
    session: Session, rows: Sequence[Ids], **options: Unpack[DecodeOptions]
) -> Flow[list[str]]:
    """The text of each of many lists of token ids, in one request."""
    rows = _require_rows(rows)
    body = render_batch(rows)
    data = yield from _decode_bytes(session, body, _BATCH, options)
    joined, offsets = parse_batch(data, 1, len(rows))
    bounds = offsets.tolist()
    try:
        return [joined[start:end].decode() for start, end in itertools.pairwise(bounds)]
    except UnicodeDecodeError:
        texts = yield from _decode_text(session, body, _BATCH, options)
    if not isinstance(texts, list) or len(texts) != len(rows):
        raise UnexpectedResponseError("the response to a batch has not one text for each list")
    return texts


def count(session: Session, text: str, **options: Unpack[SpecialOptions]) -> Flow[int]:
    """The number of tokens of a text; the service computes no ids."""
    _require_text(text, "count", "count_batch")
    counted = yield from _call(session, "/count", CountResponse, {"text": text}, options)
    if not isinstance(counted.count, int):
        raise UnexpectedResponseError("the response to one text has the counts of many")
    return counted.count


def count_batch(
    session: Session, texts: Sequence[str], **options: Unpack[SpecialOptions]
) -> Flow[list[int]]:
    """The number of tokens of each of many texts."""
    fields = {"text": _require_texts(texts, "count_batch", "count")}
    counted = yield from _call(session, "/count", CountResponse, fields, options)
    if not isinstance(counted.count, list) or len(counted.count) != len(fields["text"]):
        raise UnexpectedResponseError("the response to a batch has not one count for each text")
    return counted.count


def count_segments(
    session: Session, segments: Iterable[tuple[str, bool]], *, added_tokens: AddedTokens = "all"
) -> Flow[int]:
    """The number of tokens of `encode_segments`; the service computes no ids."""
    fields = {"segments": _segment_fields(segments)}
    options = {"added_tokens": added_tokens}
    counted = yield from _call(session, "/count", CountResponse, fields, options)
    if not isinstance(counted.count, int):
        raise UnexpectedResponseError("the response to one text has the counts of many")
    return counted.count


def fits(
    session: Session, text: str, max_tokens: int, **options: Unpack[SpecialOptions]
) -> Flow[bool]:
    """Whether a text has at most `max_tokens` tokens; the service stops counting there."""
    _require_text(text, "fits")
    fields = {"text": text, "limit": max_tokens}
    counted = yield from _call(session, "/count", CountResponse, fields, options)
    if not isinstance(counted.limit_exceeded, bool) or isinstance(counted.count, list):
        raise UnexpectedResponseError("the response to one text has the counts of many")
    check_most_tokens(counted.count, max_tokens)
    return not counted.limit_exceeded


def truncate(
    session: Session,
    text: str,
    max_tokens: int,
    *,
    side: Literal["right", "left"] = "right",
    **options: Unpack[SpecialOptions],
) -> Flow[TruncateResponse]:
    """The beginning of a text (`side="left"`: its end) of at most `max_tokens` tokens."""
    _require_text(text, "truncate")
    fields = {"text": text, "max_tokens": max_tokens, "side": side}
    found = yield from _call(session, "/truncate", TruncateResponse, fields, options)
    require_same("number of tokens", found.count, len(found.tokens))
    check_most_tokens(found.count, max_tokens)
    return found


def chunk(
    session: Session,
    text: str,
    max_tokens: int,
    *,
    overlap_tokens: int = 0,
    offset_unit: Literal["byte", "char"] = "byte",
    **options: Unpack[SpecialOptions],
) -> Flow[list[Chunk]]:
    """A text in chunks of at most `max_tokens` tokens, each with its ids and its position."""
    _require_text(text, "chunk")
    fields = {
        "text": text,
        "max_tokens": max_tokens,
        "overlap_tokens": overlap_tokens,
        "offset_unit": offset_unit,
    }
    chunks = (yield from _call(session, "/chunk", ChunkResponse, fields, options)).chunks
    for found in chunks:
        check_most_tokens(len(found.tokens), max_tokens)
    bounds = [0, *(found.end for found in chunks)]
    if bounds != sorted(bounds) or any(found.start > found.end for found in chunks):
        raise UnexpectedResponseError("the chunks in the response are not in order")
    return chunks


def verify(session: Session, text: str, **options: Unpack[SpecialOptions]) -> Flow[VerifyResponse]:
    """Whether decoding the ids of a text gives the text, and where it first differs."""
    _require_text(text, "verify")
    return (yield from _verify(session, {"text": text}, options))


def verify_ids(session: Session, ids: Ids) -> Flow[VerifyResponse]:
    """Whether encoding the text of ids gives the ids, and where it first differs."""
    _require_ids(ids, "verify_ids")
    fields = {"tokens": parse_id_bytes(bytearray(render_ids(ids))).tolist()}
    return (yield from _verify(session, fields, {}))


def describe_token(session: Session, token_id: int, *, depth: int = 8) -> Flow[VocabResponse]:
    """One token: its bytes, its rank, and the tree of its merges, down to `depth`."""
    query = (("depth", str(depth)), *session.pin_fields.items())
    if isinstance(token_id, bool) or not isinstance(token_id, int | np.integer):
        kind = type(token_id).__name__
        raise TypeError(f"describe_token() takes one id as an int, not {kind}")
    wanted = int(token_id)
    request = Request("GET", f"/vocab/{wanted}", query, session.pin_headers)
    found = (yield from exchange(session, request)).parse(VocabResponse)
    require_same("id", found.id, wanted)
    return found


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options to JSON values, without those that have the service's defaults.

    Raises:
        TypeError: an option is no JSON value, no number of NumPy and no collection.

    Example:
        >>> plain_options({"allowed_special": ("a",), "max_tokens": None, "errors": "replace"})
        {'allowed_special': ['a']}
    """
    plain = {name: plain_number(value) for name, value in options.items()}
    if plain.get("allowed_special") == "ordinary":
        del plain["allowed_special"]
        plain["added_tokens"] = "none"
    return {
        name: _json_value(name, value)
        for name, value in plain.items()
        if not (value is None or value is False or _is_default(name, value))
    }


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, str | int | float | dict):
        return value
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} cannot be {value!r:.40}, a {type(value).__name__}")
    return list(value)


def _is_default(name: str, value: Any) -> bool:
    if name == "disallowed_special":
        return not value
    defaults = (
        ("allowed_special", "all"),
        ("added_tokens", "all"),
        ("errors", "replace"),
        ("messages_form", "raw"),
    )
    return (name, value) in defaults


def query_of(session: Session, options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Options as query parameters, with the tokenizer the session is pinned to."""
    listed = list(session.pin_fields.items())
    for name, value in plain_options(options).items():
        if isinstance(value, bool):
            listed.append((name, "true" if value else "false"))
        elif name == "allowed_special" and not value:
            listed.append((name, "none"))  # a query without names selects the default
        else:
            listed += [(name, item) for item in ([value] if isinstance(value, str) else value)]
    return tuple(listed)


def _encode_one(session: Session, text: str, options: EncodeOptions, method: str) -> Flow[IdArray]:
    _require_text(text, method, method.replace("encode", "encode_batch"))
    ids = parse_id_bytes((yield from _encode(session, text, options, IDS)))
    check_most_tokens(len(ids), options.get("max_tokens"))
    return ids


def _encode_many(
    session: Session, texts: Sequence[str], options: EncodeOptions, method: str
) -> Flow[tuple[IdArray, NDArray[np.uint64]]]:
    listed = _require_texts(texts, method, method.replace("encode_batch", "encode"))
    body = yield from _encode(session, listed, options, _BATCH)
    packed, offsets = parse_batch(body, 4, len(listed))
    if listed:
        check_most_tokens(int(np.diff(offsets).max()), options.get("max_tokens"))
    return parse_id_bytes(packed), offsets


def _encode(
    session: Session, text: str | list[str], options: EncodeOptions, form: str
) -> Flow[bytearray]:
    # The text comes first because the service parses large bodies fastest in this order.
    fields = {"text": text, **plain_options(options)}
    response = yield from exchange(session, json_request(session, "/encode", fields, accept=IDS))
    require_media_type(response.headers, form)
    return response.body


def _decode_bytes(
    session: Session, body: bytes, form: str, options: DecodeOptions
) -> Flow[bytearray]:
    request = _decode_request(session, body, form, options, accept=OCTETS)
    response = yield from exchange(session, request)
    require_media_type(response.headers, OCTETS + (_LAYOUT_BATCH if form == _BATCH else ""))
    return response.body


def _decode_text(
    session: Session, body: bytes, form: str, options: DecodeOptions
) -> Flow[str | list[str]]:
    """The text of bytes that are not UTF-8: how many U+FFFD it has depends on the tokenizer, so the
    service makes it. JSON takes 4 to 13 times as long as bytes, which are asked for first."""
    request = _decode_request(session, body, form, options, accept=JSON)
    return (yield from exchange(session, request)).parse(DecodeResponse).text


def _decode_request(
    session: Session, body: bytes, form: str, options: DecodeOptions, *, accept: str
) -> Request:
    headers = {"Content-Type": form, "Accept": accept, **session.pin_headers}
    return Request("POST", "/decode", query_of(session, options), headers, body)


def _verify(
    session: Session, fields: Mapping[str, Any], options: Mapping[str, Any]
) -> Flow[VerifyResponse]:
    found = yield from _call(session, "/verify", VerifyResponse, fields, options)
    if found.ok != (found.first_difference is None):
        raise UnexpectedResponseError("the response both confirms and denies the round trip")
    return found


def _require_text(text: object, method: str, for_many: str | None = None) -> None:
    """Raise TypeError unless `text` is one text; name the method for many."""
    if isinstance(text, str):
        return
    if isinstance(text, bytes | bytearray):
        remedy = "decode the bytes first: data.decode()"
    elif isinstance(text, Iterable) and for_many is not None:
        remedy = f"call {for_many}() for many texts"
    else:
        remedy = "call it once for each text"
    raise TypeError(f"{method}() takes one text as a str, not {type(text).__name__}; {remedy}")


def _segment_fields(segments: Iterable[tuple[str, bool]]) -> list[dict[str, object]]:
    """Segments as the service takes them; raises TypeError for one of other types."""
    fields: list[dict[str, object]] = []
    for index, (text, special) in enumerate(segments):
        if not isinstance(text, str) or not isinstance(special, bool):
            raise TypeError(
                f"segments[{index}] must be a text and whether special tokens count in it (str, "
                f"bool), not ({type(text).__name__}, {type(special).__name__})"
            )
        fields.append({"text": text, "special": special})
    return fields


def _require_texts(texts: Any, method: str, for_one: str) -> list[str]:
    """The texts as a list; raises TypeError, with the method for one text."""
    if isinstance(texts, _NO_ROWS) or not isinstance(texts, Iterable):
        remedy = f"call {for_one}() for one text" if isinstance(texts, str) else "give a list"
        kind = type(texts).__name__
        raise TypeError(f"{method}() takes many texts as a list of str, not {kind}; {remedy}")
    listed = list(texts)
    for index, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"{method}(): texts[{index}] is {type(text).__name__}, not str")
    return listed


def _require_ids(ids: Any, method: str, for_many: str | None = None) -> None:
    """Raise TypeError if these are the ids of many texts, or none; name the method for them."""
    remedy = ""
    if isinstance(ids, np.ndarray):
        is_many = ids.ndim > 1
    elif isinstance(ids, _NO_ROWS) or not isinstance(ids, Sequence):
        is_many, remedy = False, "; give a list of integers or a numpy array"
    else:
        is_many = len(ids) > 0 and isinstance(ids[0], Sequence | np.ndarray)
    if is_many:
        remedy = f"; call {for_many or method}() for " + ("many" if for_many else "each of them")
    if remedy:
        what = "many lists of ids" if is_many else type(ids).__name__
        raise TypeError(f"{method}() takes the ids of one text, not {what}{remedy}")


def _require_rows(rows: Any) -> list[Ids]:
    """Lists of ids as a list; raises TypeError if they are the ids of one text, or none."""
    if isinstance(rows, _NO_ROWS) or not isinstance(rows, Iterable):
        kind = type(rows).__name__
        raise TypeError(f"decode_batch() takes a list of lists of ids, not {kind}")
    listed = list(rows)
    for index, row in enumerate(listed):
        if not isinstance(row, Sequence | np.ndarray) or isinstance(row, _NO_ROWS):
            raise TypeError(
                f"decode_batch() takes a list of lists of ids, and rows[{index}] is "
                f"{type(row).__name__}; call decode() for the ids of one text"
            )
    return listed


def check_most_tokens(n_tokens: int, most: int | None) -> None:
    """Raise UnexpectedResponseError for more tokens than were asked for."""
    if most is not None and n_tokens > most:
        raise UnexpectedResponseError(
            f"the response has {n_tokens} tokens where at most {most} were asked for"
        )


def _call(
    session: Session,
    path: str,
    model: type[Model],
    fields: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Flow[Model]:
    request = json_request(session, path, {**fields, **plain_options(options)})
    return (yield from exchange(session, request)).parse(model)
