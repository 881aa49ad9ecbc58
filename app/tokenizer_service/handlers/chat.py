"""Conversations to ids: our own route, and those of other servers' clients."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tokenizer_client.schemas.chat import (
    ChatEncodeRequest,
    ChatInputRequest,
    CountTokensRequest,
    GeminiCountRequest,
    InputTokensRequest,
)
from tokenizer_core.chat.renderer import RenderLimits
from tokenizer_core.errors import (
    ChatInputError,
    ChatShapeError,
    ChatTemplateError,
    ChatTemplateMissingError,
    SpecialTokenReachedError,
)
from tokenizer_core.spec.chat_templates import choose_template
from tokenizer_service.access.work_queue import check_not_abandoned, reserve_memory
from tokenizer_service.handlers.conversations import (
    RequestedConversation,
    from_anthropic,
    from_gemini,
    from_responses,
    require_shallow,
    with_effort,
)
from tokenizer_service.handlers.encode import check_count, require_ids_alone
from tokenizer_service.handlers.known_fields import validate_borrowed, without_nulls
from tokenizer_service.http.bodies import validate
from tokenizer_service.http.json import parse_body_json
from tokenizer_service.responses.chat import render_chat_response, rendered_for
from tokenizer_service.responses.errors import PlacedError
from tokenizer_service.responses.json_values import Rendered, dump, render_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import BaseModel

    from tokenizer_core.chat.loss_mask import ChatEncoding
    from tokenizer_core.engines import EngineChoice
    from tokenizer_core.spec.chat_templates import ChosenTemplate
    from tokenizer_service.http.id_formats import IdsForm
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer
    from tokenizer_service.settings import Settings

    Model = TypeVar("Model", bound=BaseModel)

_SYSTEMS: Final = [{"role": role, "content": "a"} for role in ("system", "user", "system", "user")]
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")


def render_limits_of(settings: Settings) -> RenderLimits:
    """What a chat template may use for one conversation."""
    return RenderLimits(settings.chat_memory_bytes, settings.chat_seconds)


def parse_chat(body: bytes, engine: EngineChoice) -> ChatEncodeRequest:
    """Parse a request in our format; raises Problem."""
    value = parse_body_json(body, engine)
    require_shallow(value)
    return validate(value, ChatEncodeRequest)


def parse_borrowed(body: bytes, engine: EngineChoice, *, model: type[Model]) -> Model:
    """Parse a request in another server's format; raises Problem."""
    value = without_nulls(parse_body_json(body, engine))
    require_shallow(value)
    return validate_borrowed(value, model)


def encode_chat(
    request: ChatEncodeRequest, live: LiveTokenizer, *, form: IdsForm | None, limits: RenderLimits
) -> Rendered:
    """Encode the conversation of `request`; the response is JSON, or ids in `form`."""
    if form is not None:
        require_ids_alone(request, form, live)
    conversation = replace(
        _conversation_of(request, request.chat_template_kwargs),
        messages_form=request.messages_form,
        with_loss="mask" in request.returned,
        added_tokens=request.added_tokens,
    )
    chat = encode_conversation(conversation, live, limits)
    check_count(len(chat.ids), request.max_tokens, "/messages")
    return render_chat_response(request, chat, live, form)


