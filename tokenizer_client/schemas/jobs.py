"""What a training request may say and how a job is answered, as pydantic models.

It stands alone so that the route, the store, the child process and the OpenAPI document share one
definition. Bounds are checked here, before anything touches the disk; what only a look at the
disk can tell (is the file there, is there room) is the route's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tokenizer_core.errors import InvalidSpecError, VocabSizeError
from tokenizer_core.patterns import ALIASES, PATTERNS
from tokenizer_core.registry.versions import ACTIVE, NAME
from tokenizer_core.spec import MAX_TOKEN_ID
from tokenizer_core.training.vocabulary_plan import (
    MAX_RESERVED,
    VocabularyOptions,
    make_seed_merges,
    plan_vocabulary,
)

MAX_SPECIAL_TOKENS: Final = 1000
MAX_SPECIAL_TOKEN_CHARS: Final = 200
MAX_INPUT_PATHS: Final = 1000
MAX_INPUT_URLS: Final = 100
MAX_SEPARATE_DOCUMENTS: Final = 10_000
"""Documents that no special token can stand between are one file each, hence this bound."""
MAX_SEED_TOKENS: Final = 500
MAX_SEED_TOKEN_CHARS: Final = 32
_OPTIONS: Final = (
    "min_frequency", "max_token_length", "seed_tokens", "reserved", "pad_to_multiple"
)  # fmt: skip

CorpusId = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
SeedToken = Annotated[str, Field(min_length=1, max_length=MAX_SEED_TOKEN_CHARS)]
SpecialToken = Annotated[str, Field(min_length=1, max_length=MAX_SPECIAL_TOKEN_CHARS)]


def find_document_separator(special_tokens: Sequence[str]) -> str | None:
    """A special token that can stand between any two documents and be matched exactly there.

    Matching is leftmost, then longest: a token that another one (or itself) can overlap from the
    left, or that begins a longer one, might swallow text of the documents beside it. None when
    there is no such token.

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
    """When to stop a job that takes more than it should."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    seconds: float | None = Field(
        None,
        gt=0,
        le=30 * 24 * 3600,
        allow_inf_nan=False,
        description="Wall-clock time of the job's process.",
    )
    memory_bytes: int | None = Field(
        None,
        ge=1 << 20,
        le=1 << 50,
        description="Resident memory of the job's process and its workers, summed; looked at "
        "four times a second, pages they share counted for each.",
    )


class TrainRequest(BaseModel):
    """A training run: what to read, what to learn, what to do with it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    input_paths: list[str] | None = Field(
        None,
        min_length=1,
        max_length=MAX_INPUT_PATHS,
        description="Files of UTF-8 text, relative to the corpus roots.",
    )
    input_urls: list[str] | None = Field(
        None,
        min_length=1,
        max_length=MAX_INPUT_URLS,
        description="Files of UTF-8 text at http or https URLs, on hosts that the server lists.",
    )
    corpus_ids: list[CorpusId] | None = Field(
        None,
        min_length=1,
        max_length=MAX_INPUT_PATHS,
        description="Corpora that were uploaded with PUT /corpora/{id}.",
    )
    documents: list[str] | None = Field(
        None, min_length=1, description="The corpus itself, one text a document."
    )
    vocab_size: int = Field(
        10_000,
        le=MAX_TOKEN_ID + 1,
        description="All entries: 256 bytes, special tokens, merges, reserved tokens.",
    )
    special_tokens: list[SpecialToken] = Field(
        ["<|endoftext|>"],
        max_length=MAX_SPECIAL_TOKENS,
        description="Never split, never merged; they end documents in the files.",
    )
    name: str = Field(
        "trained", pattern=f"^{NAME.pattern}$", description="Name to publish the tokenizer under."
    )
    pattern: str = Field("gpt2", max_length=64, description="A named split pattern.")
    min_frequency: int = Field(
        1, ge=1, le=1 << 53, description="Pairs that occur less often are not merged."
    )
    max_token_length: int | None = Field(
        None, ge=2, le=1 << 30, description="Most bytes of a learned token."
    )
    seed_tokens: list[SeedToken] = Field(
        [],
        max_length=MAX_SEED_TOKENS,
        description="Texts that are one token from the start; each costs the ids of its merges.",
        examples=[["ing", " the"]],
    )
    reserved: int = Field(
        0,
        ge=0,
        le=MAX_RESERVED,
        description="Special tokens without a meaning yet, inside `vocab_size`.",
    )
    pad_to_multiple: int = Field(
        1,
        ge=1,
        le=MAX_RESERVED,
        description="More of these make the number of tokens a multiple, beyond `vocab_size`.",
        examples=[128],
    )
    promote: Literal["auto", "manual"] = Field(
        "auto", description="`auto` serves the new version as soon as it is verified."
    )
    limits: TrainLimits = Field(
        TrainLimits(seconds=None, memory_bytes=None), description="When to stop the run."
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name == ACTIVE:
            raise PydanticCustomError("invalid", "this name is reserved; choose another")
        return name

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        # An expression from the network could take exponential time, so only names are taken.
        name = ALIASES.get(pattern, pattern)
        if name not in PATTERNS:
            raise PydanticCustomError(
                "invalid",
                f"only named split patterns are taken here ({', '.join(PATTERNS)}); "
                f"an expression of your own works on the command line: tokenizer train --pattern",
            )
        return name

    @field_validator("special_tokens")
    @classmethod
    def _check_special_tokens(cls, tokens: list[str]) -> list[str]:
        if len(set(tokens)) != len(tokens):
            raise PydanticCustomError("invalid", "a special token is given twice")
        # As the trainer says, but without repeating what was sent.
        if any(len(token.encode()) == 1 for token in tokens):
            raise PydanticCustomError(
                "invalid", "a special token is a single byte, which has an id already"
            )
        return tokens

    @field_validator("seed_tokens")
    @classmethod
    def _check_seed_tokens(cls, seeds: list[str], known: ValidationInfo) -> list[str]:
        if len(set(seeds)) != len(seeds):
            raise PydanticCustomError("invalid", "a seed token is given twice")
        if not {"pattern", "special_tokens"} <= known.data.keys():
            return seeds  # what is wrong there is told
        for place, seed in enumerate(seeds):
            try:
                make_seed_merges(
                    [seed],
                    pattern=PATTERNS[known.data["pattern"]],
                    special_tokens=known.data["special_tokens"],
                    max_token_length=known.data.get("max_token_length"),
                )
            except InvalidSpecError:
                # As the trainer says, but without repeating what was sent.
                raise PydanticCustomError(
                    "invalid",
                    f"number {place} (from 0) cannot be one token: it is a single byte, has more "
                    f"bytes than max_token_length, holds a special token, or the pattern divides "
                    f"it; leave it out",
                ) from None
        return seeds

    @model_validator(mode="after")
    def _check_together(self) -> TrainRequest:
        sources = (self.input_paths, self.input_urls, self.corpus_ids, self.documents)
        if sum(source is not None for source in sources) != 1:
            raise PydanticCustomError(
                "invalid", "give exactly one of input_paths, input_urls, corpus_ids and documents"
            )
        self._check_plan()
        if self.documents is not None:
            if not any(self.documents):
                raise PydanticCustomError(
                    "invalid", "every document is empty; there is nothing to learn from"
                )
            separate = find_document_separator(self.special_tokens) is None
            if separate and len(self.documents) > MAX_SEPARATE_DOCUMENTS:
                raise PydanticCustomError(
                    "invalid",
                    f"more than {MAX_SEPARATE_DOCUMENTS} documents need a special token that "
                    f"can stand between them; leave special_tokens at its default",
                )
        return self

    def _check_plan(self) -> None:
        options = vocabulary_options(self.model_dump(include=set(_OPTIONS)))
        try:
            plan = plan_vocabulary(self.special_tokens, PATTERNS[self.pattern], options)
            plan.n_merges(self.vocab_size)
        except VocabSizeError as error:  # holds numbers only
            raise PydanticCustomError("invalid", "{why}", {"why": str(error)}) from None
        except InvalidSpecError:
            # Each is possible by itself, so only names are left.
            raise PydanticCustomError(
                "invalid",
                "a special token has the name of a reserved one; call it otherwise, or leave "
                "reserved and pad_to_multiple out",
            ) from None

    def digest(self) -> str:
        """sha256 (hex) of the request with its defaults: equal for equal requests.

        Vocabulary options count where they are no default, so that what was asked with an
        idempotency key before there were any is still the same request.
        """
        fields = self.model_dump(mode="json")
        for name in _OPTIONS:
            if fields[name] == TrainRequest.model_fields[name].default:
                del fields[name]
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def vocabulary_options(request: Mapping[str, Any]) -> VocabularyOptions:
    """The options of a request, as it is or as it was kept with its job, also by an older server.

    Example:
        >>> vocabulary_options({"reserved": 3}).n_reserved
        3
    """
    return VocabularyOptions(
        min_frequency=request.get("min_frequency", 1),
        max_token_length=request.get("max_token_length"),
        seed_tokens=tuple(request.get("seed_tokens", ())),
        n_reserved=request.get("reserved", 0),
        pad_to_multiple=request.get("pad_to_multiple", 1),
    )


class PublishedVersion(BaseModel):
    """The tokenizer a job published."""

    name: str
    version: str
    digest: str


class PublishedTokenFiles(BaseModel):
    """The token files a job published, at `/token-files/{id}`."""

    id: str
    documents: int
    tokens: int
    bytes: int = Field(description="Of all files together")


class JobError(BaseModel):
    """Why a job failed: a stable word and a sentence with the remedy."""

    code: str
    detail: str


class AnyJobSummary(BaseModel):
    """One job in the list."""

    id: str
    name: str = Field(description="Of the tokenizer, or the id of the token files")
    state: Literal["queued", "running", "live", "succeeded", "failed", "cancelled"]
    phase: str = Field(
        description="queued, start, download, count, learn, encode, shuffle, publish, promote, "
        "cancelling, or the final state"
    )
    progress: float = Field(ge=0, le=1)
    counters: dict[str, int]
    result: PublishedVersion | PublishedTokenFiles | None
    error: JobError | None
    created_at: str = Field(description="UTC, ISO 8601")
    started_at: str | None
    finished_at: str | None
    kind: Literal["train", "encode"]


class AnyJobView(AnyJobSummary):
    """One job, with the end of its log."""

    log_tail: list[str] = Field(
        description="The last lines its process wrote, control characters escaped"
    )


class AnyJobList(BaseModel):
    """The latest jobs of every kind, newest first."""

    jobs: list[AnyJobSummary]


class JobSummary(AnyJobSummary):
    """One training job in the list."""

    kind: Literal["train"]
    result: PublishedVersion | None


class JobView(JobSummary):
    """One training job, with the end of its log."""

    log_tail: list[str] = Field(
        description="The last lines the training process wrote, control characters escaped"
    )


class JobList(BaseModel):
    """The latest training jobs, newest first."""

    jobs: list[JobSummary]


class EncodeJobView(AnyJobView):
    """One encoding job, with the end of its log."""

    kind: Literal["encode"]
    result: PublishedTokenFiles | None


class Corpus(BaseModel):
    """An uploaded corpus."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    bytes: int
    sha256: str = Field(description="Of the text, hex")
    uploaded_at: str = Field(description="UTC, ISO 8601")


class CorpusList(BaseModel):
    """The uploaded corpora, by id."""

    corpora: list[Corpus]
    bytes: int = Field(description="What they take together, with uploads under way")
    max_bytes: int = Field(description="The quota, TOKENIZER_CORPORA_MAX_BYTES")
