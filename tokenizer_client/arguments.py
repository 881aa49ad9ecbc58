"""What callers pass, checked, and as the fields or the query of a request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Final, Literal, TypeAlias, TypedDict

import numpy as np
from pydantic import BaseModel

from tokenizer_client.schemas.chat import ChatEncodeRequest
from tokenizer_client.schemas.jobs import (
    AnyJobSummary,
    Corpus,
    PublishedTokenFiles,
    PublishedVersion,
)
from tokenizer_client.schemas.token_files import TokenFilesSummary
from tokenizer_client.schemas.tokens import TokenizerIdentity
from tokenizer_client.wire import (
    Ids,
    Query,
    Width,
    parse_id_bytes,
    plain_number,
    render_ids,
    to_list,
)

_NO_ROWS: Final = (str, bytes, bytearray, Mapping, Set)
"""Iterables whose items are not texts or ids in an order that the caller chose."""

_DEFAULTS: Final = {
    "allowed_special": "all",
    "added_tokens": "all",
    "errors": "replace",
    "messages_form": "raw",
}
"""Options that a request leaves out with these values, the service's defaults."""

AllowedSpecial: TypeAlias = Literal["all", "none", "ordinary"] | Collection[str]
"""Special tokens to recognise in a text; `ordinary`: no added token at all."""

AddedTokens: TypeAlias = Literal["all", "none"]
"""Whether added tokens that are no control tokens count in untrusted text."""

DisallowedSpecial: TypeAlias = Literal["all"] | Collection[str]
"""Special tokens that are an error in a text."""

Errors: TypeAlias = Literal["replace", "strict"]
"""Bytes that are not UTF-8 become U+FFFD, or are an error."""

Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""Objects with `role`, `content` and what else the chat template reads."""

JobOrId: TypeAlias = str | AnyJobSummary
CorpusOrId: TypeAlias = str | Corpus
TokenFilesOrId: TypeAlias = str | TokenFilesSummary | PublishedTokenFiles
TokenizerOrName: TypeAlias = str | TokenizerIdentity | PublishedVersion
"""`name@version`, for most calls also `name`, or a tokenizer that the service described."""


class JobLimits(TypedDict, total=False):
    """Limits of a job; the service stops a job that exceeds one."""

    seconds: float
    memory_bytes: int


def id_of(given: JobOrId | CorpusOrId | TokenFilesOrId) -> str:
    """The id of a thing of the service that may be given by its id."""
    found = given if isinstance(given, str) else getattr(given, "id", None)
    if not isinstance(found, str):
        raise TypeError(f"give an id as a str, or what the client returned, not {given!r:.60}")
    return found


def name_of(given: TokenizerOrName) -> str:
    """`name@version` of a tokenizer that may be given by its name; raises TypeError otherwise.

    Example:
        >>> name_of(TokenizerIdentity(name="a", version="1", digest="d"))
        'a@1'
    """
    if isinstance(given, str):
        return given
    if not isinstance(given, TokenizerIdentity | PublishedVersion):
        raise TypeError(f"give NAME or NAME@VERSION, or what the client returned: {given!r:.60}")
    return f"{given.name}@{given.version}"


def version_of(given: TokenizerOrName) -> tuple[str, str]:
    """The name and the version of a published tokenizer; raises ValueError for a name alone.

    Example:
        >>> version_of("a@1")
        ('a', '1')
    """
    name, _, version = name_of(given).partition("@")
    if not version:
        raise ValueError(
            f"{name!r:.80} is a name without a version; give NAME@VERSION, or what "
            f"tokenizers.list(), tokenizers.active() or a training returned"
        )
    return name, version


def fields_of(model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a method, its `locals()`, that are fields of the request `model`, as
    JSON values and without those that have the service's defaults.

    They keep their order, because the service parses a body fastest if the text comes first.
    """
    names = model.model_fields
    return plain_options({name: arguments[name] for name in arguments if name in names})


