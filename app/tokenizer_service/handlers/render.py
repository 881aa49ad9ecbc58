"""Prompts for vLLM's `/inference/v1/generate`, from the requests of its render routes.

Each route reads its prompt and what its fields say of the output, under the names of a chat
completion; the rest is the same for all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from tokenizer_client.schemas.chat import SglangConstraints
from tokenizer_core.chat.messages import refuse
from tokenizer_core.text.offsets import char_offsets
from tokenizer_service.access.errors import RequestsTooLargeError
from tokenizer_service.access.limits import repeat_limit
from tokenizer_service.access.work_queue import check_not_abandoned, reserve_memory
from tokenizer_service.handlers.chat import (
    conversation_of_anthropic,
    encode_chat_completion,
    encode_conversation,
)
from tokenizer_service.handlers.conversations import from_responses, with_effort
from tokenizer_service.handlers.encode import check_detailed, encode_all
from tokenizer_service.handlers.known_fields import EXTRA_ARGUMENTS, NEUTRAL, SAMPLING
from tokenizer_service.http.dialect_errors import SGLANG, VLLM, Dialect
from tokenizer_service.responses.chat import rendered_for
from tokenizer_service.responses.decode import rows_of, sizes_of
from tokenizer_service.responses.encode import place_around
from tokenizer_service.responses.errors import InvalidFieldError
from tokenizer_service.responses.json_values import Rendered, dump, render_each
from tokenizer_service.responses.render import render_generate_request, render_sglang_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokenizer_client.schemas.chat import (
        ChatRenderRequest,
        MessagesRenderRequest,
        ResponsesRenderRequest,
    )
    from tokenizer_client.schemas.dialects import CompletionRenderRequest
    from tokenizer_core.chat.loss_mask import ChatEncoding
    from tokenizer_core.chat.renderer import RenderLimits
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_CONSTRAINTS: Final = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
"""Fields of `structured_outputs` that constrain the output, of which vLLM takes one."""

_SGLANG_SAMPLING: Final = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "seed": "sampling_seed",
    **{
        name: name
        for name in (
            "n", "temperature", "top_p", "top_k", "min_p", "presence_penalty",
            "frequency_penalty", "repetition_penalty", "stop", "stop_regex", "stop_token_ids",
            "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "logit_bias",
        )
    },
}  # fmt: skip
"""vLLM's sampling parameter -> SGLang's."""

_SGLANG_CONSTRAINTS: Final = {
    "json": "json_schema",
    "regex": "regex",
    "grammar": "ebnf",
    "structural_tag": "structural_tag",
}

_COMPLETION_TOKENS: Final = 16
"""`max_tokens` of a completion that has none."""


def _no_text(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError
    return value


# fmt: off
_TYPES: Final[dict[str, tuple[TypeAdapter[Any], str]]] = {
    name: (adapter, words)
    for adapter, words, names in (
        (TypeAdapter(int), "an integer", (
            "max_completion_tokens", "max_output_tokens", "max_tokens",
            "routed_experts_prompt_start", "stream_interval", "top_logprobs",
        )),
        (TypeAdapter(Annotated[int, Field(ge=1)]), "an integer, at least 1", ("n",)),
        (TypeAdapter(Annotated[int, Field(ge=0)]), "an integer, at least 0", ("min_tokens",)),
        (TypeAdapter(Annotated[int, Field(ge=-1)]), "an integer, at least -1", ("top_k",)),
        (TypeAdapter(Annotated[int, Field(ge=-(2**63), lt=2**63)]), "an integer of 64 bits", (
            "priority", "seed",
        )),
        (TypeAdapter(Annotated[int, Field(ge=-1, strict=True)]), "an integer, at least -1", (
            "thinking_token_budget",
        )),
        (TypeAdapter(Annotated[int, BeforeValidator(_no_text)]), "an integer", (
            "logprobs", "prompt_logprobs",
        )),
        (TypeAdapter(Annotated[float, Field(ge=0, le=2)]), "a number, from 0 to 2", (
            "temperature",
        )),
        (TypeAdapter(Annotated[float, Field(gt=0, le=1)]), "a number, above 0 and at most 1", (
            "top_p",
        )),
        (TypeAdapter(Annotated[float, Field(ge=0, le=1)]), "a number, from 0 to 1", ("min_p",)),
        (TypeAdapter(Annotated[float, Field(ge=-2, le=2)]), "a number, from -2 to 2", (
            "frequency_penalty", "presence_penalty",
        )),
        (TypeAdapter(Annotated[float, Field(gt=0)]), "a number, above 0", ("repetition_penalty",)),
        (TypeAdapter(bool), "a boolean", (
            "echo", "ignore_eos", "include_reasoning", "include_stop_str_in_output",
            "return_token_ids", "skip_special_tokens", "spaces_between_special_tokens", "stream",
            "watermarking",
        )),
        (TypeAdapter(str | list[str]), "a string or a list of strings", ("stop",)),
        (TypeAdapter(list[str]), "a list of strings", ("bad_words",)),
        (TypeAdapter(list[int]), "a list of integers", (
            "allowed_token_ids", "logprob_token_ids", "stop_token_ids",
        )),
        (TypeAdapter(dict[str, float]), "an object of numbers", ("logit_bias",)),
    )
    for name in names
}
# fmt: on
"""Field -> what vLLM makes of its value and takes, by pydantic as there, and that in words."""

_LOGPROBS: Final = "message.output_text.logprobs"


class Caller(NamedTuple):
    """The ids that a request may have, and the server whose request for generation it wants.

    `given` is the header `X-Request-Id`, `new` our own id.
    """

    given: str | None
    new: str
    dialect: Dialect | None = None

    def name(self, prefix: str, in_body: object) -> str:
        """`prefix` and the header, the field of the body, or our own id, as vLLM chooses."""
        if in_body is not None and not isinstance(in_body, str):
            refuse("/request_id", "must be a string")
        return f"{prefix}{self.given or in_body or self.new}"

    def render(self, name: str, prompt: _Prompt, fields: bytes) -> Iterator[bytes]:
        """The request for generation, called `name`; `fields` is JSON."""
        if self.dialect is SGLANG:
            return render_sglang_request(name, prompt.ids, fields)
        both = self.dialect is not VLLM
        return render_generate_request(
            name, prompt.ids, prompt.offsets, fields, with_input_ids=both
        )


class _Prompt(NamedTuple):
    pointer: str
    ids: NDArray[np.uint32]
    offsets: NDArray[Any] | None
    """Start and end of each token in characters, if they are wanted and known."""
    n_before: int = 0
    n_after: int = 0
    """How many of the ids at each end are the post-processor's."""
    n_bytes: int = 0
    """The size of the text in bytes of UTF-8."""


