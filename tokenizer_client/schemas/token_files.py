"""Schemas of the request to encode corpora, and of token files.

The models check shapes and literal limits. The service does the checks that need the tokenizer or
the disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, model_validator

from tokenizer_client.schemas.chat import LossRule, TemplateName
from tokenizer_client.schemas.jobs import (
    MAX_SPECIAL_TOKEN_CHARS,
    CorpusId,
    FieldNames,
    FileFormat,
    MaxBad,
    SkipBad,
    TrainLimits,
    check_max_bad,
)
from tokenizer_client.schemas.tokens import (
    PLAIN_NAME_PATTERN,
    AddedTokens,
    AllowedSpecial,
    DisallowedSpecial,
    RequestModel,
    TokenizerName,
    invalid,
)

MAX_FURTHER_CORPORA: Final = 999
_MAX_SEED: Final = (1 << 63) - 1
_MAX_LENGTH: Final = (1 << 31) - 1

OverLength = Literal["truncate", "drop"]

_Token = Annotated[str, Field(max_length=MAX_SPECIAL_TOKEN_CHARS)]


class EncodeCorpusRequest(RequestModel):
    """A request to encode corpora to token files."""

    further_corpora: list[CorpusId] = Field(
        default=[],
        max_length=MAX_FURTHER_CORPORA,
        description="Corpora to encode after the one in the path, into the same token files.",
    )
    token_files_id: str | None = Field(
        default=None,
        pattern=PLAIN_NAME_PATTERN,
        description="Id of the token files; by default the job's id in lower case.",
    )
    tokenizer: TokenizerName | None = Field(
        default=None,
        description="`name` (its newest version) or `name@version`; by default the active one. The "
        "version is fixed when the job is created.",
    )
    format: Literal[FileFormat, "chat"] | None = Field(
        default=None,
        description="Format of all corpora; by default the one each was uploaded with. `chat`: "
        "conversations in JSON lines or Parquet, encoded by the tokenizer's chat template, with a "
        "loss mask.",
    )
    loss: LossRule = Field(
        default="auto",
        description="Where the loss counts in conversations: at the template's `generation` tags "
        "or at the turns of the assistant; `auto`: the first if the template has tags.",
    )
    chat_template: TemplateName = None
    turn_ends: Sequence[_Token] = Field(
        default=(),
        max_length=64,
        description="Added tokens that the assistant writes to end its turn, besides those that "
        "the model folder declares.",
    )
    skip_bad: SkipBad = False
    max_bad: MaxBad = None
    max_length: int | None = Field(
        default=None,
        ge=1,
        le=_MAX_LENGTH,
        description="Most tokens of a document, with those around it; by default any number.",
    )
    over_length: OverLength = Field(
        default="truncate",
        description="What to do with a longer document; `drop` needs `max_length`.",
    )
    field: FieldNames = None
    separator: _Token | None = Field(
        default=None,
        description="Text that ends a document in plain text; by default `<|endoftext|>`, empty "
        "for none.",
    )
    begin_of_document: _Token | None = Field(
        default=None, description="Special token before each document; by default none."
    )
    end_of_document: _Token | None = Field(
        default=None,
        description="Special token after each document; by default the only one of the vocabulary "
        "that is known to end documents, and none for conversations; empty for none.",
    )
    layout: Literal["raw", "npy", "megatron", "llmc", "parquet"] = Field(
        default="raw",
        description="Layout for `np.memmap`, `np.load`, Megatron, llm.c, or TRL and axolotl, which "
        "read Parquet; the last needs the service's extra `parquet`.",
    )
    dtype: Literal["auto", "uint16", "uint32"] = Field(
        default="auto", description="`auto`: two bytes per id if the largest id fits."
    )
    tokens_per_shard: int | None = Field(
        default=None, ge=1, le=1 << 50, description="By default one file per split."
    )
    validation_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="Fraction of the documents held out as the split `validation`.",
    )
    shuffle: bool = Field(default=False, description="Shuffle the documents of each split.")
    seed: int = Field(
        default=0,
        ge=0,
        le=_MAX_SEED,
        description="Seed of the validation split and of the shuffle.",
    )
    allowed_special: AllowedSpecial | None = Field(
        default=None,
        description="Special tokens to recognise in the documents; others are text. By default all "
        "in plain text; in JSON lines and Parquet one in a document is an error.",
    )
    disallowed_special: DisallowedSpecial = frozenset()
    added_tokens: AddedTokens = "all"
    workers: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Number of worker processes, at most TOKENIZER_TRAIN_THREADS; it does not "
        "change the files.",
    )
    limits: TrainLimits = Field(
        default=TrainLimits(seconds=None, memory_bytes=None),
        description="Limits that stop the job.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> EncodeCorpusRequest:
        is_text = self.format is not None and self.format.startswith("t")
        if is_text and self.field is not None:
            raise invalid("field needs format jsonl or parquet; omit it, or set another format")
        if self.format is not None and not is_text and self.separator:
            raise invalid("a line or row is a document; omit separator, or set format to text")
        if self.max_length is None and self.over_length != "truncate":
            raise invalid("over_length belongs to max_length; omit it, or set max_length")
        is_chat = self.format == "chat"
        if is_chat and (self.field is not None or self.separator):
            raise invalid("a conversation is a whole record; omit field and separator")
        policy = self.allowed_special, self.disallowed_special, self.added_tokens
        if is_chat and policy != (None, frozenset(), "all"):
            raise invalid(
                "of conversations the chat template alone writes special tokens; omit "
                "allowed_special, disallowed_special and added_tokens"
            )
        if not is_chat and (self.loss != "auto" or self.chat_template or self.turn_ends):
            raise invalid(
                "loss, chat_template and turn_ends need format chat; omit them, or set it"
            )
        check_max_bad(self)
        return self

    def digest(self, corpus_id: str) -> str:
        """sha256 (hex) of the request with its defaults: equal for equal requests."""
        fields = self.model_dump()
        for name in ("allowed_special", "disallowed_special"):
            if isinstance(fields[name], frozenset):
                fields[name] = sorted(fields[name])
        text = json.dumps({"encode": corpus_id, **fields}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class TokenFilesTokenizer(BaseModel):
    """The tokenizer that made the ids."""

    name: str | None
    version: str | None
    fingerprint: str = Field(description="sha256 of everything that decides an id")
    vocab_size: int
    largest_id: int


class TokenFilesSplit(BaseModel):
    """One split of token files."""

    documents: int
    tokens: int
    text_bytes: int = Field(
        description="Bytes of its documents in UTF-8; of conversations, of their records"
    )
    bytes_per_token: float = Field(
        description="Of the texts, without special tokens in them and around them"
    )
    shards: int
    special_tokens_found: dict[str, int] = Field(
        description="Occurrences of each special token in the texts; empty for conversations"
    )
    loss_tokens: int | None = Field(
        default=None, description="Tokens at which the loss counts; null without a loss mask"
    )
    documents_truncated: int = Field(default=0, description="Documents cut at `max_length`")
    documents_dropped: int = Field(default=0, description="Documents over `max_length` left out")
    tokens_lost: int = Field(default=0, description="Tokens cut or left out by `max_length`")
    conversations_without_loss: int = Field(
        default=0, description="Conversations left out: without loss in their first `max_length`"
    )


class TokenFile(BaseModel):
    """One file, which `GET /token-files/{id}/{file}` returns."""

    name: str
    bytes: int
    sha256: str


class TokenFilesSummary(BaseModel):
    """An entry in the list of token files."""

    id: str
    written_at: str = Field(description="UTC, ISO 8601")
    bytes: int = Field(description="Bytes of all files")
    layout: str
    dtype: str
    tokenizer: TokenFilesTokenizer
    splits: dict[str, TokenFilesSplit]
    counts: dict[str, int] = Field(
        default_factory=dict,
        description="What encoding counted, if anything: `messages_left_out`, "
        "`reasoning_left_out` and `tools_left_out`, messages with a content or calls, with "
        "reasoning, and conversations with tools, of which the chat template writes nothing; "
        "`turns_...`, what of the assistant's turns is learned; `special_tokens_kept_as_text`, "
        "those that `allowed_special` leaves text",
    )


class BadDocumentPlace(BaseModel):
    """Where a bad document is."""

    file: str
    line: int | None = Field(default=None, description="From 1; null for Parquet")
    row: int | None = Field(default=None, description="From 1; only for Parquet")
    reason: str


class BadDocumentsView(BaseModel):
    """The bad documents that were left out (`skip_bad`)."""

    reasons: dict[str, int] = Field(description="Their number, by reason")
    first: list[BadDocumentPlace] = Field(description="The first ten")


class TokenFilesView(TokenFilesSummary):
    """Token files, with their origin from the manifest, and each file."""

    tokens_per_shard: int | None
    begin_of_document_id: int | None
    end_of_document_id: int | None
    end_of_document: str | None = Field(description="Token after each document")
    end_reason: str = Field(description="Why it is that token, or none")
    not_added: list[str] = Field(
        description="Tokens that the post-processor puts around a text, and documents do not get"
    )
    seed: int | None
    max_length: int | None = Field(default=None, description="Most tokens of a document")
    over_length: OverLength | None = Field(
        default=None, description="What became of longer documents; null without `max_length`"
    )
    document_encoder: dict[str, Any] | None = Field(
        default=None,
        description="How conversations were encoded: name and sha256 of each chat template, sha256 "
        "of their variables, loss rule, form of the messages. Null for texts.",
    )
    validation_share: float | None = Field(
        default=None,
        description="Requested share of the documents in the split validation; null "
        "for files that were not encoded from a corpus",
    )
    shuffle: bool | None = Field(
        default=None, description="Whether the documents are in a random order, from `seed`"
    )
    bad_documents: BadDocumentsView
    corpora: list[TokenFile] = Field(description="The encoded corpora, in order")
    files: list[TokenFile]


class TokenFilesList(BaseModel):
    """All token files, by id."""

    token_files: list[TokenFilesSummary]
    bytes: int = Field(description="Bytes of all token files, including those being written")
    max_bytes: int | None = Field(description="The quota, TOKENIZER_TOKEN_FILES_MAX_BYTES")
