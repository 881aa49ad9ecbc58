"""Schemas of requests and responses about tokens, for validation and for OpenAPI.

Request models are strict: `true`, `1.0` and `"1"` are not ids. They reject unknown fields, because
a misspelt option would otherwise have no effect. `parse_ids` checks token ids in windows, because
a list may hold millions. The routes render the responses; the response models only document them.
The client uses this package without the service.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pydantic import ValidationInfo

MAX_BATCH_ITEMS: Final = 65_536
"""Most texts or id lists in one batch."""

MAX_SPECIAL_NAMES: Final = 128
"""Most names in `allowed_special` or `disallowed_special`."""

MAX_SPECIAL_NAME_CHARS: Final = 256

_WORDS: Final = {
    **dict.fromkeys(("dict_type", "model_type"), "must be an object"),
    **dict.fromkeys(("list_type", "is_instance_of", "sequence_str"), "must be a list"),
    "string_type": "must be a string",
    "string_unicode": "must be a string without lone surrogates",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "must be an integer"
    ),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    "missing": "is required",
}
"""Type of pydantic's error -> what to say in place of its message, which has words of Python."""

_SUBJECT: Final = re.compile("[A-Z][a-z]+ should ")
_FORMS: Final[dict[str, str]] = {}


def form(pattern: str, words: str) -> str:
    """`pattern`, for a field; to a value that does not match it, `explain` says `words`."""
    _FORMS[pattern] = words
    return pattern


def explain(error: Mapping[str, Any]) -> str:
    """What is wrong, for a reader who sees the name of the field: pydantic's `error` in words."""
    kind, pattern = error["type"], error.get("ctx", {}).get("pattern", "")
    message = str(error["msg"]).removeprefix("Value error, ").replace(" after validation", "")
    if kind == "literal_error":
        message = message.replace("True", "true").replace("False", "false")
    return _FORMS.get(pattern) or _WORDS.get(kind) or _SUBJECT.sub("must ", message)


PLAIN_NAME_PATTERN: Final = form(
    r"^[a-z0-9][a-z0-9._-]{0,63}$",
    "must be a name: up to 64 of a-z 0-9 . _ -, first a letter or digit",
)
"""The name of a tokenizer or the id of a corpus."""

TOKENIZER_PATTERN: Final = form(
    r"^[ -~]{1,200}$",
    "must be a name, name@version or an alias: 1 to 200 printable ASCII characters",
)
"""`name`, `name@version` or an alias; an alias has the fewest limits."""

MAX_ID: Final = (1 << 32) - 1
_ID_WINDOW: Final = 1 << 16
_SEGMENT_FIELDS: Final = {"text", "special"}
_MAX_NAMED_ERRORS: Final = 8


class BatchTooLargeError(Exception):
    """A batch exceeds the limit of items per request; `actual` is the number of its items.

    Not a ValueError, which pydantic would turn into an ordinary validation error.
    """

    code = "batch_too_large"
    limit = MAX_BATCH_ITEMS

    def __init__(self, actual: int) -> None:
        self.actual = actual
        super().__init__(f"a batch of {actual} items")


class IdsError(Exception):
    """A list of ids has `count` entries that are not ids; `pointers` points to the first few.

    Not a ValueError, for the same reason as `BatchTooLargeError`.
    """

    def __init__(self, pointers: Sequence[str], count: int) -> None:
        self.pointers, self.count = list(pointers), count
        super().__init__(f"entries are not token ids ({count})")


def invalid(what: str) -> PydanticCustomError:
    """The error of a validator. Of a ValueError, pydantic would put a prefix before the message."""
    return PydanticCustomError("invalid", "{what}", {"what": what})


def _check_text(value: Any) -> str | list[str]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise invalid("must be a string or a list of strings")
    _check_batch_size(value)
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise invalid(f"entry {index} must be a string")
    return value


def _check_segments(value: Any, info: ValidationInfo) -> Segments:
    if info.data.get("text") is not None:
        raise invalid("give either text or segments")
    if info.data.get("allowed_special") != "all" or info.data.get("disallowed_special"):
        raise invalid(
            "allowed_special and disallowed_special belong to text; in segments, special says "
            "where special tokens are recognised"
        )
    return _parse_segments(value)