class _Cut(NamedTuple):
    """Where vLLM cuts a prompt that is too long."""

    limit: int | None
    side: str | None
    max_tokens: Any
    pointer: str = "/truncate_prompt_tokens"

    def apply(self, prompt: _Prompt, live: LiveTokenizer) -> _Prompt:
        """`prompt` with at most `limit` tokens."""
        limit, length = self.limit, live.tokenizer.spec.chat.max_model_len
        if limit == -1 and length is None:
            remedy = "`tokenizer import --max-model-len N` gives it"
            refuse(self.pointer, f"needs the length of the model, which is not known; {remedy}")
        if limit is not None and length is not None:
            if limit > length:
                refuse(self.pointer, f"must be at most the {length} tokens of the model")
            limit = length - (self.max_tokens != 0) if limit == -1 else limit
        if limit is None or len(prompt.ids) <= limit:
            return prompt
        kept = self._kept(prompt, limit)
        offsets = None if prompt.offsets is None else prompt.offsets[kept]
        return prompt._replace(ids=prompt.ids[kept], offsets=offsets)

    def _kept(self, prompt: _Prompt, limit: int) -> NDArray[np.intp]:
        n_tokens = len(prompt.ids)
        if self.side is not None:
            start = n_tokens - limit if self.side == "left" else 0
            return np.arange(start, start + limit)
        # Without a side, Hugging Face's tokenizer cuts the text and keeps what is around it.
        # vLLM has it cut on the left, whatever the folder says.
        n_content = limit - prompt.n_before - prompt.n_after
        if n_content < 0:
            refuse(self.pointer, "must be at least the number of tokens around the text")
        start = n_tokens - prompt.n_after - n_content
        return np.concatenate([np.arange(prompt.n_before), np.arange(start, n_tokens)])


