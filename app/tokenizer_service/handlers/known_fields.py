"""The fields of other servers' requests: one table, from which docs/http-reference.md is made.

A route does what the fields of its request model say. Of the others it refuses by name those that
would change the prompt, and what looks like one, because ids without it would be wrong; it carries
or accepts what does not change the prompt. Any other field is ignored, and the header
`Ignored-Fields` lists it. The names are those of the servers' documentation of November 2026.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from tokenizer_client.schemas.chat import (
    ChatInputRequest,
    ChatRenderRequest,
    CountTokensRequest,
    GeminiCountRequest,
    InputTokensRequest,
    MessagesRenderRequest,
    ResponsesRenderRequest,
)
from tokenizer_client.schemas.derender import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
)
from tokenizer_client.schemas.dialects import (
    CompletionRenderRequest,
    ContentRequest,
    DetokenizeRequest,
    IdsRequest,
    InputsRequest,
    MessagesRequest,
    PlainTextRequest,
    PromptRequest,
)
from tokenizer_core.chat.messages import refuse
from tokenizer_service.http.bodies import validate
from tokenizer_service.responses.errors import InvalidFieldError
from tokenizer_service.responses.json_values import Rendered
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

Model = TypeVar("Model", bound="BaseModel")
Wanted = TypeVar("Wanted")

MAX_IGNORED: Final = 32
_MAX_LISTED_CHARS: Final = 64
_MOST_EDITS: Final = 2


class Neutral(NamedTuple):
    """The fields of a request that do not change its prompt, beside those of its model."""

    carried: tuple[str, ...] = ()
    """The response has them, for the server that generates."""
    accepted: tuple[str, ...] = ()
    """They concern what only a server with a model does."""


# fmt: off
SAMPLING: Final = (
    "n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p",
    "top_k", "min_p", "seed", "stop", "stop_token_ids", "bad_words", "ignore_eos", "min_tokens",
    "prompt_logprobs", "logprob_token_ids", "skip_special_tokens", "spaces_between_special_tokens",
    "include_stop_str_in_output", "logit_bias", "allowed_token_ids", "thinking_token_budget",
    "repetition_detection", "stream_interval", "routed_experts_prompt_start", "watermarking",
)
"""Fields of a chat completion that are sampling parameters of vLLM under the same name."""

EXTRA_ARGUMENTS: Final = ("kv_transfer_params", "ec_transfer_params")
"""Fields of a chat completion that vLLM puts into `extra_args` of the sampling parameters."""

_OUTPUT_FIELDS: Final = ("response_format", "structured_outputs")
"""Carried fields without which the output is unconstrained."""

_OPENAI: Final = (
    "include", "metadata", "moderation", "parallel_tool_calls", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "service_tier", "store",
    "tool_choice", "user", "verbosity",
)
# Media themselves are refused.
_MEDIA: Final = ("media_io_kwargs", "mm_payload", "mm_processor_kwargs", "return_mm_kwargs")

_GENERATION: Final = (
    *SAMPLING, *EXTRA_ARGUMENTS, "cache_salt", "echo", "logprobs", "max_tokens", "priority",
    "request_id", "response_format", "return_token_ids", "stream", "stream_options",
    "structured_outputs", "vllm_xargs",
)
"""Fields of a completion and of a chat completion that the request for generation has."""

_CHAT_OUTPUT: Final = (
    *_GENERATION, "include_reasoning", "max_completion_tokens", "top_logprobs",
)
_CHAT_OTHERS: Final = (
    *_OPENAI, *_MEDIA, "audio", "length_penalty", "modalities", "prediction",
    "return_prompt_text", "return_tokens_as_token_ids", "return_weight_versions", "session_id",
)
_ANTHROPIC_OUTPUT: Final = (
    *EXTRA_ARGUMENTS, "cache_salt", "max_tokens", "stop_sequences", "stream", "temperature",
    "tool_choice", "top_k", "top_p", "vllm_xargs", "watermarking",
)
_ANTHROPIC_OTHERS: Final = (
    *_MEDIA, "betas", "billing_policy", "cache_control", "compaction", "diagnostics",
    "fallback_credit_token", "fallbacks", "inference_geo", "metadata", "service_tier", "speed",
    "user_profile_id", "workspace_id",
)
_RESPONSES_OUTPUT: Final = (
    *(name for name in SAMPLING if name not in ("n", "min_tokens", "prompt_logprobs")),
    *EXTRA_ARGUMENTS, "cache_salt", "include", "max_output_tokens", "priority", "request_id",
    "stream", "structured_outputs", "text", "tool_choice", "top_logprobs", "truncation",
    "vllm_xargs",
)
_RESPONSES_OTHERS: Final = (
    *(name for name in _OPENAI if name not in ("include", "tool_choice")), *_MEDIA,
    "access_programs", "background", "background_options", "enable_response_messages", "image",
    "include_reasoning", "max_tool_calls", "session_id", "stream_options",
)

NEUTRAL: Final[dict[type[BaseModel], Neutral]] = {
    PromptRequest: Neutral(),
    ContentRequest: Neutral(),
    InputsRequest: Neutral(),
    PlainTextRequest: Neutral(),
    MessagesRequest: Neutral(accepted=_MEDIA),
    DetokenizeRequest: Neutral(),
    IdsRequest: Neutral(),
    DerenderChatRequest: Neutral(),
    DerenderChatStreamRequest: Neutral(),
    DerenderCompletionRequest: Neutral(),
    DerenderCompletionStreamRequest: Neutral(),
    CompletionRenderRequest: Neutral(
        carried=_GENERATION,
        accepted=(
            *_MEDIA, "length_penalty", "return_tokens_as_token_ids", "return_weight_versions",
            "session_id", "user",
        ),
    ),
    ChatRenderRequest: Neutral(_CHAT_OUTPUT, _CHAT_OTHERS),
    ChatInputRequest: Neutral(
        accepted=(
            *_CHAT_OUTPUT, *_CHAT_OTHERS, "cache_prompt", "grammar", "id_slot", "json_schema",
            "n_predict", "reasoning_format", "samplers", "timings_per_token", "typical_p",
        ),
    ),
    GeminiCountRequest: Neutral(),
    CountTokensRequest: Neutral(accepted=(*_ANTHROPIC_OUTPUT, *_ANTHROPIC_OTHERS)),
    MessagesRenderRequest: Neutral(_ANTHROPIC_OUTPUT, _ANTHROPIC_OTHERS),
    InputTokensRequest: Neutral(accepted=(*_RESPONSES_OUTPUT, *_RESPONSES_OTHERS)),
    ResponsesRenderRequest: Neutral(_RESPONSES_OUTPUT, _RESPONSES_OTHERS),
}
# fmt: on
"""The model of a request in another server's format -> its fields without effect on the prompt."""

