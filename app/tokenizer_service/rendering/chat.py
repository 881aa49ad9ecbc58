"""Responses to requests with a conversation: pure functions without HTTP."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_client.schemas.chat import (
    ChatEncodeRequest,
    ChatRenderRequest,
    CountTokensRequest,
    InputTokensRequest,
)
from tokenizer_core.chat.content_loops import loops_over_content
from tokenizer_core.chat.renderer import RenderLimits
from tokenizer_core.errors import ChatInputError, ChatTemplateError, SpecialTokenReachedError
from tokenizer_core.offsets import char_offsets
from tokenizer_service.access.limits import check_wanted, reserve_memory
from tokenizer_service.http.id_formats import render_ids_form, require_fit
from tokenizer_service.http.problem import Problem
from tokenizer_service.rendering.conversations import (
    Conversation,
    as_vllm,
    from_anthropic,
    from_responses,
)
from tokenizer_service.rendering.encode import check_counts, check_detailed
from tokenizer_service.rendering.json_values import (
    Rendered,
    dump,
    render_ids,
    render_text,
    utf8_length,
)
from tokenizer_service.rendering.problems import problem_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokenizer_core.chat.encoding import ChatEncoding
    from tokenizer_service.http.id_formats import IdsForm
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer
    from tokenizer_service.settings import Settings

_SAMPLING: Final = (
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "bad_words",
    "ignore_eos",
    "min_tokens",
    "prompt_logprobs",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "logit_bias",
    "allowed_token_ids",
)
"""Fields of a chat completion that are sampling parameters of vLLM under the same name."""


@dataclass(frozen=True, slots=True)
class EncodedChat:
    """A conversation, its ids, and the template that rendered it."""

    encoding: ChatEncoding
    ids: NDArray[np.uint32]
    """With the post-processor's, if they were asked for."""
    template: str
    """The name of the template."""
    digest: str
    """SHA-256 of the template's source."""
    n_before: int = 0
    """How many of the post-processor's ids stand in front."""

    def rendered(self, chunks: list[bytes], media_type: str = "application/json") -> Rendered:
        """The response with this body; its headers name the template."""
        return Rendered(
            chunks,
            len(self.ids),
            utf8_length(self.encoding.text),
            media_type,
            ((b"chat-template-digest", self.digest.encode()),),
        )


def render_limits_of(settings: Settings) -> RenderLimits:
    """What a chat template may use for one conversation."""
    return RenderLimits(settings.chat_memory_bytes, settings.chat_seconds)


def render_chat_encoding(
    request: ChatEncodeRequest, live: LiveTokenizer, *, form: IdsForm | None, limits: RenderLimits
) -> Rendered:
    """Encode the conversation of `request`; the response is JSON, or ids in `form`.

    Raises:
        Problem: as `encode_conversation`; 413 over `max_tokens`; 406 for ids too large for `form`;
            422 if `return` asks for more than the ids and `form` holds no more.
    """
    returned = set(request.returned)
    if form is not None:
        require_fit(form, live.tokenizer.spec.largest_id)
        if returned != {"ids"}:
            detail = "a binary response holds the ids alone; take JSON for text, mask and spans"
            raise Problem(
                422, "invalid_request", f"/return: {detail}", errors=[("/return", detail)]
            )
    conversation = Conversation(
        request.messages,
        tools=request.tools,
        documents=request.documents,
        chat_template=request.chat_template,
        kwargs=request.chat_template_kwargs or {},
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
    )
    chat = encode_conversation(conversation, live, limits, with_loss="mask" in returned)
    check_counts(len(chat.ids), 0, request.max_tokens, "/messages")
    if form is not None:
        lengths = np.array([len(chat.ids)], dtype=np.uint64)
        return chat.rendered(list(render_ids_form(chat.ids, lengths, form)), form.media_type)
    encoding = chat.encoding
    chunks = [b"{"]
    if "ids" in returned:
        chunks += [b'"tokens":', *render_ids(chat.ids, live.tokenizer), b","]
    chunks.append(b'"count":%d' % len(chat.ids))
    if "text" in returned:
        chunks += [b',"text":', *render_text(encoding.text)]
    if "mask" in returned:
        try:
            turns = encoding.turns(request.loss_rule, turn_ends=request.turn_ends)
        except ChatInputError as error:
            raise _problem(error, "/loss_rule") from None
        mask = encoding.mask_of(turns).astype(np.uint32)
        chunks += [b',"mask":', *render_ids(mask, live.tokenizer)]
        chunks += [b',"turns":', dump([turn._asdict() for turn in turns])]
    if "spans" in returned:
        spans = zip(encoding.roles, encoding.message_tokens(), strict=True)
        chunks += [b',"spans":', dump([{"role": role, "tokens": span} for role, span in spans])]
    template = dump({"name": chat.template, "sha256": chat.digest})
    chunks += [b',"chat_template":', template, b',"tokenizer":' + live.identity_json + b"}"]
    return chat.rendered(chunks)