def render_completion(
    request: CompletionRenderRequest, live: LiveTokenizer, *, caller: Caller, max_bytes: int
) -> Rendered:
    """Encode the prompts of a completion; the response is a list of generate requests."""
    fields = _known_fields(request, caller)
    _check_transfer(fields)
    wanted = fields.get("max_tokens", _COMPLETION_TOKENS)
    logprobs = fields.get("logprobs")
    fields |= {
        "max_tokens": 1 if fields.get("echo") and wanted == 0 else wanted,
        "logprobs": logprobs is not None,
        "top_logprobs": logprobs,
        "echo": fields.get("echo") and logprobs is not None,
    }
    request_id = caller.name("cmpl-", fields.get("request_id"))
    sampling = _sampling_parameters(fields, live)
    cut = _Cut(request.truncate_prompt_tokens, request.truncation_side, wanted)
    if isinstance(given := request.prompt, list):  # each of its requests has all fields
        n_field_bytes = len(dump(fields))
        limit = repeat_limit(n_field_bytes + sum(map(len, given)), max_bytes)
        if len(given) * n_field_bytes > limit:
            raise RequestsTooLargeError(limit)
    prompts = [cut.apply(prompt, live) for prompt in _prompts(request, live)]
    bodies: list[bytes] = []
    n_bytes = 0
    for prompt in prompts:
        bodies.append(dump(_fields(prompt, request, fields, sampling, live, caller)))
        n_bytes += len(bodies[-1])
        if n_bytes > max_bytes:
            raise RequestsTooLargeError(max_bytes)
        reserve_memory(len(bodies[-1]))
    requests = (
        caller.render(request_id if len(prompts) == 1 else f"{request_id}-{index}", prompt, body)
        for index, (prompt, body) in enumerate(zip(prompts, bodies, strict=True))
    )
    chunks = list(render_each(requests, is_batch=True))
    n_tokens = sum(len(prompt.ids) for prompt in prompts)
    return Rendered(chunks, n_tokens, sum(prompt.n_bytes for prompt in prompts))


def render_chat_completion(
    request: ChatRenderRequest, live: LiveTokenizer, *, caller: Caller, limits: RenderLimits
) -> Rendered:
    """Encode a chat completion; the response is one generate request."""
    fields = _known_fields(request, caller)
    _check_transfer(fields)
    if fields.get("top_logprobs") and not fields.get("logprobs"):
        refuse("/top_logprobs", "needs logprobs")
    request_id = caller.name("chatcmpl-", fields.get("request_id"))
    sampling = _sampling_parameters(fields, live)
    kwargs = with_effort(request.chat_template_kwargs, request.reasoning_effort)
    chat = encode_chat_completion(request, live, limits, kwargs)
    around = live.around if request.add_special_tokens else (0, 0)
    with_offsets = bool(request.return_token_offsets)
    prompt = _prompt_of(chat, "/messages", around, with_offsets=with_offsets)
    wanted = sampling.get("max_tokens")
    cut = _Cut(request.truncate_prompt_tokens, request.truncation_side, wanted)
    prompt = cut.apply(prompt, live)
    rendered = dump(_fields(prompt, request, fields, sampling, live, caller))
    return rendered_for(chat, list(caller.render(request_id, prompt, rendered)))


