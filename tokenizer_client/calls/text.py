"""Calls about texts and ids: encode, decode, count, truncate, chunk, verify, one token.

Requests and responses carry ids as bytes. The tests run the examples, in which `client` is a
Client.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from tokenizer_client.calls.exchange import (
    OCTETS,
    Flow,
    Model,
    Request,
    WholeResponse,
    exchange,
    json_request,
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
from tokenizer_client.schemas.text import (
    Chunk,
    ChunkResponse,
    CountResponse,
    TruncateResponse,
    VerifyResponse,
    VocabResponse,
)
from tokenizer_client.schemas.tokens import EncodeResponse

IDS: Final = f"{OCTETS}; dtype=u32"
_BATCH: Final = f"{IDS}; layout=batch"


class SpecialOptions(TypedDict, total=False):
    """Special tokens to recognise in a text (default: all), and to refuse (default: none)."""

    allowed_special: Literal["all", "none"] | Collection[str]
    disallowed_special: Literal["all"] | Collection[str]


class EncodeOptions(SpecialOptions, total=False):
    """Options of an encode request."""

    add_special_tokens: bool
    max_tokens: int | None


class DecodeOptions(TypedDict, total=False):
    """Options of a decode request."""

    skip_special_tokens: bool
    errors: Literal["replace", "strict"]


def encode(session: Session, text: str, **options: Unpack[EncodeOptions]) -> Flow[list[int]]:
    """The token ids of a text.

    Example:
        >>> client.decode(client.encode("low, lower"))
        'low, lower'
    """
    ids: list[int] = (yield from encode_to_numpy(session, text, **options)).tolist()
    return ids


def encode_to_numpy(session: Session, text: str, **options: Unpack[EncodeOptions]) -> Flow[IdArray]:
    """The token ids of a text as an array, shape (n_tokens,), uint32; makes no Python ints.

    Example:
        >>> client.encode_to_numpy("low, lower").dtype
        dtype('uint32')
    """
    response = yield from _encode(session, text, options)
    return parse_id_bytes(response.body)


def encode_batch(
    session: Session, texts: Sequence[str], **options: Unpack[EncodeOptions]
) -> Flow[list[list[int]]]:
    """The token ids of each of many texts, in one request.

    Example:
        >>> client.encode_batch(["low", ""]) == [client.encode("low"), []]
        True
    """
    ids, offsets = yield from encode_batch_to_numpy(session, texts, **options)
    listed: list[int] = ids.tolist()
    bounds = offsets.tolist()
    return [listed[start:end] for start, end in itertools.pairwise(bounds)]


def encode_batch_to_numpy(
    session: Session, texts: Sequence[str], **options: Unpack[EncodeOptions]
) -> Flow[tuple[IdArray, NDArray[np.uint64]]]:
    """The ids of many texts, (n_tokens,) uint32, and offsets, (n_texts + 1,) uint64.

    The ids of text i are `ids[offsets[i]:offsets[i + 1]]`.

    Example:
        >>> ids, offsets = client.encode_batch_to_numpy(["low", "lower"])
        >>> client.decode(ids[offsets[1] : offsets[2]])
        'lower'
    """
    response = yield from _encode(session, list(texts), options)
    packed, offsets = parse_batch(response.body, 4)
    return parse_id_bytes(packed), offsets


def encode_with_pieces(
    session: Session,
    text: str,
    *,
    offset_unit: Literal["byte", "char"] = "byte",
    **options: Unpack[EncodeOptions],
) -> Flow[EncodeResponse]:
    """The ids of a text, the bytes and the offsets of each token, and the tokenizer.

    Example:
        >>> client.encode_with_pieces("low").offsets[0][0]
        0
    """
    wanted = {"return": ["ids", "pieces", "offsets"], "offset_unit": offset_unit}
    request = json_request(session, "/encode", {"text": text, **plain_options(options), **wanted})
    return (yield from exchange(session, request)).parse(EncodeResponse)


def decode(session: Session, ids: Ids, **options: Unpack[DecodeOptions]) -> Flow[str]:
    """The text of token ids, given as a list or a numpy array of integers.

    Example:
        >>> client.decode(client.encode_to_numpy("low, lower"))
        'low, lower'
    """
    body = yield from _decode(session, render_ids(ids), IDS, options)
    return body.decode("utf-8", "replace")


def decode_bytes(session: Session, ids: Ids, **options: Unpack[DecodeOptions]) -> Flow[bytes]:
    """The bytes of token ids, which may be invalid UTF-8.

    Example:
        >>> client.decode_bytes(client.encode("é"))
        b'\\xc3\\xa9'
    """
    return bytes((yield from _decode(session, render_ids(ids), IDS, options)))


def decode_batch(
    session: Session, rows: Sequence[Ids], **options: Unpack[DecodeOptions]
) -> Flow[list[str]]:
    """The text of each of many lists of token ids, in one request.

    Example:
        >>> client.decode_batch(client.encode_batch(["low", "lower"]))
        ['low', 'lower']
    """
    body = yield from _decode(session, render_batch(rows), _BATCH, options)
    joined, offsets = parse_batch(body, 1)
    bounds = offsets.tolist()
    return [
        joined[start:end].decode("utf-8", "replace") for start, end in itertools.pairwise(bounds)
    ]


def count(session: Session, text: str, **options: Unpack[SpecialOptions]) -> Flow[int]:
    """The number of tokens of a text; the service computes no ids.

    Example:
        >>> client.count("low, lower") == len(client.encode("low, lower"))
        True
    """
    counted = yield from _call(session, "/count", CountResponse, {"text": text}, options)
    return cast("int", counted.count)  # a text was sent, not a batch


def count_batch(
    session: Session, texts: Sequence[str], **options: Unpack[SpecialOptions]
) -> Flow[list[int]]:
    """The number of tokens of each of many texts.

    Example:
        >>> client.count_batch(["low", ""])[1]
        0
    """
    fields = {"text": list(texts)}
    counted = yield from _call(session, "/count", CountResponse, fields, options)
    return cast("list[int]", counted.count)  # a batch was sent


def fits(
    session: Session, text: str, max_tokens: int, **options: Unpack[SpecialOptions]
) -> Flow[bool]:
    """Whether a text has at most `max_tokens` tokens; the service stops counting there.

    Example:
        >>> client.fits("low, lower", 1)
        False
    """
    fields = {"text": text, "limit": max_tokens}
    return not (yield from _call(session, "/count", CountResponse, fields, options)).limit_exceeded


def truncate(
    session: Session,
    text: str,
    max_tokens: int,
    *,
    side: Literal["right", "left"] = "right",
    **options: Unpack[SpecialOptions],
) -> Flow[TruncateResponse]:
    """The beginning of a text (`side="left"`: its end) of at most `max_tokens` tokens.

    Never cuts inside a character. `tokens` are the ids of the remaining text.

    Example:
        >>> client.truncate("low, lower", 1000).truncated
        False
    """
    fields = {"text": text, "max_tokens": max_tokens, "side": side}
    return (yield from _call(session, "/truncate", TruncateResponse, fields, options))


def chunk(
    session: Session,
    text: str,
    max_tokens: int,
    *,
    overlap_tokens: int = 0,
    offset_unit: Literal["byte", "char"] = "byte",
    **options: Unpack[SpecialOptions],
) -> Flow[list[Chunk]]:
    """A text in chunks of at most `max_tokens` tokens, each with its ids and its position.

    Example:
        >>> "".join(chunk.text for chunk in client.chunk("low, lower, lowest", 3))
        'low, lower, lowest'
    """
    fields = {
        "text": text,
        "max_tokens": max_tokens,
        "overlap_tokens": overlap_tokens,
        "offset_unit": offset_unit,
    }
    return (yield from _call(session, "/chunk", ChunkResponse, fields, options)).chunks


def verify(session: Session, text: str, **options: Unpack[SpecialOptions]) -> Flow[VerifyResponse]:
    """Whether decoding the ids of a text gives the text, and where it first differs.

    Example:
        >>> client.verify("low, lower").ok
        True
    """
    return (yield from _call(session, "/verify", VerifyResponse, {"text": text}, options))


def verify_ids(session: Session, ids: Sequence[int]) -> Flow[VerifyResponse]:
    """Whether encoding the text of ids gives the ids, and where it first differs.

    Example:
        >>> client.verify_ids(client.encode("low, lower")).ok
        True
    """
    fields = {"tokens": [int(id_) for id_ in ids]}
    return (yield from _call(session, "/verify", VerifyResponse, fields, {}))


def describe_token(session: Session, token_id: int, *, depth: int = 8) -> Flow[VocabResponse]:
    """One token: its bytes, its rank, and the tree of its merges, down to `depth`.

    Example:
        >>> client.describe_token(client.encode("a")[0]).text
        'a'
    """
    query = (("depth", str(depth)), *session.pin_fields.items())
    request = Request("GET", f"/vocab/{int(token_id)}", query, session.pin_headers)
    return (yield from exchange(session, request)).parse(VocabResponse)


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options to JSON values: collections become lists; None values are dropped.

    Example:
        >>> plain_options({"allowed_special": ("a",), "max_tokens": None})
        {'allowed_special': ['a']}
    """
    return {
        name: value if isinstance(value, str | int | float | dict) else list(value)
        for name, value in options.items()
        if value is not None
    }


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


def _encode(session: Session, text: str | list[str], options: EncodeOptions) -> Flow[WholeResponse]:
    # The text comes first because the service parses large bodies fastest in this order.
    fields = {"text": text, **plain_options(options)}
    return exchange(session, json_request(session, "/encode", fields, accept=IDS))


def _decode(session: Session, body: bytes, form: str, options: DecodeOptions) -> Flow[bytearray]:
    headers = {"Content-Type": form, "Accept": OCTETS, **session.pin_headers}
    request = Request("POST", "/decode", query_of(session, options), headers, body)
    return (yield from exchange(session, request)).body


def _call(
    session: Session,
    path: str,
    model: type[Model],
    fields: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Flow[Model]:
    request = json_request(session, path, {**fields, **plain_options(options)})
    return (yield from exchange(session, request)).parse(model)
