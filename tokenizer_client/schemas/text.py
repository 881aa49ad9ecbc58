"""Schemas of the routes that count, truncate, chunk, verify and align text, of `GET /vocab/{id}`
and `POST /merges`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from tokenizer_client.schemas.tokens import (
    AddedTokens,
    AllowedSpecial,
    DisallowedSpecial,
    RequestModel,
    SegmentsField,
    TextsField,
    TokenIds,
    TokenizerIdentity,
    TokenizerName,
    invalid,
)

if TYPE_CHECKING:
    from pydantic import ValidationInfo

MAX_TOKEN_LIMIT: Final = (1 << 32) - 1
"""Largest token limit that a request may set."""

MAX_TREE_DEPTH: Final = 16
"""Greatest depth of the merge tree of a token."""

MAX_MERGES_TOKENS: Final = 4096
"""Most tokens whose merges a request may ask for."""


class TextRequest(RequestModel):
    """The fields that all these requests accept."""

    allowed_special: AllowedSpecial = "all"
    disallowed_special: DisallowedSpecial = frozenset()
    added_tokens: AddedTokens = "all"
    tokenizer: TokenizerName | None = None


class CountRequest(TextRequest):
    """A text, texts, or segments of a text, whose tokens to count."""

    text: TextsField = None
    segments: SegmentsField = None  # its check reads the fields above
    limit: int | None = Field(
        default=None, ge=0, le=MAX_TOKEN_LIMIT, description="Stop counting above this number."
    )


class TruncateRequest(TextRequest):
    """A text, and how many of its tokens to keep."""

    text: str
    max_tokens: int = Field(ge=0, le=MAX_TOKEN_LIMIT)
    side: Literal["right", "left"] = Field(
        default="right", description="The side that is cut off; `right` keeps the beginning."
    )


class ChunkRequest(TextRequest):
    """A text to split into chunks."""

    text: str
    max_tokens: int = Field(ge=1, le=MAX_TOKEN_LIMIT, description="Maximum tokens of a chunk.")
    overlap_tokens: int = Field(
        default=0,
        ge=0,
        le=MAX_TOKEN_LIMIT,
        description="Maximum tokens that a chunk repeats from the previous one; below max_tokens.",
    )
    offset_unit: Literal["byte", "char"] = Field(
        default="byte", description="Unit of `start` and `end`."
    )

    @field_validator("overlap_tokens")
    @classmethod
    def _check_overlap(cls, value: int, info: ValidationInfo) -> int:
        if value >= info.data.get("max_tokens", MAX_TOKEN_LIMIT + 1):
            raise invalid("must be below max_tokens")
        return value


class VerifyRequest(TextRequest):
    """Either a text or token ids."""

    text: str | None = None
    tokens: TokenIds | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.text is None) == (self.tokens is None):
            raise invalid("give either text or tokens")
        return self


class AlignRequest(TextRequest):
    """A text whose tokens by two tokenizers to align."""

    text: str
    other: TokenizerName = Field(description="The tokenizer to align with.")

    wants_more_than_ids: ClassVar[bool] = True  # the groups


class CountResponse(BaseModel):
    """For a batch, each field except `tokenizer` is a list with one entry per text."""

    count: int | list[int] = Field(description="The count; `limit` if the text has more.")
    limit_exceeded: bool | list[bool] = Field(
        description="Whether the text has more than `limit` tokens."
    )
    tokenizer: TokenizerIdentity


class TruncateResponse(BaseModel):
    """The rest of the text; `tokens` are exactly the ids of `text`."""

    text: str
    tokens: list[int]
    count: int
    truncated: bool
    tokenizer: TokenizerIdentity


class Chunk(BaseModel):
    """A chunk and its offset in the text; `tokens` are exactly the ids of `text`."""

    text: str
    tokens: list[int]
    start: int
    end: int


class ChunkResponse(BaseModel):
    """The chunks in order; an empty text has none."""

    chunks: list[Chunk]
    tokenizer: TokenizerIdentity


class VerifyResponse(BaseModel):
    """Whether the round trip returns the input unchanged."""

    ok: bool
    first_difference: int | None = Field(
        description="Index of the first id, or of the first character of the normalized text, that "
        "changes."
    )
    lossy: bool = Field(
        default=False,
        description="Whether the tokenizer loses some of the text, as its split pattern or its "
        "missing bytes say; that is no difference.",
    )
    tokenizer: TokenizerIdentity


class AlignResponse(BaseModel):
    """The ids of both, in the smallest groups that cover the same bytes of the text.

    Group `i` is `tokens[offsets[i]:offsets[i + 1]]` and the same of `other_tokens`.
    """

    tokens: list[int]
    other_tokens: list[int]
    offsets: list[int]
    other_offsets: list[int]
    byte_offsets: list[int] = Field(
        description="Group `i` covers these bytes of the text in UTF-8, from `i` to `i + 1`."
    )
    tokenizer: TokenizerIdentity
    other: TokenizerIdentity


class MergeNode(BaseModel):
    """A token of a merge tree."""

    id: int
    bytes: str = Field(description="Base64.")
    text: str | None = Field(description="Null if the bytes are not UTF-8 by themselves.")
    rank: int | None
    parts: tuple[MergeNode, MergeNode] | None
    cut: bool = Field(description="Whether the token has parts that are not shown.")


class MergesRequest(RequestModel):
    """Tokens whose merges to list."""

    tokens: TokenIds = Field(description=f"At most {MAX_MERGES_TOKENS:,} ids.")
    tokenizer: TokenizerName | None = None

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        if len(self.tokens) > MAX_MERGES_TOKENS:
            raise invalid(f"give at most {MAX_MERGES_TOKENS:,} tokens")
        return self


class MergesResponse(BaseModel):
    """The merges that make these tokens, their parts, the parts of those, and so on."""

    merges: list[tuple[int, int, int, int]] = Field(
        description="Of each merge: the token it makes, its two parts, and the size of the "
        "vocabulary that first has it."
    )
    base_size: int = Field(description="Size of the vocabulary before the first merge.")
    full_size: int = Field(description="Size of the vocabulary without added tokens.")
    tokenizer: TokenizerIdentity


class VocabResponse(BaseModel):
    """One token of the vocabulary."""

    id: int
    bytes: str = Field(description="Base64.")
    text: str | None = Field(description="Null if the bytes are not UTF-8 by themselves.")
    rank: int | None = Field(description="Rank of its merge; null if no merge makes it.")
    special: bool
    parts: tuple[int, int] | None = Field(description="The two ids that merge into it.")
    tree: MergeNode
    tokenizer: TokenizerIdentity