def render_messages(
    request: MessagesRenderRequest, live: LiveTokenizer, *, caller: Caller, limits: RenderLimits
) -> Rendered:
    """As `render_chat_completion`, of a request to Anthropic's API."""
    fields = _known_fields(request, caller)
    choice = _object(fields, "tool_choice").get("type", "auto")
    fields["tool_choice"] = choice if choice in ("auto", "none") else "required"
    fields["stop"] = fields.pop("stop_sequences", None)
    if fields.get("stream"):
        fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    if fields.get("max_tokens") is None:
        refuse("/max_tokens", "must be an integer: this protocol has no default")
    if request.thinking is not None and request.thinking.get("type") == "enabled":
        budget = request.thinking.get("budget_tokens")
        if type(budget) is not int or not 1024 <= budget < fields["max_tokens"]:
            refuse("/thinking/budget_tokens", "must be an integer, from 1024 to below max_tokens")
        fields["thinking_token_budget"] = budget
    wanted = _object(request.output_config or {}, "format", "/output_config")
    if wanted:
        _check_schema_format(wanted, "/output_config/format")
        fields["response_format"] = {"type": "json_schema", "json_schema": wanted}
    _check_transfer(fields)
    sampling = _sampling_parameters(fields, live)
    chat = encode_conversation(conversation_of_anthropic(request, live, limits), live, limits)
    prompt = _prompt_of(chat, "/messages")
    request_id = caller.name("chatcmpl-", None)
    rendered = dump(_fields(prompt, request, fields, sampling, live, caller))
    return rendered_for(chat, list(caller.render(request_id, prompt, rendered)))


def render_responses(
    request: ResponsesRenderRequest, live: LiveTokenizer, *, caller: Caller, limits: RenderLimits
) -> Rendered:
    """As `render_chat_completion`, of a request to OpenAI's responses."""
    fields = _known_fields(request, caller)
    fields["logprobs"] = _LOGPROBS in (fields.pop("include", None) or ())
    for name in ("include_reasoning", "stream_options"):  # as vLLM, which leaves them out here
        fields.pop(name, None)
    wanted = _object(_object(fields, "text"), "format", "/text")
    if wanted.get("type") == "json_schema":
        _check_schema_format(wanted, "/text/format")
        wanted = {"type": "json_schema", "json_schema": wanted}
    fields["response_format"] = wanted or None
    _check_transfer(fields)
    if fields.get("request_id") is None:
        request_id = caller.name("resp_", None)
    else:
        request_id = Caller(None, "").name("", fields["request_id"])
    sampling = _sampling_parameters(fields, live)
    chat = encode_conversation(from_responses(request), live, limits)
    prompt = _prompt_of(chat, "/input")
    if fields.get("truncation", "disabled") != "disabled":
        cut = _Cut(-1, None, sampling.get("max_tokens"), "/truncation")
        prompt = cut.apply(prompt, live)
    rendered = dump(_fields(prompt, request, fields, sampling, live, caller))
    return rendered_for(chat, list(caller.render(request_id, prompt, rendered)))


def _known_fields(request: Any, caller: Caller) -> dict[str, Any]:
    """The fields of `request` that vLLM or SGLang knows and our model of it does not have."""
    known, extra = NEUTRAL[type(request)], request.model_extra or {}
    found = {name: extra[name] for name in (*known.carried, *known.accepted) if name in extra}
    types = _TYPES
    if not hasattr(request, "prompt"):  # only a completion has a number of them here
        types = {**_TYPES, "logprobs": _TYPES["stream"]}
    for name, (adapter, words) in types.items():
        if found.get(name) is None:
            continue
        try:
            found[name] = adapter.validate_python(found[name])
        except ValidationError:
            refuse(f"/{name}", f"must be {words}")
    if isinstance(request, SglangConstraints):
        _add_sglang_constraints(request, found, caller)
    return found


def _add_sglang_constraints(
    request: SglangConstraints, fields: dict[str, Any], caller: Caller
) -> None:
    for name in SglangConstraints.model_fields:
        if not (value := getattr(request, name)):
            continue
        if caller.dialect is not SGLANG:
            refuse(f"/{name}", "is SGLang's, for /as/sglang/; send it in structured_outputs")
        if name == "stop_regex":
            fields[name] = value
            continue
        asked = _object(fields, "structured_outputs")
        ours = next(ours for ours, theirs in _SGLANG_CONSTRAINTS.items() if theirs == name)
        if asked.get(ours) is not None:
            refuse(f"/{name}", "is a second constraint of the output; send one")
        fields["structured_outputs"] = {**asked, ours: value}


