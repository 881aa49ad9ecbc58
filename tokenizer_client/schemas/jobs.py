"""Training requests, jobs and corpora.

The models check shapes and literal limits. The service checks whether the library can build the
vocabulary, whether the files exist, and whether the disk has enough space.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Protocol, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from tokenizer_client.schemas.tokens import PLAIN_NAME_PATTERN, TokenizerName, invalid

MAX_VOCAB_SIZE: Final = 1 << 20
MAX_RESERVED: Final = 1 << 14
RESERVED_NAME: Final = "active"
"""In paths, this name means the active tokenizer; no tokenizer may have it."""
MAX_SPECIAL_TOKENS: Final = 1000
MAX_SPECIAL_TOKEN_CHARS: Final = 200
MAX_INPUT_PATHS: Final = 1000
MAX_INPUT_URLS: Final = 100
MAX_SEPARATE_DOCUMENTS: Final = 10_000
"""Most documents that no special token can separate; each is stored as a file."""
MAX_SEED_TOKENS: Final = 500
MAX_SEED_TOKEN_CHARS: Final = 32

FileFormat = Literal[
    "text", "txt", "txt.gz", "txt.zst", "jsonl", "jsonl.gz", "jsonl.zst", "parquet"
]
"""How a corpus file holds documents. `text` is `txt`."""

FILE_FORMATS: Final[tuple[FileFormat, ...]] = get_args(FileFormat)[1:]
"""The formats that a name may end in; a test compares them with those of the library."""

Promote = Literal["auto", "always", "manual"]
"""When to promote a trained tokenizer."""

MAX_FIELD_CHARS: Final = 256
MAX_FIELDS: Final = 16


def _check_fields(value: Any) -> str | list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not 1 <= len(names) <= MAX_FIELDS:
        raise invalid(f"must be a name, or a list of 1 to {MAX_FIELDS} names")
    if not all(isinstance(name, str) and 1 <= len(name) <= MAX_FIELD_CHARS for name in names):
        raise invalid(f"each name must be a string of 1 to {MAX_FIELD_CHARS} characters")
    return names[0] if len(names) == 1 else names


_FIELD_SCHEMA: Final = {"type": "string", "minLength": 1, "maxLength": MAX_FIELD_CHARS}
FieldName = Annotated[str, Field(min_length=1, max_length=MAX_FIELD_CHARS)]
# Not a union, of which each error would name the member in its place.
_FieldNames = Annotated[
    str | list[str],
    PlainValidator(_check_fields),
    WithJsonSchema(
        {
            "anyOf": [
                _FIELD_SCHEMA,
                {"type": "array", "items": _FIELD_SCHEMA, "minItems": 1, "maxItems": MAX_FIELDS},
            ]
        }
    ),
]
FieldNames = Annotated[
    _FieldNames | None,
    Field(
        description="Field of JSON lines or column of Parquet with the documents, or several, of "
        "which each record and Parquet file has one; by default each corpus has the one that it "
        "was uploaded with, or `text`."
    ),
]
CorpusId = Annotated[str, Field(pattern=PLAIN_NAME_PATTERN)]
SeedToken = Annotated[str, Field(min_length=1, max_length=MAX_SEED_TOKEN_CHARS)]
SpecialToken = Annotated[str, Field(min_length=1, max_length=MAX_SPECIAL_TOKEN_CHARS)]


def find_document_separator(special_tokens: Sequence[str]) -> str | None:
    """A special token that separates any two documents without touching their text, or None.

    Matching takes the leftmost, then the longest token. A separator that another token (or itself)
    can overlap from the left, or that is part of a longer token, may match text of a document.

    Example:
        >>> find_document_separator(["<|endoftext|>"])
        '<|endoftext|>'
        >>> find_document_separator(["<|a|>", "<|a|><|a|>"]), find_document_separator(["aba"])
        (None, None)
    """
    for separator in special_tokens:
        if not any(_disturbs(token, separator) for token in special_tokens):
            return separator
    return None


def _disturbs(token: str, separator: str) -> bool:
    if token != separator and separator in token:
        return True
    return any(separator.startswith(token[start:]) for start in range(1, len(token)))


class TrainLimits(BaseModel):
    """Limits of a job; the service stops a job that exceeds one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    seconds: float | None = Field(
        None,
        gt=0,
        le=30 * 24 * 3600,
        allow_inf_nan=False,
        description="Wall-clock time of the job's process, in seconds.",
    )
    memory_bytes: int | None = Field(
        None,
        ge=1 << 20,
        le=1 << 50,
        description="Resident memory of the job's process and its workers, summed, sampled four "
        "times a second; shared pages count for each process.",
    )


