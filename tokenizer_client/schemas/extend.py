"""Schemas of `/extend`: ids that stay, and the text or the messages after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    BaseModel,
    Field,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from tokenizer_client.schemas.chat import (
    ChatTemplateIdentity,
    Documents,
    GenerationPrompt,
    MessagesForm,
    Objects,
    TemplateArguments,
    TemplateName,
    Tools,
)
from tokenizer_client.schemas.tokens import (
    MAX_BATCH_ITEMS,
    AddedTokens,
    AllowedSpecial,
    BatchTooLargeError,
    DisallowedSpecial,
    IdsError,
    RequestModel,
    SegmentList,
    TokenIds,
    TokenizerIdentity,
    TokenizerName,
    invalid,
    parse_ids,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _check_mask(value: Any) -> NDArray[np.uint32]:
    mask = parse_ids(value, "/mask") if isinstance(value, list) else None
    if mask is None or mask.max(initial=0) > 1:
        raise invalid("must be a list of 0 and 1")
    return mask


def _check_batch(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, list) and len(value) > MAX_BATCH_ITEMS:
        raise BatchTooLargeError(len(value))
    try:
        return validate(value)
    except IdsError:
        for index, item in enumerate(value):
            try:
                validate([item])
            except IdsError as error:  # it knows its place in the item only
                places = [f"/batch/{index}{pointer}" for pointer in error.pointers]
                raise IdsError(places, error.count) from None
            except ValidationError:
                continue
        raise


class _Kept(RequestModel):
    """Ids that stay."""

    tokens: TokenIds = Field(description="The ids so far, which the response repeats unchanged.")
    mask: Annotated[
        Any,
        PlainValidator(_check_mask),
        WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1}}),
    ] = Field(
        default=None,
        description="1 for each of `tokens` that the model generated. The response has it with a 0 "
        "for each new id.",
    )

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.mask is not None and len(self.mask) != len(self.tokens):
            raise invalid("mask must have one entry for each of tokens")
        return self


class ExtendItem(_Kept):
    """Ids and the text after them, or its segments."""

    text: str | None = None
    segments: SegmentList = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.text is None) == (self.segments is None):
            raise invalid("give either text or segments")
        return self


class ExtendChatItem(_Kept):
    """Ids, the messages that they hold, and the messages after those."""

    messages_before: Objects = Field(
        default=[], description="The messages that `tokens` hold, the last one up to its text."
    )
    messages: Objects = Field(description="The messages after them; may be empty.")
    tools: Tools = None
    documents: Documents = None


class _Shared(RequestModel):
    added_tokens: AddedTokens = "all"
    max_tokens: int | None = Field(
        default=None, ge=0, description="More ids than this, with those so far, are a 413."
    )
    tokenizer: TokenizerName | None = None


class _TextOptions(_Shared):
    allowed_special: AllowedSpecial = "all"
    disallowed_special: DisallowedSpecial = frozenset()
    added_tokens: AddedTokens = "all"  # its check reads a field above


class _ChatOptions(_Shared):
    chat_template: TemplateName = None
    chat_template_kwargs: TemplateArguments = None
    add_generation_prompt: GenerationPrompt = False
    messages_form: MessagesForm = Field(default="raw", description="As of `/chat/encode`.")


class ExtendRequest(_TextOptions, ExtendItem):
    """Text after ids."""


class ExtendBatchRequest(_TextOptions):
    """Texts after ids."""

    batch: Annotated[list[ExtendItem], WrapValidator(_check_batch)]


class ExtendChatRequest(_ChatOptions, ExtendChatItem):
    """Messages after ids."""


class ExtendChatBatchRequest(_ChatOptions):
    """Conversations after ids. Rendering all of them has the time limit of one request."""

    batch: Annotated[list[ExtendChatItem], WrapValidator(_check_batch)]


class ExtendResponse(BaseModel):
    """The ids, and what is new."""

    tokens: list[int]
    mask: list[int] | None = Field(
        description="1 for each id that the model generated; null if the request has no mask."
    )
    count: int
    first_drift: int | None = Field(
        description="The first index where encoding the whole text, or all messages with the "
        "template, gives another id; null if it gives the same ids."
    )
    chat_template: ChatTemplateIdentity | None = Field(
        default=None, description="For messages: the template that wrote them."
    )
    tokenizer: TokenizerIdentity


class ExtendBatchResponse(BaseModel):
    """The fields of `ExtendResponse`, each but `tokenizer` a list with one entry per item."""

    tokens: list[list[int]]
    mask: list[list[int] | None]
    count: list[int]
    first_drift: list[int | None]
    chat_template: list[ChatTemplateIdentity] | None = None
    tokenizer: TokenizerIdentity