def _parse_segments(value: Any) -> Segments:
    if not isinstance(value, list):
        raise invalid("must be a list of objects with text and special")
    _check_batch_size(value)
    for index, item in enumerate(value):
        if not isinstance(item, dict) or item.keys() != _SEGMENT_FIELDS:
            reason = "must be an object with text and special, and nothing else"
        elif type(item["text"]) is not str:
            reason = "must have a string as text"
        elif type(item["special"]) is not bool:
            reason = "must have true or false as special"
        else:
            continue
        raise invalid(f"entry {index} {reason}")
    return tuple((item["text"], item["special"]) for item in value)


def _check_policy(value: Any, words: tuple[str, ...]) -> str | frozenset[str]:
    if isinstance(value, str) and value in words:
        return value
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        expected = " or ".join(f"'{word}'" for word in words)
        raise invalid(f"must be {expected} or a list of strings")
    return check_special_names(value)


def check_special_names(names: list[str]) -> frozenset[str]:
    """The names of a special-token policy, within their limits.

    The limits exist because the core caches a compiled expression for each set of names.

    Raises:
        PydanticCustomError: there are too many names, or a name is empty or too long.
    """
    if len(names) > MAX_SPECIAL_NAMES or any(
        not 0 < len(name) <= MAX_SPECIAL_NAME_CHARS for name in names
    ):
        raise invalid(
            f"may list at most {MAX_SPECIAL_NAMES} names of 1 to {MAX_SPECIAL_NAME_CHARS} "
            f"characters"
        )
    return frozenset(names)


def _check_added(value: str, info: ValidationInfo) -> str:
    if value == "none" and isinstance(info.data.get("allowed_special"), frozenset):
        raise invalid("'none' recognises no added token; leave the names of allowed_special out")
    return value


def _check_tokens(
    value: Any, info: ValidationInfo
) -> NDArray[np.uint32] | list[NDArray[np.uint32]]:
    field = f"/{info.field_name}"
    if not isinstance(value, list):
        raise invalid("must be a list of token ids or a list of such lists")
    if not value or not isinstance(value[0], list):
        return parse_ids(value, field)
    _check_batch_size(value)
    rows = []
    for index, row in enumerate(value):
        if not isinstance(row, list):
            raise IdsError([f"{field}/{index}"], 1)
        rows.append(parse_ids(row, f"{field}/{index}"))
    return rows


def _check_prompts(
    value: Any, info: ValidationInfo
) -> str | list[str] | NDArray[np.uint32] | list[NDArray[np.uint32]]:
    if value == [] or isinstance(value, str) or (isinstance(value, list) and type(value[0]) is str):
        return _check_text(value)
    return _check_tokens(value, info)


def _check_mixed(value: Any) -> str | list[str | int]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise invalid("must be a text, or a list of texts and token ids")
    for index, item in enumerate(value):
        if not isinstance(item, str) and not _is_id(item):
            raise invalid(f"entry {index} must be a text or a token id")
    _check_batch_size([item for item in value if isinstance(item, str)])
    return value


def _check_batch_size(items: list[Any]) -> None:
    if len(items) > MAX_BATCH_ITEMS:
        raise BatchTooLargeError(len(items))


def parse_ids(ids: list[Any], pointer: str = "") -> NDArray[np.uint32]:
    """Parse token ids into uint32, shape (n,). Takes about 40 ns per id.

    Raises:
        IdsError: an entry is not an integer in 0..2^32-1; this includes `true` and `1.0`.

    Example:
        >>> parse_ids([1, 2])
        array([1, 2], dtype=uint32)
        >>> parse_ids([1, True])
        Traceback (most recent call last):
        tokenizer_client.schemas.tokens.IdsError: entries are not token ids (1)
    """
    array = np.empty(len(ids), dtype=np.uint32)
    wrong: list[str] = []
    count = 0
    for start in range(0, len(ids), _ID_WINDOW):
        window = ids[start : start + _ID_WINDOW]
        if set(map(type, window)) == {int} and min(window) >= 0 and max(window) <= MAX_ID:
            array[start : start + len(window)] = window
            continue
        bad = [i for i, id_ in enumerate(window, start) if not _is_id(id_)]
        count += len(bad)
        wrong += [f"{pointer}/{index}" for index in islice(bad, _MAX_NAMED_ERRORS - len(wrong))]
    if count:
        raise IdsError(wrong, count)
    return array


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_ID