def _prompts(request: CompletionRenderRequest, live: LiveTokenizer) -> Iterator[_Prompt]:
    """Each prompt of a completion."""
    given, adds = request.prompt, request.add_special_tokens
    has_ids = isinstance(given, np.ndarray) or (len(given) and isinstance(given[0], np.ndarray))
    if has_ids:
        rows, _ = rows_of(given, "/prompt")
        for ids, pointer in rows:
            sizes_of(ids, live, pointer)
            yield _Prompt(pointer, ids, None)
        return
    if given == "":
        raise InvalidFieldError("/prompt", "is empty")
    sources = [("/prompt", given)]
    if not isinstance(given, str):
        sources = [(f"/prompt/{index}", text) for index, text in enumerate(given)]
    n_around = live.around if adds else (0, 0)
    with_offsets = bool(request.return_token_offsets)
    encoded = encode_all(
        sources,
        live,
        is_detailed=with_offsets,
        unit="char" if with_offsets else None,
        add_special_tokens=adds,
    )
    for (pointer, _), (ids, n_bytes, found) in zip(sources, encoded, strict=True):
        if with_offsets:
            place_around(found, n_around, 0)
        yield _Prompt(pointer, ids, found if with_offsets else None, *n_around, n_bytes)


def _prompt_of(
    chat: ChatEncoding,
    pointer: str,
    n_around: tuple[int, int] = (0, 0),
    *,
    with_offsets: bool = False,
) -> _Prompt:
    """The prompt of a conversation; the offsets of the post-processor's tokens are 0 and 0."""
    offsets = None
    if with_offsets:
        check_detailed(len(chat.ids))
        offsets = char_offsets(chat.text, chat.offsets)
        place_around(offsets, n_around, 0)
    return _Prompt(pointer, chat.ids, offsets, *n_around)


def _fields(
    prompt: _Prompt,
    request: Any,
    fields: Mapping[str, Any],
    sampling: Mapping[str, Any],
    live: LiveTokenizer,
    caller: Caller,
) -> dict[str, Any]:
    """All fields of a request for generation but its ids."""
    check_not_abandoned()
    n_tokens, length = len(prompt.ids), live.tokenizer.spec.chat.max_model_len
    if not n_tokens:
        raise InvalidFieldError(prompt.pointer, "gives no token; the server could not begin")
    if length is not None and n_tokens >= length:
        detail = f"gives {n_tokens} tokens, and prompt and answer have {length}; send less"
        raise InvalidFieldError(prompt.pointer, detail)
    if length is not None:
        most = sampling.get("max_tokens", length)
        if sampling.get("min_tokens", 0) > min(most, length - n_tokens):
            refuse("/min_tokens", f"the model has room for {length - n_tokens} tokens")
        sampling = {**sampling, "max_tokens": min(most, length - n_tokens)}
    is_stream = bool(fields.get("stream"))
    if caller.dialect is SGLANG:
        return {**_sglang_fields(sampling), "stream": is_stream}
    return {
        "features": None,
        "sampling_params": sampling,
        "model": request.model,
        "stream": is_stream,
        "stream_options": fields.get("stream_options") if is_stream else None,
        "cache_salt": fields.get("cache_salt"),
        "priority": fields.get("priority") or 0,
        **{name: fields.get(name) for name in EXTRA_ARGUMENTS},
        "return_token_ids": fields.get("return_token_ids"),
        "reasoning_ended": True if fields.get("include_reasoning") is False else None,
    }


def _check_transfer(fields: Mapping[str, Any]) -> None:
    """Raise ChatShapeError for a forced call, and for ids that would replace those of the text."""
    if fields.get("tool_choice", "auto") not in ("auto", "none"):
        # As the model's tool parser would, which only its own server has.
        refuse("/tool_choice", "cannot constrain the output here; send structured_outputs")
    if "prompt_token_ids" in _object(fields, "kv_transfer_params"):
        refuse("/kv_transfer_params/prompt_token_ids", "would replace those of this request")