_CUT: Final = "the ids of a cut prompt are not those of a model's turn; cut the ids yourself"
_STORED: Final = "nothing is stored here; send all of it in this request"
_TOOLS: Final = "send the functions in tools"
_CONSTRAINT: Final = "send it in structured_outputs"
_IDS: Final = "ids of this route are those of the text; send them to your server yourself"
_TEMPLATE: Final = "this route does not do it; /v1/chat/completions/render does"
_VARIABLE: Final = "send it in chat_template_kwargs, under the template's name of it"
_SPECIAL: Final = "this format has no such option; another key for the text has it"

REFUSED: Final = {
    # Options of one route that another does not have
    "add_generation_prompt": _TEMPLATE,
    "add_special": _SPECIAL,
    "add_special_tokens": _SPECIAL,
    "chat_template": _TEMPLATE,
    "chat_template_kwargs": _TEMPLATE,
    "continue_final_message": _TEMPLATE,
    "documents": _TEMPLATE,
    "enable_thinking": _VARIABLE,
    "input": "this route reads another field",
    "instructions": "send it as a system message",
    "messages": "this route reads another field",
    "parse_special": _SPECIAL,
    "reasoning": "send reasoning_effort, or a variable of the template in chat_template_kwargs",
    "reasoning_effort": _VARIABLE,
    "system": "send it as a system message",
    "thinking": _VARIABLE,
    "tools": _TEMPLATE,
    # What no route does
    "container": "its skills are text that only its own server knows",
    "context_management": "it removes messages; send the messages that are left",
    "conversation": _STORED,
    "function_call": _TOOLS,
    "ebnf": _CONSTRAINT,
    "functions": _TOOLS,
    "guided_choice": _CONSTRAINT,
    "guided_grammar": _CONSTRAINT,
    "guided_json": _CONSTRAINT,
    "guided_regex": _CONSTRAINT,
    "input_ids": _IDS,
    "mcp_servers": "their tools are text that only its own server knows; " + _TOOLS,
    "personality": "only its own server knows its text; send it in instructions",
    "previous_input_messages": _STORED,
    "previous_response_id": _STORED,
    "prompt": _STORED,
    "prompt_embeds": "embeddings have no ids; send them to your server yourself",
    "prompt_token_ids": _IDS,
    "prompt_name": "prompts are not known here; send them as part of the text",
    "regex": _CONSTRAINT,
    "suffix": "filling in the middle needs the model's own form; send the text that it reads",
    "thread": _STORED,
    "token_ids": _IDS,
    "truncate_prompt_tokens": _CUT,
    "truncation_side": _CUT,
    "use_beam_search": "requests of /inference/v1/generate have no beam search; leave it out",
    "web_search_options": "its results are text that only its own server knows",
}
"""Fields that change the prompt, or what is generated from it, where a model does not have them ->
the remedy."""