def _check_ids(value: Any, info: ValidationInfo) -> NDArray[np.uint32]:
    if not isinstance(value, list):
        raise invalid("must be a list of token ids")
    return parse_ids(value, f"/{info.field_name}")


_ID_SCHEMA: Final[dict[str, Any]] = {"type": "integer", "minimum": 0, "maximum": MAX_ID}
_IDS_SCHEMA: Final[dict[str, Any]] = {"type": "array", "items": _ID_SCHEMA}


def _one_or_many(item: dict[str, Any], what: str) -> WithJsonSchema:
    many = {"type": "array", "items": item, "maxItems": MAX_BATCH_ITEMS}
    return WithJsonSchema({"anyOf": [item, many], "description": what})


def _policy_schema(words: tuple[str, ...], what: str) -> WithJsonSchema:
    name = {"type": "string", "minLength": 1, "maxLength": MAX_SPECIAL_NAME_CHARS}
    names = {"type": "array", "items": name, "maxItems": MAX_SPECIAL_NAMES}
    return WithJsonSchema(
        {"anyOf": [{"type": "string", "enum": list(words)}, names], "description": what}
    )


Texts = Annotated[
    str | list[str],
    PlainValidator(_check_text),
    _one_or_many({"type": "string"}, "A text, or a batch of texts."),
]
TextsField = Annotated[
    str | list[str] | None,
    PlainValidator(_check_text),
    _one_or_many({"type": "string"}, "A text, or a batch of texts. Or give segments."),
]
"""Absent, not null, where `segments` are given."""

Segments = tuple[tuple[str, bool], ...]
"""The parts of one text, and whether special tokens are recognised in each."""

_SEGMENTS_SCHEMA: Final = WithJsonSchema(
    {
        "type": "array",
        "maxItems": MAX_BATCH_ITEMS,
        "items": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "special": {"type": "boolean"}},
            "required": ["text", "special"],
            "additionalProperties": False,
        },
        "description": "Instead of `text`, its parts in order. The ids are those of the joined "
        "text; a control token (one that is special, or that a chat template writes) is recognised "
        "only where all its characters are in parts with `special: true`.",
    }
)
SegmentsField = Annotated[Segments | None, PlainValidator(_check_segments), _SEGMENTS_SCHEMA]
SegmentList = Annotated[Segments | None, PlainValidator(_parse_segments), _SEGMENTS_SCHEMA]
"""Segments of a request whose options of special tokens are elsewhere."""

TokenIds = Annotated[Any, PlainValidator(_check_ids), WithJsonSchema(_IDS_SCHEMA)]
TokenLists = Annotated[
    Any,
    PlainValidator(_check_tokens),
    _one_or_many(_IDS_SCHEMA, "Token ids, or a batch of such lists."),
]
Prompts = Annotated[
    Any,
    PlainValidator(_check_prompts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "maxItems": MAX_BATCH_ITEMS},
                _IDS_SCHEMA,
                {"type": "array", "items": _IDS_SCHEMA, "maxItems": MAX_BATCH_ITEMS},
            ],
            "description": "A text, texts, the ids of a prompt, or such lists of ids.",
        }
    ),
]
MixedContent = Annotated[
    str | list[str | int],
    PlainValidator(_check_mixed),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"anyOf": [{"type": "string"}, _ID_SCHEMA]}},
            ],
            "description": "A text, or texts and token ids in turn, which are one prompt.",
        }
    ),
]
AllowedSpecial = Annotated[
    str | frozenset[str],
    PlainValidator(lambda value: _check_policy(value, ("all", "none"))),
    _policy_schema(("all", "none"), "Special tokens to recognise. For untrusted text: `none`."),
]
DisallowedSpecial = Annotated[
    str | frozenset[str],
    PlainValidator(lambda value: _check_policy(value, ("all",))),
    _policy_schema(("all",), "Special tokens that are an error in the text."),
]
AddedTokens = Annotated[
    Literal["all", "none"],
    AfterValidator(_check_added),  # reads `allowed_special` if that is an earlier field
    Field(
        description="`none`: no added token is recognised in the text, in segments without "
        "`special` and in messages, not even one that is no special token. This changes ids: "
        "models were trained with some of them (runs of spaces)."
    ),
]
TokenizerName = Annotated[
    str,
    Field(
        pattern=TOKENIZER_PATTERN,
        description="`name` or its alias (its newest version), or `name@version`.",
    ),
]