def _check_schema_format(wanted: Mapping[str, Any], place: str) -> None:
    if wanted.get("type") != "json_schema":
        refuse(f"{place}/type", "must be json_schema")
    if not isinstance(wanted.get("schema"), dict):
        refuse(f"{place}/schema", "must be an object")


def _sampling_parameters(fields: Mapping[str, Any], live: LiveTokenizer) -> dict[str, Any]:
    """What a chat completion sets, under the names of vLLM's sampling parameters."""
    names = (*SAMPLING, "stop_regex")
    found = {name: fields[name] for name in names if fields.get(name) is not None}
    if fields.get("logprobs") and not fields.get("logprob_token_ids"):
        found["logprobs"] = fields.get("top_logprobs") or 0
    if fields.get("echo"):
        found.setdefault("prompt_logprobs", fields.get("top_logprobs") or 0)
    constraint = _structured_outputs(fields)
    if constraint:
        found["structured_outputs"] = constraint
    for name in EXTRA_ARGUMENTS:
        _object(fields, name)
    if arguments := _object(fields, "vllm_xargs"):
        found["extra_args"] = arguments
    length = live.tokenizer.spec.chat.max_model_len or inf
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        if fields.get(name) is not None:
            found["max_tokens"] = fields[name]
            if not 1 <= fields[name] <= length:
                bound = "" if length == inf else f", at most the {length} tokens of the model"
                refuse(f"/{name}", f"must be an integer, at least 1{bound}")
            break
    if found.get("min_tokens", 0) > found.get("max_tokens", inf):
        refuse("/min_tokens", "must be at most max_tokens")
    return found


def _sglang_fields(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """`sampling` as SGLang's `/generate` takes it."""
    given = dict(sampling)
    n_logprobs = given.pop("logprobs", None)
    of_prompt = given.pop("prompt_logprobs", None)
    if of_prompt is not None and of_prompt != n_logprobs:
        refuse("/prompt_logprobs", "is no field of SGLang's requests; send echo with logprobs")
    if given.get("top_k") == 0:
        del given["top_k"]  # no bound, which SGLang does not call 0
    found = {theirs: given.pop(ours) for ours, theirs in _SGLANG_SAMPLING.items() if ours in given}
    constraint = dict(given.pop("structured_outputs", {}))
    if constraint.pop("json_object", False):
        constraint["json"] = {"type": "object"}
    for ours, theirs in _SGLANG_CONSTRAINTS.items():
        if constraint.get(ours) is not None:
            value = constraint.pop(ours)
            found[theirs] = value if isinstance(value, str) else json.dumps(value)
    if "extra_args" in given:
        given["vllm_xargs"] = given.pop("extra_args")  # its name in the request
    for name in (*given, *(f"structured_outputs/{name}" for name in constraint)):
        refuse(f"/{name}", "is no field of SGLang's requests; leave it out")
    return {
        "sampling_params": found,
        "return_logprob": n_logprobs is not None,
        "logprob_start_len": -1 if of_prompt is None else 0,
        "top_logprobs_num": n_logprobs or 0,
        "return_hidden_states": False,
    }


def _structured_outputs(fields: Mapping[str, Any]) -> dict[str, Any]:
    """`response_format` and `structured_outputs` as vLLM joins them."""
    asked = _object(fields, "structured_outputs")
    joined = {name: value for name, value in asked.items() if value is not None}
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
    if len(joined.keys() & set(_CONSTRAINTS)) + len(constraint) > 1:
        refuse("/structured_outputs", "is a second constraint of the output; send one")
    return joined | constraint


def _object(fields: Mapping[str, Any], name: str, place: str = "") -> dict[str, Any]:
    """The object in field `name`, empty if it is absent."""
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        refuse(f"{place}/{name}", "must be an object")
    return value or {}
