"""POST /tokenize in the dialect of the key that holds the text."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from tokenizer_client.schemas.dialects import (
    DIALECTS,
    ContentRequest,
    InputsRequest,
    MessagesRequest,
    PromptRequest,
    TokenizeRequest,
)
from tokenizer_core.chat.renderer import RenderLimits
from tokenizer_core.engines import EngineChoice
from tokenizer_core.specials.policy import Policy
from tokenizer_service.handlers.chat import encode_chat_completion
from tokenizer_service.handlers.conversations import require_shallow
from tokenizer_service.handlers.encode import check_detailed, encode_all, sources_of
from tokenizer_service.handlers.known_fields import validate_borrowed, without_nulls
from tokenizer_service.http.dialect_errors import SGLANG, Dialect
from tokenizer_service.http.json import parse_body_json
from tokenizer_service.http.problem import Problem
from tokenizer_service.responses.chat import template_header
from tokenizer_service.responses.decode import sizes_of
from tokenizer_service.responses.dialects import (
    render_content,
    render_inputs,
    render_plain_text,
    render_prompts,
)
from tokenizer_service.responses.encode import Encoded, place_around
from tokenizer_service.responses.json_values import Rendered, utf8_length
from tokenizer_service.serving.live_tokenizer import LiveTokenizer


def parse_tokenize(
    body: bytes, engine: EngineChoice | None = None, *, choose: Callable[[str], None]
) -> TokenizeRequest:
    """Parse the request in `body`, in the dialect of its key, which `choose` gets."""
    value = without_nulls(parse_body_json(body, engine))
    keys = [key for key in DIALECTS if isinstance(value, dict) and key in value]
    if len(keys) != 1:
        given = " and ".join(keys) or "none of them"
        raise Problem(
            422,
            "ambiguous_dialect" if keys else "invalid_request",
            f"The body must be a JSON object with one of {', '.join(DIALECTS)}, which decides the "
            f"format of the response; it has {given}.",
            errors=[(f"/{key}", "one of several texts") for key in keys] or [("", "no text")],
        )
    choose(keys[0])
    if keys == ["messages"]:
        require_shallow(value)
    return validate_borrowed(value, DIALECTS[keys[0]])


def tokenize(
    request: TokenizeRequest,
    live: LiveTokenizer,
    *,
    limits: RenderLimits,
    as_dialect: Dialect | None,
) -> Rendered:
    """Encode the text of `request` and render the response of its dialect; `limits` are those of
    the chat template for messages. SGLang's response, by `as_dialect`, has no token strings.
    """
    with_strings = getattr(request, "return_token_strs", None)
    if as_dialect is SGLANG:
        with_strings = None
    if isinstance(request, MessagesRequest):
        chat = encode_chat_completion(request, live, limits, request.chat_template_kwargs or {})
        if request.return_token_strs:
            check_detailed(len(chat.ids))
        texts = [Encoded(chat.ids, utf8_length(chat.text))]
        rendered = render_prompts(texts, live, with_strings, is_batch=False)
        return rendered._replace(headers=template_header(chat.template))
    if isinstance(request, PromptRequest):
        texts = encode_all(
            sources_of(request.prompt),
            live,
            is_detailed=request.return_token_strs,
            add_special_tokens=request.add_special_tokens,
        )
        is_batch = isinstance(request.prompt, list)
        return render_prompts(texts, live, with_strings, is_batch=is_batch)
    if isinstance(request, ContentRequest):
        content = _encode_content(request, live)
        return render_content(content, live, with_pieces=request.with_pieces)
    if isinstance(request, InputsRequest):
        return _tokenize_inputs(request, live)
    [text] = encode_all(sources_of(request.text), live, is_detailed=True)
    return render_plain_text(text, live)


def _encode_content(request: ContentRequest, live: LiveTokenizer) -> Encoded:
    """As llama.cpp: a list is one prompt, and only its first entry, if a text, gets the ids of the
    post-processor.
    """
    content, policy = request.content, Policy("all" if request.parse_special else "none")
    entries = [content] if isinstance(content, str) else content
    found: list[NDArray[np.uint32]] = [np.empty(0, np.uint32)]
    index = n_bytes = n_tokens = 0
    for is_text, run in groupby(entries, lambda entry: isinstance(entry, str)):
        for part in run if is_text else [list(run)]:
            if isinstance(part, str):
                pointer = "/content" if content is part else f"/content/{index}"
                adds = request.add_special and index == 0
                [text] = encode_all([(pointer, part)], live, policy, add_special_tokens=adds)
                found.append(text.ids)
                n_bytes += text.n_bytes
                index += 1
            else:
                found.append(np.array(part, dtype=np.uint32))
                sizes_of(found[-1], live, "/content", first_index=index)
                index += len(found[-1])
            n_tokens += len(found[-1])
            if request.with_pieces:
                check_detailed(n_tokens)
    return Encoded(np.concatenate(found), n_bytes)


def _tokenize_inputs(request: InputsRequest, live: LiveTokenizer) -> Rendered:
    """As text-embeddings-inference: the post-processor's tokens are at -1, and a token with a part
    of a character covers the whole character. Raises Problem, 400, for an empty list."""
    if request.inputs == []:
        raise Problem(400, "empty_inputs", "`inputs` cannot be empty")
    inputs = request.inputs if isinstance(request.inputs, list) else [request.inputs]
    placed: list[Encoded] = []
    adds = request.add_special_tokens
    encoded = encode_all(
        sources_of(inputs), live, is_detailed=True, unit="byte", add_special_tokens=adds
    )
    for text, (ids, n_bytes, found) in zip(inputs, encoded, strict=True):
        offsets = found.astype(np.int64)
        if not text.isascii():
            data = np.frombuffer(text.encode(), dtype=np.uint8)
            bounds = np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))
            starts, stops = offsets.T
            starts = bounds[np.searchsorted(bounds, starts, side="right") - 1]
            stops = bounds[np.searchsorted(bounds, stops, side="left")]
            offsets = np.stack([starts, stops], axis=1)
        if adds:
            place_around(offsets, live.around, -1)
        placed.append(Encoded(ids, n_bytes, offsets))
    return render_inputs(inputs, placed, live)
