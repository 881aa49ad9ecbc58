"""Schemas of the dialects: requests and responses of other servers' tokenize routes.

Field names and defaults, above all those for special tokens, are those of the other servers. The
headers identify the tokenizer, not the body, because some clients of those servers reject unknown
fields. Source: the definitions of vLLM, SGLang, llama.cpp, text-embeddings-inference and Cohere in
November 2026. A field that is `null` counts as not sent, see `routes.dialects`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, Field, RootModel

from tokenizer_client.schemas.chat import (
    AS_VLLM,
    CompletionRequest,
    DialectRequest,
    RenderedRequest,
    RenderResponse,
)
from tokenizer_client.schemas.tokens import (
    MixedContent,
    Prompts,
    Texts,
    TokenizerIdentity,
    TokenLists,
)

NO_MODEL_LENGTH: Final = -1
"""`max_model_len` where no import says it, as in SGLang."""


AddSpecialTokens = Annotated[
    bool, Field(description="Add the ids of the tokenizer's post-processor to each text.")
]


class PromptRequest(DialectRequest):
    """`/tokenize` of vLLM and SGLang, with SGLang's form of a batch."""

    model_config = AS_VLLM

    prompt: Texts
    add_special_tokens: AddSpecialTokens = True
    return_token_strs: bool = False

    @property
    def wants_more_than_ids(self) -> bool:
        """Whether the response has the tokens as text too."""
        return self.return_token_strs


class ContentRequest(DialectRequest):
    """`/tokenize` of llama.cpp."""

    content: MixedContent
    add_special: bool = Field(
        default=False,
        description="Add the ids of the tokenizer's post-processor to the text, or to the first "
        "entry of a list if that is a text.",
    )
    parse_special: bool = Field(
        default=True, description="Recognise special tokens; if false, they are plain text."
    )
    with_pieces: bool = False

    @property
    def wants_more_than_ids(self) -> bool:
        """Whether the response has the piece of each token too."""
        return self.with_pieces


class InputsRequest(DialectRequest):
    """`/tokenize` of text-embeddings-inference."""

    inputs: Texts
    add_special_tokens: AddSpecialTokens = True

    wants_more_than_ids: ClassVar[bool] = True  # the response describes each token


class PlainTextRequest(DialectRequest):
    """`/tokenize` of Cohere, which adds no special tokens."""

    text: str

    wants_more_than_ids: ClassVar[bool] = True  # the response has the tokens as text


class MessagesRequest(CompletionRequest):
    """`/tokenize` of vLLM for a conversation, which its chat template renders."""

    model_config = AS_VLLM

    return_token_strs: bool = False

    @property
    def wants_more_than_ids(self) -> bool:
        """Whether the response has the tokens as text too."""
        return self.return_token_strs


TokenizeRequest = (
    PromptRequest | ContentRequest | InputsRequest | PlainTextRequest | MessagesRequest
)

DIALECTS: Final[dict[str, type[TokenizeRequest]]] = {
    "prompt": PromptRequest,
    "content": ContentRequest,
    "inputs": InputsRequest,
    "text": PlainTextRequest,
    "messages": MessagesRequest,
}
"""The key that identifies a dialect -> its request."""


class CompletionRenderRequest(RenderedRequest):
    """`/v1/completions/render` of vLLM: a completion that is rendered and not run."""

    prompt: Prompts
    add_special_tokens: AddSpecialTokens = True


class DetokenizeRequest(DialectRequest):
    """`/detokenize` of all dialects, with SGLang's form of a batch."""

    tokens: TokenLists
    skip_special_tokens: bool | None = Field(
        default=None,
        description="Default: omitted from `text`, as by SGLang and Cohere's client, and kept in "
        "`prompt` and `content`, as by vLLM and llama.cpp.",
    )


class IdsRequest(DialectRequest):
    """`/decode` of text-embeddings-inference."""

    ids: TokenLists
    skip_special_tokens: bool = True


