"""Conversations to ids: our own route, and those of other servers' clients."""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from tokenizer_client.schemas.chat import (
    ChatEncodeRequest,
    ChatRenderRequest,
    CountTokensRequest,
    InputTokensRequest,
)
from tokenizer_core.chat.encoding import name_of_template
from tokenizer_core.chat.messages import refuse
from tokenizer_core.chat.renderer import RenderLimits
from tokenizer_core.errors import (
    ChatInputError,
    ChatShapeError,
    ChatTemplateError,
    ChatTemplateMissingError,
    SpecialTokenReachedError,
)
from tokenizer_service.access.limits import check_wanted, reserve_memory
from tokenizer_service.handlers.conversations import (
    Conversation,
    from_anthropic,
    from_responses,
    require_shallow,
    with_effort,
)
from tokenizer_service.handlers.encode import check_count, check_detailed
from tokenizer_service.handlers.known_fields import (
    EXTRA_ARGUMENTS,
    SAMPLING,
    validate_borrowed,
    without_nulls,
)
from tokenizer_service.http.bodies import validate
from tokenizer_service.http.id_formats import require_fit
from tokenizer_service.http.json import parse_strict_json
from tokenizer_service.responses.chat import EncodedChat, render_chat, render_generate_request
from tokenizer_service.responses.errors import PlacedError
from tokenizer_service.responses.json_values import Rendered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import BaseModel

    from tokenizer_core.engines import EngineChoice
    from tokenizer_service.http.id_formats import IdsForm
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer
    from tokenizer_service.settings import Settings

    Model = TypeVar("Model", bound=BaseModel)

_SYSTEMS: Final = [{"role": role, "content": "a"} for role in ("system", "user", "system", "user")]
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_CONSTRAINTS: Final = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
"""Fields of `structured_outputs` that constrain the output, of which vLLM takes one."""


def render_limits_of(settings: Settings) -> RenderLimits:
    """What a chat template may use for one conversation."""
    return RenderLimits(settings.chat_memory_bytes, settings.chat_seconds)


def parse_chat(body: bytes, engine: EngineChoice) -> ChatEncodeRequest:
    """Parse a request in our format; raises Problem."""
    value = parse_strict_json(body, engine)
    require_shallow(value)
    return validate(value, ChatEncodeRequest)


def parse_borrowed(body: bytes, engine: EngineChoice, *, model: type[Model]) -> Model:
    """Parse a request in another server's format; raises Problem."""
    value = without_nulls(parse_strict_json(body, engine))
    require_shallow(value)
    return validate_borrowed(value, model)


def encode_chat(
    request: ChatEncodeRequest, live: LiveTokenizer, *, form: IdsForm | None, limits: RenderLimits
) -> Rendered:
    """Encode the conversation of `request`; the response is JSON, or ids in `form`.

    Raises:
        Problem: 406 for ids too large for `form`.
        ChatShapeError: `return` asks for more than the ids, and `form` holds no more.
        TooManyTokensError: more than `max_tokens`.
        Exception: as `encode_conversation`.
    """
    if form is not None:
        require_fit(form, live.tokenizer.spec.largest_id)
        if set(request.returned) != {"ids"}:
            refuse("/return", "a binary response holds the ids alone; take JSON for the rest")
    conversation = replace(
        _conversation_of(request, request.chat_template_kwargs),
        messages_form=request.messages_form,
        with_loss="mask" in request.returned,
        added_tokens=request.added_tokens,
    )
    chat = encode_conversation(conversation, live, limits)
    check_count(len(chat.ids), request.max_tokens, "/messages")
    return render_chat(request, chat, live, form)