class RequestModel(BaseModel):
    """Base of request models: strict, rejects unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)

    @property
    def wants_more_than_ids(self) -> bool:
        """Whether the response has parts besides ids, which take more work."""
        return set(vars(self).get("returned", ("ids",))) != {"ids"}


class EncodeRequest(RequestModel):
    """Text, or segments of a text, to token ids."""

    text: TextsField = None
    allowed_special: AllowedSpecial = "all"
    disallowed_special: DisallowedSpecial = frozenset()
    added_tokens: AddedTokens = "all"
    segments: SegmentsField = None  # its check reads the fields above
    add_special_tokens: bool = Field(
        default=False, description="Put around each text what the tokenizer's post-processor adds."
    )
    returned: Sequence[Literal["ids", "pieces", "offsets"]] = Field(
        # A tuple, because pydantic would deep-copy a list for each request.
        default=("ids",),
        alias="return",
        max_length=3,
        description="Parts of the response.",
    )
    offset_unit: Literal["byte", "char"] = Field(
        default="byte",
        description="Unit of the offsets: UTF-8 bytes, or characters that share a byte with the "
        "token.",
    )
    max_tokens: int | None = Field(
        default=None, ge=0, description="A text with more tokens is a 413."
    )
    tokenizer: TokenizerName | None = None


class DecodeRequest(RequestModel):
    """Token ids to text."""

    tokens: TokenLists
    skip_special_tokens: bool = False
    errors: Literal["replace", "strict"] = Field(
        default="replace", description="Bytes that are not UTF-8 become U+FFFD, or are an error."
    )
    tokenizer: TokenizerName | None = None


class PromoteRequest(RequestModel):
    """The tokenizer to serve requests that name none."""

    tokenizer: TokenizerName


ModelName = Annotated[
    str | None,
    Field(
        description="Name or alias of a tokenizer, or `name@version`; 404 for any other. Empty: "
        "the active one. TOKENIZER_MODEL=ignore ignores it."
    ),
]
"""`model`, by which clients of other servers choose a tokenizer."""


class AliasRequest(RequestModel):
    """The tokenizer that an alias belongs to."""

    tokenizer: Annotated[str, Field(pattern=PLAIN_NAME_PATTERN, description="Its name.")]


class ModelResponse(BaseModel):
    """A name or an alias of a tokenizer, as OpenAI's API describes a model."""

    id: str
    object: Literal["model"]
    created: int = Field(description="When the version was published, in seconds since 1970.")
    owned_by: str
    root: str = Field(description="The `name@version` that serves requests for it.")


class ModelsResponse(BaseModel):
    """Every name and alias; the active tokenizer's come first."""

    object: Literal["list"]
    data: list[ModelResponse]


class TokenizerIdentity(BaseModel):
    """One published version; equal digests give equal ids."""

    name: str
    version: str
    digest: str


class ImportedTokenizer(TokenizerIdentity):
    """A version that an import published."""

    vocab_size: int = Field(description="Its entries.")
    warnings: list[str] = Field(
        description="What is probably missing in the request, such as special tokens."
    )


class Piece(BaseModel):
    """The bytes of one token."""

    text: str | None = Field(description="Null where the bytes are not UTF-8 by themselves.")
    bytes: str = Field(description="Base64.")


class EncodeResponse(BaseModel):
    """For a batch, each field except `tokenizer` is a list with one entry per text."""

    tokens: list[int] | list[list[int]] | None = Field(
        default=None, description="Absent if `return` omits `ids`."
    )
    count: int | list[int]
    pieces: list[Piece] | list[list[Piece]] | None = None
    offsets: list[tuple[int, int]] | list[list[tuple[int, int]]] | None = None
    tokenizer: TokenizerIdentity


