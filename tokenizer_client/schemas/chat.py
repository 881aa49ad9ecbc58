"""Schemas of requests with a conversation: our own route, and routes of other servers.

`/tokenize` takes messages too, see `dialects`. Further fields of other servers' requests: see
docs/http-reference.md; a field that is `null` counts as not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from tokenizer_client.schemas.tokens import (
    AddedTokens,
    ModelName,
    RequestModel,
    TokenizerIdentity,
    TokenizerName,
    invalid,
)

AS_VLLM: Final = ConfigDict(strict=False)
"""vLLM takes 5.0 and "5" as an integer, 1 and "yes" as a boolean."""

MAX_CHAT_NESTING: Final = 64
"""Greatest nesting of objects and lists in a request with a conversation."""


def _otherwise(what: str) -> WrapValidator:
    """Refuse in these words what fits no type of a union: pydantic names each as a field."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise invalid(what) from None

    return WrapValidator(check)


Objects = list[dict[str, Any]]
TextOrObjects = Annotated[str | Objects | None, _otherwise("must be a text or a list of objects")]
Messages = Annotated[
    Objects,
    Field(
        min_length=1,
        description="The conversation: objects with `role`, `content` and what the template reads.",
    ),
]
Tools = Annotated[
    Objects | None, Field(description="Functions that the model may call, as JSON schemas.")
]
Documents = Annotated[Objects | None, Field(description="Documents for templates that read them.")]
TemplateName = Annotated[
    str | None,
    Field(
        max_length=256,
        description="Name of a chat template of the tokenizer; its source is refused.",
    ),
]
TemplateArguments = Annotated[
    dict[str, Any] | None,
    Field(description="Further variables of the template, such as `enable_thinking`."),
]
GenerationPrompt = Annotated[
    bool, Field(description="End with what asks the model for its next turn.")
]
MessagesForm = Literal["raw", "decoded", "vllm"]
LossRule = Literal["auto", "template", "role"]
TruncatePromptTokens = Annotated[
    int | None,
    Field(
        ge=-1,
        description="Keep at most this many tokens of a prompt; -1: one less than the "
        "`max_model_len` of the import, or all of them with `max_tokens: 0`.",
    ),
]
TruncationSide = Annotated[
    Literal["left", "right"] | None,
    Field(
        description="Where to cut. Default: as the `tokenizer.json` says; if it does not, a prompt "
        "that must be cut is refused. Without it the post-processor's tokens stay around what is "
        "left, with it they are cut as any other, as by vLLM."
    ),
]


class ChatEncodeRequest(RequestModel):
    """A conversation to token ids, as the chat template of the tokenizer writes it."""

    messages: Messages
    tools: Tools = None
    documents: Documents = None
    chat_template: TemplateName = None
    add_generation_prompt: GenerationPrompt = False
    continue_final_message: Annotated[
        bool | Annotated[str, Field(pattern=r"^[A-Za-z_]{1,64}$")],
        _otherwise("must be a boolean or the name of a field"),
    ] = Field(
        default=False,
        description="End inside the last message, after its content or after the named field, for "
        "the model to continue it.",
    )
    chat_template_kwargs: TemplateArguments = None
    added_tokens: AddedTokens = "all"
    messages_form: MessagesForm = Field(
        default="raw",
        description="What is changed before the template reads the messages: `raw` nothing, as "
        "`apply_chat_template`; `decoded` contents, arguments of calls and tools get the shapes "
        "that the template reads, without loss; `vllm` what vLLM changes.",
    )
    returned: Sequence[Literal["ids", "text", "mask", "spans"]] = Field(
        default=("ids",), alias="return", max_length=4, description="Parts of the response."
    )
    loss_rule: LossRule = Field(
        default="auto",
        description="How `mask` finds what the assistant writes: `template` by the generation tags "
        "of the template, `role` by the messages of the assistant, `auto` by the tags if there are "
        "any.",
    )
    turn_ends: Sequence[str] = Field(
        default=(),
        max_length=64,
        description="Added tokens that the assistant writes to end its turn, besides those that "
        "the model folder declares.",
    )
    max_tokens: int | None = Field(
        default=None, ge=0, description="A conversation with more tokens is a 413."
    )
    tokenizer: TokenizerName | None = None


class DialectRequest(RequestModel):
    """The fields that all requests of other servers accept; further ones: see
    docs/http-reference.md."""

    model_config = ConfigDict(extra="allow")

    model: ModelName = None
    tokenizer: TokenizerName | None = None


Kind = TypeVar("Kind")
SglangField = Annotated[
    Kind, Field(description="Of SGLang; refused without `/as/sglang/` before the path.")
]


class SglangConstraints(BaseModel):
    """SGLang's own fields that constrain the output."""

    json_schema: SglangField[str | None] = None
    regex: SglangField[str | None] = None
    ebnf: SglangField[str | None] = None
    stop_regex: SglangField[
        Annotated[str | list[str] | None, _otherwise("must be a string or a list of strings")]
    ] = None


class RenderedRequest(SglangConstraints, DialectRequest):
    """A request that is rendered to one for vLLM's `/inference/v1/generate`."""

    model_config = AS_VLLM

    return_token_offsets: bool | None = False
    truncate_prompt_tokens: TruncatePromptTokens = None
    truncation_side: TruncationSide = None

    @property
    def wants_more_than_ids(self) -> bool:
        """Whether the response has the offsets of the tokens."""
        return bool(self.return_token_offsets)


