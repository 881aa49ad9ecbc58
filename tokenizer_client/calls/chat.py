"""Calls about conversations: messages to ids, as the chat template of the tokenizer writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, Unpack

from tokenizer_client.calls.exchange import (
    Flow,
    exchange,
    json_request,
    require_media_type,
    require_same,
)
from tokenizer_client.calls.retries import Session
from tokenizer_client.calls.text import IDS, AddedTokens, check_most_tokens, plain_options
from tokenizer_client.calls.wire_formats import IdArray, parse_id_bytes
from tokenizer_client.errors import UnexpectedResponseError
from tokenizer_client.schemas.chat import ChatEncodeResponse, MessagesForm
from tokenizer_client.schemas.token_files import LossRule

Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""Objects with `role`, `content` and what else the chat template reads."""


class ChatOptions(TypedDict, total=False):
    """What a chat template reads beside the messages."""

    tools: Sequence[Mapping[str, Any]] | None
    documents: Sequence[Mapping[str, Any]] | None
    chat_template: str | None
    add_generation_prompt: bool
    continue_final_message: bool | str
    template_kwargs: Mapping[str, Any] | None
    added_tokens: AddedTokens
    messages_form: MessagesForm
    max_tokens: int | None


def encode_chat(
    session: Session, messages: Messages, **options: Unpack[ChatOptions]
) -> Flow[list[int]]:
    """The token ids of a conversation."""
    ids: list[int] = (yield from _encode(session, messages, options, "encode_chat")).tolist()
    return ids


def encode_chat_to_numpy(
    session: Session, messages: Messages, **options: Unpack[ChatOptions]
) -> Flow[IdArray]:
    """The token ids of a conversation as an array, shape (n_tokens,), uint32."""
    return _encode(session, messages, options, "encode_chat_to_numpy")


def encode_chat_with_mask(
    session: Session,
    messages: Messages,
    *,
    loss_rule: LossRule = "auto",
    turn_ends: Sequence[str] = (),
    **options: Unpack[ChatOptions],
) -> Flow[ChatEncodeResponse]:
    """The ids of a conversation, its text, which tokens the assistant writes, and those of each
    message."""
    fields = _fields(messages, options, "encode_chat_with_mask")
    fields |= {"return": ["ids", "text", "mask", "spans"], "loss_rule": loss_rule}
    fields |= {"turn_ends": list(turn_ends)} if turn_ends else {}
    response = yield from exchange(session, json_request(session, "/chat/encode", fields))
    found = response.parse(ChatEncodeResponse)
    if found.text is None or found.spans is None:
        raise UnexpectedResponseError("the response has no text or no spans of the messages")
    for part in (found.tokens, found.mask):
        require_same("number of tokens", found.count, -1 if part is None else len(part))
    if fields.get("messages_form") != "vllm":  # which joins system messages
        require_same("number of messages", len(found.spans), len(fields["messages"]))
    bounds = [span.tokens for span in found.spans if span.tokens is not None]
    if not all(0 <= start <= end <= found.count for start, end in bounds):
        raise UnexpectedResponseError("a message in the response has tokens that are not there")
    check_most_tokens(found.count, options.get("max_tokens"))
    return found


def count_chat(session: Session, messages: Messages, **options: Unpack[ChatOptions]) -> Flow[int]:
    """The number of tokens of a conversation."""
    fields = {**_fields(messages, options, "count_chat"), "return": []}
    response = yield from exchange(session, json_request(session, "/chat/encode", fields))
    count = response.parse(ChatEncodeResponse).count
    check_most_tokens(count, options.get("max_tokens"))
    return count


def _encode(
    session: Session, messages: Messages, options: ChatOptions, method: str
) -> Flow[IdArray]:
    fields = _fields(messages, options, method)
    request = json_request(session, "/chat/encode", fields, accept=IDS)
    response = yield from exchange(session, request)
    require_media_type(response.headers, IDS)
    ids = parse_id_bytes(response.body)
    check_most_tokens(len(ids), options.get("max_tokens"))
    return ids


def _fields(messages: Any, options: ChatOptions, method: str) -> dict[str, Any]:
    """The fields of a request; raises TypeError for messages of another form."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        kind = type(messages).__name__
        raise TypeError(f"{method}() takes a list of messages, not {kind}; give a list of dicts")
    listed = list(messages)
    for index, message in enumerate(listed):
        if not isinstance(message, Mapping):
            kind = type(message).__name__
            raise TypeError(f"{method}(): messages[{index}] is {kind}, not a dict with role")
    fields = plain_options(options)
    if (variables := options.get("template_kwargs")) is not None:
        del fields["template_kwargs"]
        fields["chat_template_kwargs"] = dict(variables)
    return {"messages": listed, **fields}
