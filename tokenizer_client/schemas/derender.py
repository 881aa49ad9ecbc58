"""Schemas of vLLM's derender routes: generated ids back to what OpenAI's API returns.

The fields are those of vLLM 0.33.0; `parser` and the state are ours. Fields of a generated response
that are not here are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from tokenizer_client.schemas.tokens import (
    MAX_ID,
    ModelName,
    RequestModel,
    TokenIds,
    TokenizerName,
    form,
)

MAX_STATE_BYTES: Final = 1 << 16
"""The size of the state of a stream, as JSON."""

MAX_OUTPUTS: Final = 1024
"""Most outputs of one request."""

MAX_CONTEXT: Final = 4
"""At most this many ids in front of one complete a character with it."""

_MOST: Final = (1 << 53) - 1

ParserName = Annotated[
    Literal["hermes", "qwen3", "deepseek_v3", "deepseek_v31"] | None,
    Field(
        description="How the model writes reasoning and tool calls; by default what the import of "
        "the tokenizer names. Without one, all text is content."
    ),
]


class _Borrowed(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", frozen=True, hide_input_in_errors=True)


class TokenLogprob(BaseModel):
    """An id that is possible at a position; without a text if the vocabulary does not have it."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    token_id: int = Field(ge=0, le=MAX_ID)
    logprob: float = Field(allow_inf_nan=False)


class PositionLogprobs(TokenLogprob):
    """The id that was chosen at a position, and the likeliest ones, in the order of the engine."""

    top_logprobs: list[TokenLogprob] = []


class Logprobs(_Borrowed):
    """One entry for each id of an output, or of the part of it."""

    content: list[PositionLogprobs] | None = None


class GeneratedChoice(_Borrowed):
    """One output, or the next part of it."""

    index: int = Field(ge=0, le=_MOST)
    token_ids: TokenIds | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: Logprobs | None = None


class GeneratedUsage(_Borrowed):
    """How many tokens there were; further fields are kept."""

    completion_tokens: int | None = Field(default=None, ge=0, le=_MOST)


class Generated(_Borrowed):
    """A response of `/inference/v1/generate`, or a chunk of it."""

    request_id: str = Field(max_length=1024)
    output_mode: Literal["tokens"] = "tokens"
    choices: list[GeneratedChoice] = Field(max_length=MAX_OUTPUTS)
    usage: GeneratedUsage | None = None
    prompt_token_ids: TokenIds | None = None
    prompt_logprobs: list[Any] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None


class StreamState(RequestModel):
    """The state of a stream, which the next request repeats as it is. It has no text."""

    version: Literal[1]
    tokenizer: str = Field(max_length=128, description="`name@version`; another one is a 409.")
    parser: ParserName
    index: int = Field(ge=0, le=_MOST, description="That of the choice.")
    mode: Literal["start", "reasoning", "content", "after_call", "finished"] = Field(
        description="What may follow."
    )
    held: list[Annotated[int, Field(ge=0, le=MAX_ID)]] = Field(
        max_length=8192, description="Ids whose text is not given out, or not all of it."
    )
    n_given: int = Field(ge=0, le=_MOST, description="Characters of it that are given out.")
    is_first: bool = Field(description="Whether no text is before that of `held`.")
    n_calls: int = Field(ge=0, le=_MOST, description="How many tool calls there were.")
    last: list[Annotated[int, Field(ge=0, le=MAX_ID)]] = Field(
        max_length=MAX_CONTEXT, description="The last ids, for the text of the next one alone."
    )
    n_chars: int = Field(ge=0, le=_MOST, description="Characters before the next of `logprobs`.")
    digest: str = Field(
        pattern=form("^[0-9a-f]{32}$", "must be that of a response"),
        description="Of the other fields.",
    )


class _DerenderRequest(_Borrowed):
    model: ModelName = None
    tokenizer: TokenizerName | None = None

    wants_more_than_ids: ClassVar[bool] = True  # the response has text, reasoning and calls


class _ChatOptions(_DerenderRequest):
    chat_request: dict[str, Any] | None = Field(
        default=None,
        description="The chat completion: `tools`, `tool_choice`, `include_reasoning`, "
        "`skip_special_tokens`, `return_token_ids`, `logprobs`, `top_logprobs`, "
        "`logprob_token_ids`, and of what ended the output `stop`, `stop_token_ids`, "
        "`min_tokens`, `ignore_eos` and `include_stop_str_in_output` count.",
    )
    parser: ParserName = None


class _CompletionOptions(_DerenderRequest):
    completion_request: dict[str, Any] | None = Field(
        default=None, description="As `chat_request`, without `tools` and reasoning."
    )


class DerenderChatRequest(_ChatOptions):
    """`/v1/chat/completions/derender` of vLLM: the outputs of a chat completion."""

    stream: Literal[False] = False
    generate_response: Generated
    prompt_tokens: int | None = Field(default=None, ge=0, le=_MOST)
    prompt_token_ids: TokenIds | None = Field(
        default=None,
        description="The prompt, or its end. It says whether the output continues a text, and "
        "whether it begins inside of reasoning.",
    )


class DerenderCompletionRequest(_CompletionOptions):
    """`/v1/completions/derender` of vLLM: one response for each prompt."""

    stream: Literal[False] = False
    generate_responses: list[Generated] = Field(min_length=1, max_length=MAX_OUTPUTS)
    prompt_tokens: list[Annotated[int, Field(ge=0, le=_MOST)]] | None = None
    prompt_token_ids: list[TokenIds | None] | None = None


class _StreamRequest(_DerenderRequest):
    stream: Literal[True]
    generate_chunk: Generated
    stream_state: StreamState | None = Field(
        default=None, description="That of the response before; null in front of the first part."
    )
    prompt_tokens: int | None = Field(default=None, ge=0, le=_MOST)
    prompt_token_ids: TokenIds | None = Field(
        default=None, description="As of a whole response; read with the first part."
    )


class DerenderChatStreamRequest(_StreamRequest, _ChatOptions):
    """One part of an output of a chat completion."""


class DerenderCompletionStreamRequest(_StreamRequest, _CompletionOptions):
    """One part of an output of a completion."""


class DerenderedResponse(BaseModel):
    """What OpenAI's API returns for a chat completion or a completion."""

    id: str
    object: Literal["chat.completion", "text_completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, int]


class DerenderedChunk(BaseModel):
    """A chunk of OpenAI's API, and the state for the next request."""

    chunk: dict[str, Any]
    stream_state: StreamState | None