def chat_fields(method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`fields_of` a request with a conversation; raises TypeError for messages of another form."""
    listed = message_list(method, "messages", arguments["messages"])
    return with_variables(
        fields_of(ChatEncodeRequest, {**arguments, "messages": listed}), arguments
    )


def message_list(method: str, name: str, messages: Any) -> list[Mapping[str, Any]]:
    """Messages as a list; raises TypeError for another form."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        kind = type(messages).__name__
        raise TypeError(f"{method}() takes a list of {name}, not {kind}; give a list of dicts")
    listed = list(messages)
    for index, message in enumerate(listed):
        if not isinstance(message, Mapping):
            kind = type(message).__name__
            raise TypeError(f"{method}(): {name}[{index}] is {kind}, not a dict with role")
    return listed


def with_variables(fields: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` with the variables of the chat template, if some are given."""
    if (variables := arguments["template_kwargs"]) is not None:
        fields["chat_template_kwargs"] = dict(variables)
    return fields


def kept_fields(method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The ids that a request keeps, and their mask; raises TypeError for others."""
    require_ids(arguments["ids"], method)
    mask = arguments["mask"]
    kept = {"tokens": plain_ids(arguments["ids"])}
    return kept if mask is None else {**kept, "mask": plain_ids(mask)}


def derender_fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a derender request beside what was generated."""
    chat_request, prompt = arguments["chat_request"], arguments["prompt_token_ids"]
    fields = {
        "chat_request": None if chat_request is None else dict(chat_request),
        "parser": arguments["parser"],
        "prompt_token_ids": None if prompt is None else plain_ids(prompt),
    }
    return {name: value for name, value in fields.items() if value is not None}


def plain_ids(ids: Ids) -> list[int]:
    """Ids as Python's integers; raises as `wire.render_ids`."""
    return to_list(parse_id_bytes(bytearray(render_ids(ids))))


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON values, without those that have the service's defaults."""
    plain = {name: plain_number(value) for name, value in options.items()}
    if plain.get("allowed_special") == "ordinary":
        plain |= {"allowed_special": None, "added_tokens": "none"}
    for name in ("disallowed_special", "turn_ends"):
        if not plain.get(name, True):
            del plain[name]
    return {
        name: _json_value(name, value)
        for name, value in plain.items()
        if not (value is None or value is False or (name, value) in _DEFAULTS.items())
    }


def query_of(options: Mapping[str, Any]) -> Query:
    """Options as query parameters."""
    listed = []
    for name, value in plain_options(options).items():
        if isinstance(value, bool):
            listed.append((name, "true" if value else "false"))
        elif name == "allowed_special" and not value:
            listed.append((name, "none"))  # a query without names selects the default
        else:
            listed += [(name, item) for item in ([value] if isinstance(value, str) else value)]
    return tuple(listed)


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, str | int | float | dict):
        return value
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} cannot be {value!r:.40}, a {type(value).__name__}")
    return list(value)


def require_text(text: object, method: str, for_many: str | None = None) -> None:
    """Raise TypeError unless `text` is one text; name the method for many."""
    if isinstance(text, str):
        return
    if isinstance(text, bytes | bytearray):
        remedy = "decode the bytes first: data.decode()"
    elif isinstance(text, Iterable) and for_many is not None:
        remedy = f"call {for_many}() for many texts"
    else:
        remedy = "call it once for each text"
    raise TypeError(f"{method}() takes one text as a str, not {type(text).__name__}; {remedy}")


def segment_fields(segments: Iterable[tuple[str, bool]]) -> list[dict[str, object]]:
    """Segments as the service takes them; raises TypeError for one of other types."""
    fields: list[dict[str, object]] = []
    for index, (text, special) in enumerate(segments):
        if not isinstance(text, str) or not isinstance(special, bool):
            raise TypeError(
                f"segments[{index}] must be a text and whether special tokens count in it (str, "
                f"bool), not ({type(text).__name__}, {type(special).__name__})"
            )
        fields.append({"text": text, "special": special})
    return fields


def require_texts(texts: Any, method: str, for_one: str) -> list[str]:
    """The texts as a list; raises TypeError, with the method for one text."""
    if isinstance(texts, _NO_ROWS) or not isinstance(texts, Iterable):
        remedy = f"call {for_one}() for one text" if isinstance(texts, str) else "give a list"
        kind = type(texts).__name__
        raise TypeError(f"{method}() takes many texts as a list of str, not {kind}; {remedy}")
    listed = list(texts)
    for index, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"{method}(): texts[{index}] is {type(text).__name__}, not str")
    return listed


def require_ids(ids: Any, method: str, for_many: str | None = None) -> None:
    """Raise TypeError if these are the ids of many texts, or none; name the method for them."""
    remedy = ""
    if isinstance(ids, np.ndarray):
        is_many = ids.ndim > 1
    elif isinstance(ids, _NO_ROWS) or not isinstance(ids, Sequence):
        is_many, remedy = False, "; give a list of integers or a numpy array"
    else:
        is_many = len(ids) > 0 and isinstance(ids[0], Sequence | np.ndarray)
    if is_many:
        remedy = f"; call {for_many or method}() for " + ("many" if for_many else "each of them")
    if remedy:
        what = "many lists of ids" if is_many else type(ids).__name__
        raise TypeError(f"{method}() takes the ids of one text, not {what}{remedy}")


def require_rows(rows: Any) -> list[Ids]:
    """Lists of ids as a list; raises TypeError if they are the ids of one text, or none."""
    if isinstance(rows, _NO_ROWS) or not isinstance(rows, Iterable):
        kind = type(rows).__name__
        raise TypeError(f"decode_batch() takes a list of lists of ids, not {kind}")
    listed = list(rows)
    for index, row in enumerate(listed):
        if not isinstance(row, Sequence | np.ndarray) or isinstance(row, _NO_ROWS):
            raise TypeError(
                f"decode_batch() takes a list of lists of ids, and rows[{index}] is "
                f"{type(row).__name__}; call decode() for the ids of one text"
            )
    return listed


def render_item(item: Ids | bytes, width: Width) -> bytes:
    """One item of a source of ids as bytes; raises TypeError for one id."""
    if isinstance(item, int | np.integer):
        raise TypeError("decode_stream() takes an iterable of lists of ids; give [ids] for one")
    return item if isinstance(item, bytes) else render_ids(item, width)