def make_generate_request(
    request: ChatRenderRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Encode a chat completion; the response is what vLLM's `/inference/v1/generate` takes.

    Raises:
        ChatShapeError: it asks for what only a server with a model can do.
        Exception: as `encode_conversation`.
    """
    extra: Mapping[str, Any] = request.model_extra or {}
    if extra.get("tool_choice", "auto") not in ("auto", "none"):
        # As the model's tool parser would, which only its own server has.
        refuse("/tool_choice", "cannot constrain the output here; send structured_outputs")
    if "prompt_token_ids" in _object(extra, "kv_transfer_params"):
        refuse("/kv_transfer_params/prompt_token_ids", "would replace those of the messages")
    sampling = _sampling_parameters(extra)
    kwargs = with_effort(request.chat_template_kwargs, request.reasoning_effort)
    chat = encode_chat_completion(request, live, limits, kwargs)
    with_offsets = bool(request.return_token_offsets)
    if with_offsets:
        check_detailed(len(chat.ids))
    is_stream = bool(extra.get("stream"))
    fields = {
        "features": None,
        "sampling_params": sampling,
        "model": request.model,
        "stream": is_stream,
        "stream_options": extra.get("stream_options") if is_stream else None,
        "cache_salt": extra.get("cache_salt"),
        "priority": extra.get("priority") or 0,
        **{name: extra.get(name) for name in EXTRA_ARGUMENTS},
        "return_token_ids": extra.get("return_token_ids"),
        "reasoning_ended": True if extra.get("include_reasoning") is False else None,
    }
    request_id = extra.get("request_id") or f"chatcmpl-{uuid.uuid4().hex}"
    if not isinstance(request_id, str):
        refuse("/request_id", "must be a string")
    return render_generate_request(request_id, chat, live, fields, with_offsets=with_offsets)


def count_messages(
    request: CountTokensRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Count the tokens of a request to Anthropic's API; raises as `encode_conversation`.

    As vLLM, it asks the template whether a system message may follow others, and whether it reads
    the effort `none` as another one.
    """
    conversation = from_anthropic(request)
    name, _ = choose_template(conversation, live)

    def write(messages: list[dict[str, Any]], effort: str | None = None) -> str | None:
        try:
            return live.tokenizer.render_chat(
                messages,
                chat_template=name,
                add_generation_prompt=True,
                template_kwargs=with_effort(None, effort),
                messages_form="vllm",
                limits=limits,
            ).text
        except (ChatInputError, ChatTemplateError):
            return None

    has_systems = any(message["role"] == "system" for message in conversation.messages[1:])
    merges_system = has_systems and write(_SYSTEMS) is None
    without_thinking = "none"
    if (request.thinking or {}).get("type") == "disabled":
        none = write(_SYSTEMS[1:2], "none")
        if none is None or any(write(_SYSTEMS[1:2], effort) == none for effort in _EFFORTS):
            without_thinking = "low"
    conversation = from_anthropic(
        request, merges_system=merges_system, without_thinking=without_thinking
    )
    chat = encode_conversation(conversation, live, limits)
    return chat.rendered([b'{"input_tokens":%d}' % len(chat.ids)])


def count_input(
    request: InputTokensRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Count the tokens of a request to OpenAI's responses; raises as `encode_conversation`."""
    chat = encode_conversation(from_responses(request), live, limits)
    return chat.rendered([b'{"object":"response.input_tokens","input_tokens":%d}' % len(chat.ids)])


def encode_chat_completion(
    request: Any, live: LiveTokenizer, limits: RenderLimits, kwargs: Mapping[str, Any]
) -> EncodedChat:
    """Encode the messages of a request with the fields that vLLM's routes share; raises as
    `encode_conversation`."""
    conversation = _conversation_of(request, kwargs)
    conversation.add_special_tokens = request.add_special_tokens
    if conversation.documents is None:
        conversation.documents = conversation.kwargs.pop("documents", None)
    if request.continue_final_message and "add_generation_prompt" not in request.model_fields_set:
        conversation.add_generation_prompt = False
    return encode_conversation(conversation, live, limits)


def _conversation_of(request: Any, kwargs: Mapping[str, Any] | None) -> Conversation:
    return Conversation(
        request.messages,
        tools=request.tools,
        documents=getattr(request, "documents", None),
        chat_template=request.chat_template,
        kwargs=dict(kwargs or {}),
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
    )


def encode_conversation(
    conversation: Conversation, live: LiveTokenizer, limits: RenderLimits
) -> EncodedChat:
    """Render and encode a conversation; control tokens come from the template only.

    Raises:
        PlacedError: the template does not take the messages, fails, or needs more than `limits`,
            or the tokenizer does not have it.
        ChatShapeError: a message or tool has another shape than `messages_form` can carry; its
            place is a JSON pointer into the request.
    """
    check_wanted()
    name, source = choose_template(conversation, live)
    with placing_errors(conversation):
        encoding = live.tokenizer.encode_chat(
            conversation.messages,
            tools=conversation.tools,
            documents=conversation.documents,
            chat_template=name,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            template_kwargs=conversation.kwargs,
            added_tokens=conversation.added_tokens,
            messages_form=conversation.messages_form,
            limits=limits,
            with_loss=conversation.with_loss,
        )
    reserve_memory(len(encoding.text) + encoding.ids.nbytes)
    digest = sha256(source.encode()).hexdigest()
    spec = live.tokenizer.spec
    if not conversation.add_special_tokens or not (spec.prefix_ids or spec.suffix_ids):
        return EncodedChat(encoding, encoding.ids, name, digest)
    parts = [np.array(spec.prefix_ids), encoding.ids, np.array(spec.suffix_ids)]
    ids = np.concatenate(parts).astype(np.uint32)
    return EncodedChat(encoding, ids, name, digest, len(spec.prefix_ids))


@contextmanager
def placing_errors(conversation: Conversation) -> Iterator[None]:
    """Name the place in the request of what is wrong with a conversation.

    Raises:
        PlacedError, ChatShapeError: as `encode_conversation`.
    """
    try:
        yield
    except ChatShapeError as error:
        index = error.message_index
        pointer = conversation.place if index is None else conversation.pointer(index)
        raise ChatShapeError(f"{pointer}{error.place}", error.detail) from None
    except (ChatInputError, ChatTemplateError) as error:
        index = error.message_index
        whole = f"{conversation.place}/messages"
        raise PlacedError(error, whole if index is None else conversation.pointer(index)) from None
    except SpecialTokenReachedError as error:
        detail = (
            f"As plain text, a part of the conversation gives id {error.token_id} of a control "
            f"token, which the vocabulary's merges make. Leave that text out, or name another "
            f"tokenizer."
        )
        raise PlacedError(error, f"{conversation.place}/messages", detail) from None


def choose_template(conversation: Conversation, live: LiveTokenizer) -> tuple[str, str]:
    """Name and source of the template of a conversation.

    Raises:
        PlacedError: the tokenizer does not have it.
    """
    templates, named = live.tokenizer.chat_templates, conversation.chat_template
    name = name_of_template(templates, named, with_tools=conversation.tools is not None)
    if name in templates:
        return name, templates[name]
    if not templates:
        detail = (
            "This tokenizer has no chat template. Publish a version with one: `tokenizer import "
            f"{live.ref.name} --name {live.ref.name} --chat-template FILE` adds it, `tokenizer "
            "import FOLDER` takes that of a model's folder. Or apply the template yourself and "
            "send the text."
        )
    else:
        detail = (
            f"The tokenizer has no chat template of this name; it has {', '.join(templates)}. A "
            f"request names a template and never holds its source."
        )
    pointer = f"{conversation.place}/messages" if named is None else "/chat_template"
    raise PlacedError(ChatTemplateMissingError(detail), pointer, detail)


def _sampling_parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a chat completion sets, under the names of vLLM's sampling parameters.

    Raises:
        Problem: 422 for a constraint of the output that is of another shape, or the second one.
    """
    found = {name: fields[name] for name in SAMPLING if fields.get(name) is not None}
    if fields.get("logprobs") and not fields.get("logprob_token_ids"):
        found["logprobs"] = fields.get("top_logprobs") or 0
    if fields.get("echo"):
        found.setdefault("prompt_logprobs", fields.get("top_logprobs") or 0)
    constraint = _structured_outputs(fields)
    if constraint:
        found["structured_outputs"] = constraint
    arguments = dict(_object(fields, "vllm_xargs"))
    arguments |= {name: given for name in EXTRA_ARGUMENTS if (given := _object(fields, name))}
    if arguments:
        found["extra_args"] = arguments
    for name in ("max_completion_tokens", "max_tokens"):
        if fields.get(name) is not None:
            found["max_tokens"] = fields[name]
            break
    return found


def _structured_outputs(fields: Mapping[str, Any]) -> dict[str, Any]:
    """`response_format` and `structured_outputs` as vLLM joins them."""
    joined = dict(_object(fields, "structured_outputs"))
    given = _object(fields, "response_format")
    kind = given.get("type", "text" if not given else None)
    if kind == "json_object":
        constraint: dict[str, Any] = {"json_object": True}
    elif kind == "json_schema":
        schema = _object(given, "json_schema", "/response_format").get("schema")
        if not isinstance(schema, dict):
            refuse("/response_format/json_schema/schema", "must be an object")
        constraint = {"json": schema}
    elif kind == "structural_tag":
        constraint = {"structural_tag": json.dumps(given)}
    elif kind == "text":
        constraint = {}
    else:
        known = "text, json_object, json_schema or structural_tag"
        refuse("/response_format/type", f"must be {known}")
    if sum(joined.get(name) is not None for name in _CONSTRAINTS) + len(constraint) > 1:
        refuse("/structured_outputs", "is a second constraint of the output; send one")
    return joined | constraint


def _object(fields: Mapping[str, Any], name: str, place: str = "") -> dict[str, Any]:
    """The object in field `name`, empty if it is absent."""
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        refuse(f"{place}/{name}", "must be an object")
    return value or {}