class _OtherServersRequest(DialectRequest):
    """Base of the conversations in requests of other servers."""

    chat_template: TemplateName = None
    chat_template_kwargs: TemplateArguments = None
    tools: Tools = None


class CompletionRequest(_OtherServersRequest):
    """Base of chat completions that are not run."""

    messages: Messages
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = Field(
        default=False, description="Add the ids of the tokenizer's post-processor."
    )


class ChatInputRequest(CompletionRequest):
    """`/v1/chat/completions/input_tokens` and `/apply-template` of llama.cpp."""

    documents: Documents = None
    reasoning_effort: str | None = Field(
        default=None, description="A variable of the template; also sets `enable_thinking`."
    )


class ChatRenderRequest(ChatInputRequest, RenderedRequest):
    """`/v1/chat/completions/render` of vLLM: a chat completion that is rendered and not run."""


class CountTokensRequest(_OtherServersRequest):
    """`/v1/messages/count_tokens` of Anthropic."""

    messages: Messages
    system: TextOrObjects = None
    output_config: dict[str, Any] | None = Field(
        default=None, description="`effort` is `reasoning_effort` of a chat completion."
    )
    thinking: dict[str, Any] | None = Field(
        default=None,
        description="Of the type `disabled`: `reasoning_effort` is `none`, or `low` if "
        "the template treats `none` as another effort.",
    )


class MessagesRenderRequest(CountTokensRequest):
    """`/v1/messages/render` of vLLM."""

    model_config = AS_VLLM


class InputTokensRequest(_OtherServersRequest):
    """`/v1/responses/input_tokens` of OpenAI."""

    input: TextOrObjects = None
    instructions: str | None = None
    reasoning: dict[str, Any] | None = Field(
        default=None, description="`effort` is a variable of the template."
    )


class GeminiCountRequest(_OtherServersRequest):
    """`models/{model}:countTokens` of Gemini: contents, or a whole request."""

    contents: Objects | None = None
    generateContentRequest: dict[str, Any] | None = Field(  # noqa: N815 - Gemini's name
        default=None,
        description="`contents` with `systemInstruction` and `tools`, in place of `contents`.",
    )


class ResponsesRenderRequest(InputTokensRequest):
    """`/v1/responses/render` of vLLM."""

    model_config = AS_VLLM


class ChatTemplateIdentity(BaseModel):
    """The chat template that rendered a conversation."""

    name: str
    sha256: str


class MessageSpan(BaseModel):
    """The tokens of a message's text, without what the template writes around it."""

    role: str
    tokens: tuple[int, int] | None = Field(
        description="Index of the first token and of the one after the last; null if the template "
        "uses no text of the message."
    )


class ChatTurn(BaseModel):
    """A turn of the assistant: what of it is learned."""

    message: int | None = Field(
        description="Index of its message; null between the generation tags of the template."
    )
    tokens: tuple[int, int] | None = Field(
        description="Index of the first learned token and of the one after the last; null if the "
        "turn is not learned."
    )
    problem: str | None = Field(
        description="Why its end is not learned: `end_of_conversation` (nothing follows), "
        "`no_special_token`, `outside_tags`; why the turn is not: `unanswered` (the template "
        "refuses what is in front of it), `no_prompt` (what asks for a turn is not there), "
        "`interleaved` (text of another message is inside), `no_text` (the template writes none)."
    )


class ChatEncodeResponse(BaseModel):
    """The parts that `return` names; `count`, `chat_template` and `tokenizer` always."""

    tokens: list[int] | None = None
    count: int
    text: str | None = None
    mask: list[int] | None = Field(
        default=None, description="1 for each token that the assistant shall learn to write."
    )
    turns: list[ChatTurn] | None = Field(
        default=None, description="The turns of the assistant, with `mask`."
    )
    spans: list[MessageSpan] | None = None
    chat_template: ChatTemplateIdentity
    tokenizer: TokenizerIdentity


class RenderResponse(BaseModel):
    """The request that vLLM's `/inference/v1/generate` takes."""

    request_id: str = Field(
        description="`X-Request-Id`, or `request_id` of the request, or a new one, after "
        "vLLM's prefix of the route; for several prompts, with the index of the prompt."
    )
    token_ids: list[int]
    input_ids: list[int] = Field(description="The same ids, under SGLang's name.")
    token_offsets: list[tuple[int, int]] | None = Field(
        description="Start and end of each token in characters of the prompt, if asked for."
    )
    features: None
    sampling_params: dict[str, Any] = Field(
        description="What the request sets, under the names of vLLM's sampling parameters."
    )
    model: str | None
    stream: bool
    stream_options: dict[str, Any] | None
    cache_salt: str | None
    priority: int
    kv_transfer_params: dict[str, Any] | None
    ec_transfer_params: dict[str, Any] | None
    return_token_ids: bool | None
    reasoning_ended: bool | None = Field(
        description="True if the request has `include_reasoning: false`."
    )


class CountTokensResponse(BaseModel):
    """Anthropic's response."""

    input_tokens: int


class InputTokensResponse(BaseModel):
    """OpenAI's response."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class ApplyTemplateResponse(BaseModel):
    """llama.cpp's response."""

    prompt: str


class GeminiTokenDetails(BaseModel):
    """The tokens of one modality."""

    modality: Literal["TEXT"]
    tokenCount: int  # noqa: N815


class GeminiCountResponse(BaseModel):
    """Gemini's response."""

    totalTokens: int  # noqa: N815
    promptTokensDetails: list[GeminiTokenDetails]  # noqa: N815