class DecodeResponse(BaseModel):
    """The text, or the texts of a batch."""

    text: str | list[str]
    tokenizer: TokenizerIdentity


class TokenizerSummary(TokenizerIdentity):
    """An entry in a list of versions."""

    active: bool
    created_at: str
    manifest: dict[str, Any] | None = Field(
        default=None, description="Only for a single tokenizer."
    )


class ActiveTokenizer(TokenizerSummary):
    """The active version."""

    previous: TokenizerIdentity | None = Field(
        default=None, description="What `POST /rollback` would serve; null for nothing."
    )


class TokenizersResponse(BaseModel):
    """Every published version, sorted by name, newest first."""

    tokenizers: list[TokenizerSummary]
    active: TokenizerIdentity | None


class PromoteResponse(BaseModel):
    """The tokenizer that is active now, and what was served before."""

    active: TokenizerIdentity
    previous: TokenizerIdentity | None = Field(
        description="What `POST /rollback` would serve; null for nothing."
    )


class LimitsInfo(BaseModel):
    """The limits on requests and responses."""

    max_body_bytes: int
    max_decoded_bytes: int
    max_batch_items: int
    max_detailed_tokens: int
    max_special_names: int
    max_stream_pre_token_chars: int


class InferenceInfo(BaseModel):
    """The response of text-embeddings-inference."""

    model_config = ConfigDict(protected_namespaces=())

    version: str
    model_id: str = Field(
        description="Name of the tokenizer; this and what follows are fields of "
        "text-embeddings-inference."
    )
    model_sha: str = Field(description="The tokenizer's digest.")
    model_dtype: Literal["none"] = Field(description="There is no model.")
    model_type: dict[str, Any] = Field(description="Empty.")
    max_input_length: int = Field(
        description="`max_model_len` as the import says, else `max_body_bytes`."
    )
    max_client_batch_size: int = Field(description="`max_batch_items`.")
    max_concurrent_requests: int
    max_batch_tokens: int = Field(description="`max_body_bytes`: a token has at least a byte.")
    max_batch_requests: None
    auto_truncate: Literal[False]
    tokenization_workers: int = Field(description="Threads for large requests.")
    sha: None
    docker_label: None


class InfoResponse(InferenceInfo):
    """The served tokenizer, its engine and the limits; also what text-embeddings-inference says."""

    service: str
    python: str
    tokenizer: TokenizerIdentity
    engine: str = Field(description="The engine: `native` or `python`.")
    engine_reason: str = Field(description="Why this engine runs.")
    native_unavailable: str | None = Field(
        description="Why the native engine cannot run here; null if it can."
    )
    vocab_size: int
    largest_id: int
    kind: str
    pattern: str
    unicode_tables: str
    normalizer: str
    special_tokens: dict[str, int]
    loaded_at: float = Field(description="Unix time.")
    limits: LimitsInfo


class HealthResponse(BaseModel):
    """`ok`, or `degraded` with a reason: a tokenizer is served, but something failed."""

    status: Literal["ok", "degraded"]
    reason: str | None = None
    tokenizer: TokenizerIdentity | None = None
    source: Literal["promoted", "default", "packaged", "last_good", "previous"] | None = Field(
        None,
        description="Why this tokenizer is active: `promoted`; `default` until one is promoted; "
        "`packaged`, the default of a service whose folder nothing names; `last_good`, still "
        "active because the pointer, its version or the store fails; `previous`, by "
        "TOKENIZER_FALLBACK.",
    )


class UnhealthyError(BaseModel):
    """Why `/health` is not ok."""

    code: Literal[503]
    message: str
    type: Literal["unavailable_error"]


class UnhealthyResponse(BaseModel):
    """No tokenizer is loaded; the form in which llama.cpp's server reports a missing model."""

    error: UnhealthyError


class ProblemItem(BaseModel):
    """One fault of a request; `pointer` is a JSON pointer into the request."""

    pointer: str
    detail: str


class ProblemDocument(BaseModel):
    """A problem document (RFC 9457) that also has the `error` object of OpenAI-style servers."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[ProblemItem] | None = None
    errors_total: int | None = None
    byte_offset: int | None = None
    limit: int | None = None
    actual: int | None = None
    error: dict[str, Any]