_RESULT_ONLY: Final = {"return_token_offsets", "return_token_strs", "with_pieces"}
"""Fields of models that change only the response."""


def without_nulls(value: Any) -> Any:
    """`value` without its null members, which other servers treat as absent."""
    if isinstance(value, dict):
        return {key: member for key, member in value.items() if member is not None}
    return value


def validate_borrowed(value: Any, model: type[Model]) -> Model:
    """Validate `value` as a `model` of `NEUTRAL`; further fields stay in its `model_extra`.

    Raises:
        Problem: 422 for a field that changes the prompt and that the route does not do, for an
            unknown field with a name like one of these, and for too many unknown fields; otherwise
            as `validate`.
    """
    if isinstance(value, dict) and not value.keys() <= model.model_fields.keys():
        _check_further(value, model)
    return validate(value, model)


def reporting_ignored(
    render: Callable[[Wanted, LiveTokenizer], Rendered],
) -> Callable[[Wanted, LiveTokenizer], Rendered]:
    """`render`, with a header that lists the fields of the request that were ignored."""

    def rendered(wanted: Wanted, live: LiveTokenizer) -> Rendered:
        result = render(wanted, live)
        model: Any = type(wanted)
        extra = getattr(wanted, "model_extra", None) if model in NEUTRAL else None
        listed = [name for name in extra or () if _is_unknown(name, model)]
        if not listed:
            return result
        value = ", ".join(quote(name, safe="")[:_MAX_LISTED_CHARS] for name in listed)
        return result._replace(headers=(*result.headers, (b"ignored-fields", value.encode())))

    return rendered


def prompt_fields(model: type[BaseModel]) -> list[str]:
    """The fields of `model` that may change the ids or the text."""
    return [name for name in model.model_fields if name not in _RESULT_ONLY]


BODY_FIELDS: Final = frozenset(
    {*REFUSED, *(name for model in NEUTRAL for name in prompt_fields(model))}
)
"""All fields of other servers' requests that may change the ids or the text."""


def _is_unknown(name: str, model: type[BaseModel]) -> bool:
    known = NEUTRAL[model]
    return name not in REFUSED and name not in known.carried and name not in known.accepted


def _check_further(value: dict[str, Any], model: type[BaseModel]) -> None:
    further = [name for name in value if name not in model.model_fields]
    unknown = [name for name in further if _is_unknown(name, model)]
    for name in further:
        is_unused = value[name] in ([], {}, "") or (name, value[name]) == ("use_beam_search", False)
        if name in REFUSED and not is_unused:
            refuse(f"/{name}", f"is not supported here: {REFUSED[name]}")
    if len(unknown) > MAX_IGNORED:
        detail = f"the request has {len(unknown)} unknown fields; at most {MAX_IGNORED} are ignored"
        raise InvalidFieldError("", detail)
    for name in unknown:
        meant = _nearest(name, model) if len(name) <= _MAX_LISTED_CHARS else None
        if meant is not None:
            refuse(f"/{name}", f"is unknown, and like {meant}, which changes prompt or output")


@lru_cache(maxsize=1024)  # a client sends the same unknown fields with each request
def _nearest(name: str, model: type[BaseModel]) -> str | None:
    """The field that changes prompt or output and from which `name` is at most two edits away."""
    outputs = [known for known in _OUTPUT_FIELDS if known in NEUTRAL[model].carried]
    fields = (*prompt_fields(model), *REFUSED, *outputs)
    return next((known for known in fields if is_near(name, known)), None)


def is_near(name: str, known: str, edits: int = _MOST_EDITS) -> bool:
    """Whether this many insertions, deletions or replacements of a character make one of the other.

    Example:
        >>> is_near("tool", "tools"), is_near("toolz", "tools"), is_near("toolset", "tool")
        (True, True, False)
    """
    if abs(len(name) - len(known)) > edits:
        return False
    while name and known and name[0] == known[0]:
        name, known = name[1:], known[1:]
    if not name or not known or not edits:
        return len(name) + len(known) <= edits
    shorter = ((name[1:], known), (name, known[1:]), (name[1:], known[1:]))
    return any(is_near(*pair, edits - 1) for pair in shorter)