SkipBad = Annotated[
    bool,
    Field(
        description="Leave out documents that cannot be read or encoded, and count them by reason."
    ),
]
MaxBad = Annotated[
    Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None,
    Field(
        description="Fraction of such documents that ends the job, by default 0.01; needs "
        "`skip_bad`."
    ),
]


class _SkipsBad(Protocol):
    skip_bad: bool
    max_bad: float | None


def check_max_bad(asked: _SkipsBad) -> None:
    """Raise PydanticCustomError if a request has `max_bad` and not `skip_bad`."""
    if asked.max_bad is not None and not asked.skip_bad:
        raise invalid("max_bad belongs to skip_bad; set it, or omit max_bad")


class TrainRequest(BaseModel):
    """A training run: its input, its vocabulary, and whether to promote the result."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    input_paths: list[str] | None = Field(
        None,
        min_length=1,
        max_length=MAX_INPUT_PATHS,
        description="Files relative to the corpus roots: text, JSON lines or Parquet.",
    )
    input_urls: list[str] | None = Field(
        None,
        min_length=1,
        max_length=MAX_INPUT_URLS,
        description="Files at http or https URLs on hosts that the server lists, or at `s3://` "
        "addresses below prefixes that it lists.",
    )
    corpus_ids: list[CorpusId] | None = Field(
        None,
        min_length=1,
        max_length=MAX_INPUT_PATHS,
        description="Corpora that were uploaded with PUT /corpora/{id}.",
    )
    documents: list[str] | None = Field(
        None, min_length=1, description="The corpus itself: one text per document."
    )
    format: FileFormat | None = Field(
        None,
        description="Format of all files; by default the one a corpus was uploaded with, or that "
        "the name of a path or URL ends in.",
    )
    field: FieldNames = None
    separator: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_SPECIAL_TOKEN_CHARS,
        description="Text that also ends a document in plain text, besides special tokens.",
    )
    skip_bad: SkipBad = False
    max_bad: MaxBad = None
    vocab_size: int = Field(
        10_000,
        le=MAX_VOCAB_SIZE,
        description="Size of the vocabulary: 256 bytes, special tokens, merges and reserved "
        "tokens.",
    )
    special_tokens: list[SpecialToken] = Field(
        ["<|endoftext|>"],
        max_length=MAX_SPECIAL_TOKENS,
        description="Never split or merged; in the files, they end documents.",
    )
    name: str = Field(
        "trained", pattern=PLAIN_NAME_PATTERN, description="Name to publish the tokenizer under."
    )
    pattern: str = Field("gpt2", max_length=64, description="A named split pattern.")
    extend: TokenizerName | None = Field(
        None,
        description="Keep all of this published tokenizer, with its pattern and special tokens, "
        "and learn more tokens.",
    )
    min_frequency: int = Field(
        1, ge=1, le=1 << 53, description="Pairs that occur less often are not merged."
    )
    max_token_length: int | None = Field(
        None, ge=2, le=1 << 30, description="Maximum length of a learned token, in bytes."
    )
    seed_tokens: list[SeedToken] = Field(
        [],
        max_length=MAX_SEED_TOKENS,
        description="Texts that are one token from the start; the merges of each use ids.",
        examples=[["ing", " the"]],
    )
    reserved: int = Field(
        0,
        ge=0,
        le=MAX_RESERVED,
        description="Number of special tokens for later use, counted in `vocab_size`.",
    )
    superwords_from: int | None = Field(
        None,
        ge=0,
        lt=MAX_VOCAB_SIZE,
        description="Size from which on tokens may join words of a line (SuperBPE).",
    )
    pad_to_multiple: int = Field(
        1,
        ge=1,
        le=MAX_RESERVED,
        description="Add reserved tokens beyond `vocab_size` until the number of tokens is a "
        "multiple of this.",
        examples=[128],
    )
    promote: Promote = Field(
        "auto",
        description="`always` serves the new version as soon as it is verified; `auto` too, unless "
        "it has fewer entries than `vocab_size`, or at most a tenth of those of the version that "
        "it would replace; `manual` never.",
    )
    limits: TrainLimits = Field(
        TrainLimits(seconds=None, memory_bytes=None), description="Limits that stop the run."
    )

    @field_validator("vocab_size", "format", mode="before")
    @classmethod
    def _name_the_command(cls, value: Any) -> Any:
        if isinstance(value, list):
            raise invalid("one number; `tokenizer train --vocab-size 8k,16k` learns several sizes")
        if value == "chat":
            raise invalid("training reads texts; `tokenizer chat FILE --text` writes them")
        return value

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name == RESERVED_NAME:
            raise invalid("this name is reserved; choose another")
        return name

    @field_validator("special_tokens")
    @classmethod
    def _check_special_tokens(cls, tokens: list[str]) -> list[str]:
        if len(set(tokens)) != len(tokens):
            raise invalid("a special token is given twice")
        # The trainer has the same check, but its message quotes the request.
        if any(len(token.encode()) == 1 for token in tokens):
            raise invalid("a special token is a single byte, which has an id already")
        return tokens

    @field_validator("seed_tokens")
    @classmethod
    def _check_seed_tokens(cls, seeds: list[str]) -> list[str]:
        if len(set(seeds)) != len(seeds):
            raise invalid("a seed token is given twice")
        return seeds

    @model_validator(mode="after")
    def _check_together(self) -> TrainRequest:
        check_max_bad(self)
        sources = (self.input_paths, self.input_urls, self.corpus_ids, self.documents)
        if sum(source is not None for source in sources) != 1:
            raise invalid("give exactly one of input_paths, input_urls, corpus_ids and documents")
        if self.extend and {"special_tokens", "pattern", "seed_tokens"} & self.model_fields_set:
            raise invalid("extend keeps what it has; omit special_tokens, pattern and seed_tokens")
        if self.extend and self.superwords_from is not None:
            raise invalid("extend keeps the pattern of the tokenizer; omit superwords_from")
        if self.documents is not None:
            if (self.format or self.field or self.separator) is not None:
                raise invalid("format, field and separator describe files; documents are texts")
            if not any(self.documents):
                raise invalid("every document is empty; there is nothing to learn from")
            separate = find_document_separator(self.special_tokens) is None
            if separate and len(self.documents) > MAX_SEPARATE_DOCUMENTS:
                raise invalid(
                    f"more than {MAX_SEPARATE_DOCUMENTS} documents need a special token that "
                    f"can stand between them; leave special_tokens at its default"
                )
        return self

    def digest(self) -> str:
        """sha256 (hex) of the request with its defaults: equal for equal requests."""
        fields = self.model_dump(mode="json")
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class NotPromoted(BaseModel):
    """Why `promote: auto` left a published version unpromoted."""

    reason: Literal["size_not_reached", "ten_times_smaller", "replaced_not_readable"]
    asked: int = Field(description="Entries that the request asked for.")
    got: int = Field(description="Entries that the vocabulary has.")
    replaces: str | None = Field(
        description="`name@version` of the active version, which stays active."
    )
    replaces_vocab_size: int | None = Field(description="Its entries.")

    def __str__(self) -> str:
        """A sentence for people."""
        sizes = {
            "size_not_reached": f"it has {self.got} entries, not the {self.asked} asked for",
            "ten_times_smaller": f"it has {self.got} entries, and {self.replaces} has "
            f"{self.replaces_vocab_size}",
            "replaced_not_readable": f"{self.replaces}, which is active, cannot be loaded",
        }
        return f"not promoted: {sizes[self.reason]}"


Warnings = Annotated[
    list[str], Field(description="What differs from what was asked for, or from the texts")
]


class PublishedVersion(BaseModel):
    """The tokenizer that a job published."""

    name: str
    version: str
    digest: str
    vocab_size: int = Field(
        description="Its entries: fewer than asked for if training ended early."
    )
    not_promoted: NotPromoted | None = Field(
        None, description="Why `promote: auto` did not promote it; null if it did, or need not."
    )
    warnings: Warnings = []


class PublishedTokenFiles(BaseModel):
    """The token files that a job published, at `/token-files/{id}`."""

    id: str
    documents: int
    tokens: int
    bytes: int = Field(description="Bytes of all files")
    warnings: Warnings = []


class JobError(BaseModel):
    """Why a job failed: a stable word and a sentence with the remedy."""

    code: str
    detail: str


class AnyJobSummary(BaseModel):
    """One job in the list."""

    id: str
    name: str = Field(description="Name of the tokenizer, or id of the token files")
    state: Literal["queued", "running", "live", "succeeded", "failed", "cancelled"]
    phase: str = Field(
        description="queued, start, download, count, learn, encode, shuffle, publish, promote, "
        "cancelling, or the final state"
    )
    progress: float = Field(ge=0, le=1)
    counters: dict[str, int] = Field(
        description="What the job has done, by name; the last `documents` and `tokens` are those "
        "of its result"
    )
    waits_for: str | None = Field(
        None, description="What the job waits for; null when nothing holds it up"
    )
    result: PublishedVersion | PublishedTokenFiles | None
    error: JobError | None
    created_at: str = Field(description="UTC, ISO 8601")
    started_at: str | None
    finished_at: str | None
    kind: Literal["train", "encode"]


class AnyJobView(AnyJobSummary):
    """One job, with the end of its log."""

    log_tail: list[str] = Field(
        description="Last lines of the process's log, control characters escaped"
    )


class AnyJobList(BaseModel):
    """The latest jobs of every kind, newest first."""

    jobs: list[AnyJobSummary]


class JobSummary(AnyJobSummary):
    """One training job in the list."""

    kind: Literal["train"]
    result: PublishedVersion | None


class JobView(JobSummary, AnyJobView):
    """One training job, with the end of its log."""


class JobList(BaseModel):
    """The latest training jobs, newest first."""

    jobs: list[JobSummary]


class EncodeJobView(AnyJobView):
    """One encoding job, with the end of its log."""

    kind: Literal["encode"]
    result: PublishedTokenFiles | None


class Corpus(BaseModel):
    """An uploaded corpus."""

    id: str
    bytes: int
    sha256: str = Field(description="Hash of the file, in hexadecimal")
    format: str = Field(description="How the file holds documents: `txt`, `jsonl.gz`, ...")
    field: str | None = Field(
        None, description="The field or column of the documents that was given at the upload"
    )
    not_utf8_at: int | None = Field(
        None,
        description="First byte that is not UTF-8, which only a job with `skip_bad` reads; null if "
        "all is, and for packed files and Parquet",
    )
    uploaded_at: str = Field(description="UTC, ISO 8601")


class CorpusList(BaseModel):
    """The uploaded corpora, by id."""

    corpora: list[Corpus]
    bytes: int = Field(description="Bytes of all corpora, including unfinished uploads")
    max_bytes: int = Field(description="The quota, TOKENIZER_CORPORA_MAX_BYTES")
