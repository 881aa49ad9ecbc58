"""Ids that stay, and those of the text or the messages after them: /extend."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tokenizer_client.schemas.extend import (
    ExtendBatchRequest,
    ExtendChatBatchRequest,
    ExtendChatRequest,
    ExtendRequest,
)
from tokenizer_core.chat.renderer import RenderLimits
from tokenizer_core.engines import EngineChoice
from tokenizer_core.errors import ChatLimitError
from tokenizer_core.spec.chat_templates import ChosenTemplate
from tokenizer_core.text.drift import Extension
from tokenizer_service.access.work_queue import check_not_abandoned, reserve_memory
from tokenizer_service.handlers.chat import find_template, placing_errors
from tokenizer_service.handlers.conversations import RequestedConversation, require_shallow
from tokenizer_service.handlers.encode import BYTES_PER_ID, check_count, policy_of
from tokenizer_service.http.bodies import validate
from tokenizer_service.http.json import parse_body_json
from tokenizer_service.responses.decode import check_decoded_size
from tokenizer_service.responses.errors import InvalidFieldError, refused_text
from tokenizer_service.responses.extend import Extended, render_extended
from tokenizer_service.responses.json_values import Rendered
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

TextRequest = ExtendRequest | ExtendBatchRequest
ChatRequest = ExtendChatRequest | ExtendChatBatchRequest

_TOO_LONG: Final = "the conversations of a batch have the time of one request: send fewer at once"


def parse_extend(body: bytes, engine: EngineChoice) -> TextRequest | ChatRequest:
    """Parse a request, which has messages or a text, of one or of a batch; raises Problem."""
    value = parse_body_json(body, engine)
    batch = value.get("batch") if isinstance(value, dict) else None
    first = batch[0] if isinstance(batch, list) and batch else value
    is_chat = isinstance(first, dict) and "messages" in first
    if is_chat:
        require_shallow(value)
    kinds: dict[tuple[bool, bool], type[TextRequest | ChatRequest]] = {
        (False, False): ExtendRequest,
        (False, True): ExtendBatchRequest,
        (True, False): ExtendChatRequest,
        (True, True): ExtendChatBatchRequest,
    }
    return validate(value, kinds[is_chat, batch is not None])


def extend(
    request: TextRequest | ChatRequest,
    live: LiveTokenizer,
    *,
    max_decoded_bytes: int,
    limits: RenderLimits,
) -> Rendered:
    """Extend the ids of `request`, or of each of its batch."""
    items: list[tuple[str, Any]] = [("", request)]
    if is_batch := isinstance(request, ExtendBatchRequest | ExtendChatBatchRequest):
        items = [(f"/batch/{index}", item) for index, item in enumerate(request.batch)]
    rows = [(item.tokens, f"{place}/tokens") for place, item in items]
    check_decoded_size(rows, live, max_decoded_bytes)
    end = time.monotonic() + limits.seconds
    extended = []
    for place, item in items:
        check_not_abandoned()
        template = None
        if isinstance(request, ExtendChatRequest | ExtendChatBatchRequest):
            left = replace(limits, seconds=end - time.monotonic())
            found, template = _extend_chat(place, item, request, live, left)
        else:
            found = _extend_text(place, item, request, live)
        check_count(len(found.ids), request.max_tokens, f"{place}/tokens")
        ids = np.array(found.ids, dtype=np.uint32)
        reserve_memory(BYTES_PER_ID * len(ids))
        extended.append(Extended(ids, len(item.tokens), item.mask, found.drift_at, template))
    return render_extended(extended, live, is_batch=is_batch)


def _extend_text(place: str, item: Any, request: TextRequest, live: LiveTokenizer) -> Extension:
    if item.segments is None:
        policy, pointer = policy_of(request, live), f"{place}/text"
        options: dict[str, Any] = policy.options
    else:
        pointer, options = f"{place}/segments", {"added_tokens": request.added_tokens}
        if request.allowed_special != "all" or request.disallowed_special:
            reason = "allowed_special and disallowed_special belong to text, not to segments"
            raise InvalidFieldError(pointer, reason)
    source = item.text if item.segments is None else item.segments
    try:
        return live.tokenizer.extend(item.tokens, source, **options)
    except ValueError as error:
        raise refused_text(error, pointer) from None


def _extend_chat(
    place: str, item: Any, request: ChatRequest, live: LiveTokenizer, limits: RenderLimits
) -> tuple[Extension, ChosenTemplate]:
    earlier, messages = item.messages_before, item.messages
    pointers = [f"{place}/messages_before/{index}" for index in range(len(earlier))]
    pointers += [f"{place}/messages/{index}" for index in range(len(messages))]
    conversation = RequestedConversation(
        [*earlier, *messages],
        pointers,
        place,
        tools=item.tools,
        chat_template=request.chat_template,
    )
    template = find_template(conversation, live)
    with placing_errors(conversation):
        if limits.seconds <= 0:
            raise ChatLimitError(_TOO_LONG)
        found = live.tokenizer.extend_chat(
            item.tokens,
            earlier,
            messages,
            tools=item.tools,
            documents=item.documents,
            chat_template=template,
            add_generation_prompt=request.add_generation_prompt,
            template_kwargs=request.chat_template_kwargs,
            added_tokens=request.added_tokens,
            messages_form=request.messages_form,
            limits=limits,
        )
    return found, template