class PromptResponse(BaseModel):
    """For a batch, each field except `max_model_len` is a list with one entry per text."""

    count: int | list[int]
    max_model_len: int = Field(description="As the import says (--max-model-len), else -1.")
    tokens: list[int] | list[list[int]]
    token_strs: list[str] | list[list[str]] | None = Field(
        description="One character a byte, in GPT-2's alphabet; special tokens as they are."
    )


class RenderResponses(RootModel[list[RenderResponse]]):
    """One request for `/inference/v1/generate` per prompt."""


class ContentPiece(BaseModel):
    """A token in llama.cpp's response."""

    id: int
    piece: str | list[int] = Field(
        description="A list of bytes if they are not UTF-8 by themselves."
    )


class ContentResponse(BaseModel):
    """llama.cpp's response; with pieces if the request asks for them."""

    tokens: list[int] | list[ContentPiece]


class InputToken(BaseModel):
    """A token in the response of text-embeddings-inference."""

    id: int
    text: str = Field(description="The characters of the text that share a byte with the token.")
    special: bool = Field(description="Whether the post-processor added the token.")
    start: int | None = Field(
        description="In bytes of the text; null if the post-processor added the token."
    )
    stop: int | None


class InputsResponse(RootModel[list[list[InputToken]]]):
    """One list per text, also for a single text."""


class PlainTextResponse(BaseModel):
    """Cohere's response."""

    tokens: list[int]
    token_strings: list[str] = Field(
        description="Bytes that are not UTF-8 by themselves are U+FFFD."
    )


class DetokenizeResponse(BaseModel):
    """The text under the key of each dialect; for a batch, each value is a list."""

    prompt: str | list[str]
    content: str | list[str]
    text: str | list[str]


class IdsResponse(RootModel[list[str]]):
    """One text per list of ids, also for a single list."""


class TokenizerInfoResponse(BaseModel):
    """vLLM's response: the content of a `tokenizer_config.json`."""

    tokenizer_class: str
    bos_token: str | None = Field(
        description="As the model folder declares; without one, what the post-processor puts "
        "before a text."
    )
    eos_token: str | None = Field(
        description="As the model folder declares; without one, what the post-processor puts after "
        "a text, or else the only known document end."
    )
    pad_token: str | None = Field(description="As the model folder declares.")
    unk_token: str | None
    sep_token: str | None = Field(default=None, description="Absent if no folder declares it.")
    cls_token: str | None = Field(default=None, description="Absent if no folder declares it.")
    mask_token: str | None = Field(default=None, description="Absent if no folder declares it.")
    model_max_length: int | None = Field(
        default=None, description="Absent if no folder declares one of at most 2^31."
    )
    add_bos_token: bool
    add_eos_token: bool
    additional_special_tokens: list[str]
    added_tokens_decoder: dict[int, str]
    clean_up_tokenization_spaces: bool
    chat_template: str | None = Field(description="The source of the template `default`.")
    vocab_size: int
    tokenizer: TokenizerIdentity


class PropsSettings(BaseModel):
    """What of llama.cpp's generation settings is known."""

    n_ctx: int = Field(description="`max_model_len` as the import says, else 0.")
    params: dict[str, Any] = Field(description="Empty: nothing is generated here.")


class PropsModalities(BaseModel):
    """What a prompt may hold beside text: nothing."""

    vision: Literal[False]
    audio: Literal[False]


class PropsResponse(BaseModel):
    """llama.cpp's response."""

    default_generation_settings: PropsSettings
    total_slots: int = Field(description="Threads for conversations.")
    model_alias: str = Field(description="Name of the tokenizer.")
    model_path: str = Field(description="`name@version` of the tokenizer.")
    chat_template: str = Field(description="The source of the template `default`; may be empty.")
    bos_token: str = Field(description="Empty if there is none.")
    eos_token: str
    modalities: PropsModalities
    build_info: str
    is_sleeping: Literal[False]