def render_generate_request(
    request: ChatRenderRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Encode a chat completion; the response is what vLLM's `/inference/v1/generate` takes.

    Raises:
        Problem: as `encode_conversation`; 422 for what only a server with a model can do.
    """
    if request.truncate_prompt_tokens is not None:
        detail = "is not supported: the ids of a cut conversation are not those of a model's turn"
        pointer = "/truncate_prompt_tokens"
        raise Problem(422, "invalid_request", f"{pointer}: {detail}", errors=[(pointer, detail)])
    kwargs = dict(request.chat_template_kwargs or {})
    if request.reasoning_effort is not None:
        kwargs.setdefault("enable_thinking", request.reasoning_effort != "none")
        kwargs["reasoning_effort"] = request.reasoning_effort
    chat = encode_chat_completion(request, live, limits, kwargs)
    extra: Mapping[str, Any] = request.model_extra or {}
    is_stream = bool(extra.get("stream"))
    offsets: list[bytes] = [b"null"]
    if request.return_token_offsets:
        check_detailed(len(chat.ids))
        offsets = [dump(_char_offsets(chat).tolist())]
    fields = {
        "features": None,
        "sampling_params": _sampling_parameters(extra),
        "model": request.model,
        "stream": is_stream,
        "stream_options": extra.get("stream_options") if is_stream else None,
        "cache_salt": extra.get("cache_salt"),
        "priority": extra.get("priority") or 0,
    }
    chunks = [
        b'{"request_id":"chatcmpl-%b","token_ids":' % uuid.uuid4().hex.encode(),
        *render_ids(chat.ids, live.tokenizer),
        b',"token_offsets":',
        *offsets,
        b"," + dump(fields)[1:],
    ]
    return chat.rendered(chunks)


def render_message_count(
    request: CountTokensRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Count the tokens of a request to Anthropic's API; raises as `encode_conversation`."""
    chat = _encode_as_vllm(from_anthropic(request), live, limits)
    return chat.rendered([b'{"input_tokens":%d}' % len(chat.ids)])


def render_input_count(
    request: InputTokensRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Count the tokens of a request to OpenAI's responses; raises as `encode_conversation`."""
    chat = _encode_as_vllm(from_responses(request), live, limits)
    return chat.rendered([b'{"object":"response.input_tokens","input_tokens":%d}' % len(chat.ids)])


def encode_chat_completion(
    request: Any, live: LiveTokenizer, limits: RenderLimits, kwargs: Mapping[str, Any]
) -> EncodedChat:
    """Encode the messages of a request with the fields that vLLM's routes share.

    Raises:
        Problem: as `encode_conversation`.
    """
    variables = dict(kwargs)
    documents = getattr(request, "documents", None)
    if documents is None:
        documents = variables.pop("documents", None)
    adds_prompt = request.add_generation_prompt
    if request.continue_final_message and "add_generation_prompt" not in request.model_fields_set:
        adds_prompt = False
    conversation = Conversation(
        request.messages,
        tools=request.tools,
        documents=documents,
        chat_template=request.chat_template,
        kwargs=variables,
        add_generation_prompt=adds_prompt,
        continue_final_message=request.continue_final_message,
    )
    return _encode_as_vllm(conversation, live, limits, around=request.add_special_tokens)


def encode_conversation(
    conversation: Conversation,
    live: LiveTokenizer,
    limits: RenderLimits,
    *,
    with_loss: bool = False,
) -> EncodedChat:
    """Render and encode a conversation; special tokens come from the template only.

    Raises:
        Problem: 422 for messages that the template does not take, and for a template that the
            tokenizer does not have, that fails, or that needs more than `limits`.
    """
    check_wanted()
    name, source = _choose_template(conversation, live)
    try:
        encoding = live.tokenizer.encode_chat(
            conversation.messages,
            tools=conversation.tools,
            documents=conversation.documents,
            chat_template=name,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            template_kwargs=conversation.kwargs,
            limits=limits,
            with_loss=with_loss,
        )
    except (ChatInputError, ChatTemplateError) as error:
        index = error.message_index
        pointer = "/messages" if index is None else conversation.pointer(index)
        raise _problem(error, pointer) from None
    except SpecialTokenReachedError as error:
        detail = (
            f"As plain text, a part of the conversation gives id {error.token_id} of a special "
            f"token, which the vocabulary's merges make. Leave that text out, or name another "
            f"tokenizer."
        )
        raise Problem(422, error.code, detail, errors=[("/messages", detail)]) from None
    reserve_memory(len(encoding.text) + encoding.ids.nbytes)
    return EncodedChat(encoding, encoding.ids, name, sha256(source.encode()).hexdigest())


def _encode_as_vllm(
    conversation: Conversation, live: LiveTokenizer, limits: RenderLimits, *, around: bool = False
) -> EncodedChat:
    _, source = _choose_template(conversation, live)
    changed = as_vllm(conversation, source, loops_over_content(source))
    chat = encode_conversation(changed, live, limits)
    spec = live.tokenizer.spec
    if not around or not (spec.prefix_ids or spec.suffix_ids):
        return chat
    parts = [np.array(spec.prefix_ids), chat.ids, np.array(spec.suffix_ids)]
    ids = np.concatenate(parts).astype(np.uint32)
    return EncodedChat(chat.encoding, ids, chat.template, chat.digest, len(spec.prefix_ids))


def _choose_template(conversation: Conversation, live: LiveTokenizer) -> tuple[str, str]:
    """Name and source of the template: the named one, `tool_use` if there is one and tools are
    given, else `default`, as transformers chooses.

    Raises:
        Problem: 422, the tokenizer does not have it.
    """
    templates = live.tokenizer.chat_templates
    name = conversation.chat_template
    if name is None:
        has_tools = conversation.tools is not None and "tool_use" in templates
        name = "tool_use" if has_tools else "default"
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
    pointer = "/messages" if conversation.chat_template is None else "/chat_template"
    raise Problem(422, "chat_template_missing", detail, errors=[(pointer, detail)])


def _problem(error: Exception, pointer: str) -> Exception:
    """The problem of a chat error at `pointer`."""
    problem = problem_of(error)
    if problem is None:
        return error
    return Problem(problem.status, problem.code, problem.detail, errors=[(pointer, problem.detail)])


def _sampling_parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a chat completion sets, under the names of vLLM's sampling parameters."""
    found = {name: fields[name] for name in _SAMPLING if fields.get(name) is not None}
    if fields.get("logprobs"):
        found["logprobs"] = fields.get("top_logprobs") or 0
    for name in ("max_completion_tokens", "max_tokens"):
        if fields.get(name) is not None:
            found["max_tokens"] = fields[name]
            break
    return found


def _char_offsets(chat: EncodedChat) -> NDArray[np.uint64]:
    """Start and end of each token in characters; 0 and 0 for the post-processor's tokens."""
    offsets = char_offsets(chat.encoding.text, chat.encoding.offsets)
    return np.pad(offsets, ((chat.n_before, len(chat.ids) - len(offsets) - chat.n_before), (0, 0)))