def count_messages(
    request: CountTokensRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Count the tokens of a request to Anthropic's API; raises as `encode_conversation`."""
    chat = encode_conversation(conversation_of_anthropic(request, live, limits), live, limits)
    return rendered_for(chat, [b'{"input_tokens":%d}' % len(chat.ids)])


def conversation_of_anthropic(
    request: CountTokensRequest, live: LiveTokenizer, limits: RenderLimits
) -> RequestedConversation:
    """The conversation of a request to Anthropic's API.

    As vLLM, it asks the template whether a system message may follow others, and whether it reads
    the effort `none` as another one.
    """
    conversation = from_anthropic(request)
    template = find_template(conversation, live)

    def write(messages: list[dict[str, Any]], effort: str | None = None) -> str | None:
        try:
            return live.tokenizer.render_chat(
                messages,
                chat_template=template,
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
    return from_anthropic(request, merges_system=merges_system, without_thinking=without_thinking)


def count_input(
    request: InputTokensRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Count the tokens of a request to OpenAI's responses; raises as `encode_conversation`."""
    return _counted(encode_conversation(from_responses(request), live, limits))


def count_gemini(
    request: GeminiCountRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Count the tokens of a request to Gemini's API; raises as `encode_conversation`."""
    chat = encode_conversation(from_gemini(request), live, limits)
    n_tokens = len(chat.ids)
    details = [{"modality": "TEXT", "tokenCount": n_tokens}]
    return rendered_for(chat, [dump({"totalTokens": n_tokens, "promptTokensDetails": details})])


def count_chat(request: ChatInputRequest, live: LiveTokenizer, *, limits: RenderLimits) -> Rendered:
    """Count the tokens of a chat completion as llama.cpp; raises as `encode_conversation`.

    What the post-processor adds counts once, also where the template does not write it.
    """
    chat = _encode_chat_input(request, live, limits)
    if "add_special_tokens" in request.model_fields_set:
        return _counted(chat)
    around = live.tokenizer.spec.prefix_ids + live.tokenizer.spec.suffix_ids
    begin, end = _written_around(chat, live)
    return _counted(chat, len(around) - len(begin) - len(end))


def apply_template(
    request: ChatInputRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """The text of a chat completion as llama.cpp; raises as `encode_conversation`.

    It is without what the post-processor adds: `/tokenize` with `add_special` and llama.cpp's
    `/completion` add that, and would repeat it.
    """
    chat = _encode_chat_input(request, live, limits)
    begin, end = map(live.tokenizer.decode, _written_around(chat, live))
    text = chat.text.removeprefix(begin).removesuffix(end)
    return rendered_for(chat, [b'{"prompt":', *render_text(text), b"}"])


def _written_around(
    chat: ChatEncoding, live: LiveTokenizer
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the post-processor adds before and after a text, as far as `chat` has them."""
    begin, end = live.tokenizer.spec.prefix_ids, live.tokenizer.spec.suffix_ids
    head, tail = chat.ids[: len(begin)], chat.ids[len(chat.ids) - len(end) :]
    return (
        begin if tuple(head.tolist()) == begin else (),
        end if tuple(tail.tolist()) == end else (),
    )


def _encode_chat_input(
    request: ChatInputRequest, live: LiveTokenizer, limits: RenderLimits
) -> ChatEncoding:
    """Encode a chat completion; as llama.cpp, it asks for thinking, and continues a last message of
    the assistant, unless the request says otherwise."""
    last = request.messages[-1]
    is_continued = last.get("role") == "assistant" and bool(last.get("content"))
    is_continued = is_continued and not last.get("tool_calls")
    says_otherwise = "continue_final_message" in request.model_fields_set
    if is_continued and request.add_generation_prompt and not says_otherwise:
        ends = {"continue_final_message": True, "add_generation_prompt": False}
        request = request.model_copy(update=ends)
    kwargs = with_effort(request.chat_template_kwargs, request.reasoning_effort)
    return encode_chat_completion(request, live, limits, {"enable_thinking": True, **kwargs})


def _counted(chat: ChatEncoding, n_more: int = 0) -> Rendered:
    body = b'{"object":"response.input_tokens","input_tokens":%d}' % (len(chat.ids) + n_more)
    return rendered_for(chat, [body])


def encode_chat_completion(
    request: Any, live: LiveTokenizer, limits: RenderLimits, kwargs: Mapping[str, Any]
) -> ChatEncoding:
    """Encode the messages of a request with the fields that vLLM's routes share; raises as
    `encode_conversation`."""
    conversation = _conversation_of(request, kwargs)
    conversation.add_special_tokens = request.add_special_tokens
    if conversation.documents is None:
        conversation.documents = conversation.kwargs.pop("documents", None)
    if request.continue_final_message and "add_generation_prompt" not in request.model_fields_set:
        conversation.add_generation_prompt = False
    return encode_conversation(conversation, live, limits)


def _conversation_of(request: Any, kwargs: Mapping[str, Any] | None) -> RequestedConversation:
    return RequestedConversation(
        request.messages,
        tools=request.tools,
        documents=getattr(request, "documents", None),
        chat_template=request.chat_template,
        kwargs=dict(kwargs or {}),
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
    )


def encode_conversation(
    conversation: RequestedConversation, live: LiveTokenizer, limits: RenderLimits
) -> ChatEncoding:
    """Render and encode a conversation; control tokens come from the template only.

    Raises:
        PlacedError: the template does not take the messages, fails, or needs more than `limits`,
            or the tokenizer does not have it.
        ChatShapeError: a message or tool has another shape than `messages_form` can carry; its
            place is a JSON pointer into the request.
    """
    check_not_abandoned()
    template = find_template(conversation, live)
    with placing_errors(conversation):
        chat = live.tokenizer.encode_chat(
            conversation.messages,
            tools=conversation.tools,
            documents=conversation.documents,
            chat_template=template,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            template_kwargs=conversation.kwargs,
            added_tokens=conversation.added_tokens,
            add_special_tokens=conversation.add_special_tokens,
            messages_form=conversation.messages_form,
            limits=limits,
            with_loss=conversation.with_loss,
        )
    reserve_memory(len(chat.text) + chat.ids.nbytes)
    return chat


@contextmanager
def placing_errors(conversation: RequestedConversation) -> Iterator[None]:
    """Name the place in the request of what is wrong with a conversation."""
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


def find_template(conversation: RequestedConversation, live: LiveTokenizer) -> ChosenTemplate:
    """The tokenizer's template for a conversation; raises PlacedError if it has none."""
    templates, named = live.tokenizer.chat_templates, conversation.chat_template
    with suppress(ChatTemplateMissingError):
        template = choose_template(templates, named, with_tools=conversation.tools is not None)
        if template.is_own:
            return template
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
