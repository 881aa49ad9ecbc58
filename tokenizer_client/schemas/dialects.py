"""Schemas of the dialects: what other servers' tokenize and detokenize routes take and answer.

They follow those servers where our own schemas follow this project: their field names, their
defaults, above all for special tokens, and no identity in the body, since some of their clients
take no field they do not know (it is in the headers). Read from the definitions of vLLM, SGLang,
llama.cpp, text-embeddings-inference and Cohere in November 2026. What a client sends as `null`
counts as not sent, see `routes.dialects`.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field, RootModel

from tokenizer_client.schemas.tokens import (
    RequestModel,
    Texts,
    TokenizerIdentity,
    TokenizerName,
    TokenLists,
)

NO_MODEL_LENGTH: Final = -1
"""`max_model_len` where there is no model, as SGLang says it."""


class DialectRequest(RequestModel):
    """What all dialects take."""

    model: str | None = Field(
        default=None, description="Taken and not looked at; `tokenizer` chooses the tokenizer."
    )
    tokenizer: TokenizerName | None = None


class PromptRequest(DialectRequest):
    """`/tokenize` of vLLM and SGLang; a batch as SGLang takes it."""

    prompt: Texts
    add_special_tokens: bool = Field(
        default=True, description="Put around each text what the tokenizer's post-processor adds."
    )
    return_token_strs: bool = False


class ContentRequest(DialectRequest):
    """`/tokenize` of llama.cpp."""

    content: str
    add_special: bool = Field(
        default=False, description="Put around the text what the tokenizer's post-processor adds."
    )
    parse_special: bool = Field(
        default=True, description="Recognise special tokens; false takes them as plain text."
    )
    with_pieces: bool = False


class InputsRequest(DialectRequest):
    """`/tokenize` of text-embeddings-inference."""

    inputs: Texts
    add_special_tokens: bool = Field(
        default=True, description="Put around each text what the tokenizer's post-processor adds."
    )


class PlainTextRequest(DialectRequest):
    """`/tokenize` of Cohere, which adds no special tokens."""

    text: str


TokenizeRequest = PromptRequest | ContentRequest | InputsRequest | PlainTextRequest

DIALECTS: Final[dict[str, type[TokenizeRequest]]] = {
    "prompt": PromptRequest,
    "content": ContentRequest,
    "inputs": InputsRequest,
    "text": PlainTextRequest,
}
"""The key that tells a dialect -> its request."""


class DetokenizeRequest(DialectRequest):
    """`/detokenize` of all of them; a batch as SGLang takes it."""

    tokens: TokenLists
    skip_special_tokens: bool | None = Field(
        default=None,
        description="Unset: left out of `text`, as SGLang and Cohere's client do, and kept in "
        "`prompt` and `content`, as vLLM and llama.cpp do.",
    )


class IdsRequest(DialectRequest):
    """`/decode` of text-embeddings-inference."""

    ids: TokenLists
    skip_special_tokens: bool = True


class PromptResponse(BaseModel):
    """With a batch each field but `max_model_len` is a list, one entry a text."""

    count: int | list[int]
    max_model_len: int = Field(description="-1: there is no model here.")
    tokens: list[int] | list[list[int]]
    token_strs: list[str] | list[list[str]] | None = Field(
        description="One character a byte, in GPT-2's alphabet; special tokens as they are."
    )


class ContentPiece(BaseModel):
    """A token of llama.cpp's answer."""

    id: int
    piece: str | list[int] = Field(description="Bytes where they are not UTF-8 by themselves.")


class ContentResponse(BaseModel):
    """llama.cpp's answer; pieces where they were asked for."""

    tokens: list[int] | list[ContentPiece]


class InputToken(BaseModel):
    """A token of text-embeddings-inference's answer."""

    id: int
    text: str = Field(description="The characters of the text that the token has a byte of.")
    special: bool = Field(description="Whether the post-processor added it.")
    start: int | None = Field(description="In bytes of the text; null for an added one.")
    stop: int | None


class InputsResponse(RootModel[list[list[InputToken]]]):
    """One list a text, also for a single one."""


class PlainTextResponse(BaseModel):
    """Cohere's answer."""

    tokens: list[int]
    token_strings: list[str] = Field(description="U+FFFD for what is not UTF-8 by itself.")


class DetokenizeResponse(BaseModel):
    """Each dialect reads the key it knows; with a batch they are lists."""

    prompt: str | list[str]
    content: str | list[str]
    text: str | list[str]


class IdsResponse(RootModel[list[str]]):
    """One text a list, also for a single one."""


class TokenizerInfoResponse(BaseModel):
    """As vLLM answers: what would stand in a `tokenizer_config.json`."""

    tokenizer_class: str
    bos_token: str | None = Field(description="What the post-processor puts before a text.")
    eos_token: str | None = Field(
        description="What the post-processor puts behind a text, else the first of "
        "<|endoftext|>, <|end_of_text|>, </s>, <eos> that is a special token."
    )
    pad_token: str | None = Field(description="Null: no format says it.")
    unk_token: str | None = Field(description="Null: every text has tokens.")
    add_bos_token: bool
    add_eos_token: bool
    additional_special_tokens: list[str]
    added_tokens_decoder: dict[int, str]
    clean_up_tokenization_spaces: bool
    vocab_size: int
    tokenizer: TokenizerIdentity
