"""Calls about the service and its tokenizers: readiness, versions, promotion, roll-back."""

from __future__ import annotations

from typing import Final

from pydantic_core import to_json

from tokenizer_client.calls.exchange import (
    JSON,
    OCTETS,
    Flow,
    Request,
    Wait,
    exchange,
    get,
    open_response,
    path_of,
    remove,
    require_media_type,
    require_same,
)
from tokenizer_client.calls.retries import Deadline, Repeat, Session
from tokenizer_client.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineExceededError,
    UnavailableError,
)
from tokenizer_client.schemas.tokens import (
    InfoResponse,
    ModelResponse,
    ModelsResponse,
    PromoteResponse,
    TokenizersResponse,
    TokenizerSummary,
)

_MEDIA_TYPES: Final = {"json": JSON, "txt": "text/plain", "tiktoken": "text/plain"}
"""Suffix of a file of a tokenizer -> its media type; the others are bytes."""


def info(session: Session) -> Flow[InfoResponse]:
    """The tokenizer that serves, its engine and the limits of the service."""
    return get(session, "/info", InfoResponse)


def is_ready(session: Session) -> Flow[bool]:
    """Whether the service serves a tokenizer that passed its round trip; sends one request."""
    deadline = session.deadline(session.deadline_seconds)
    try:
        yield from _require_ready(session, deadline)
    except (ConnectionLostError, UnavailableError):
        return False
    return True


def wait_until_ready(session: Session, *, deadline_seconds: float = 60.0) -> Flow[None]:
    """Wait until the service is ready, for example while it starts."""
    deadline = session.deadline(deadline_seconds)
    error: ClientError | None = None
    while True:
        try:
            yield from _require_ready(session, deadline)
            return
        except (ConnectionLostError, UnavailableError) as failed:
            error = failed
        except DeadlineExceededError:
            if error is None:
                raise
        deadline.check(error)
        yield Wait(min(0.25, deadline.seconds_left))


def _require_ready(session: Session, deadline: Deadline) -> Flow[None]:
    head = yield from open_response(session, Request("GET", "/readyz"), deadline)
    require_media_type(head.headers, JSON)


def list_tokenizers(session: Session) -> Flow[TokenizersResponse]:
    """Every published version, by name, newest first, and which is active."""
    return get(session, "/tokenizers", TokenizersResponse)


def describe_tokenizer(session: Session, name: str) -> Flow[list[TokenizerSummary]]:
    """The versions of one tokenizer with their manifests, newest first."""
    found = (yield from get(session, path_of("tokenizers", name), TokenizersResponse)).tokenizers
    for one in found:
        require_same("name", one.name, name)
    return found


def active_tokenizer(session: Session) -> Flow[TokenizerSummary]:
    """The tokenizer for requests that name none; pin it by its `digest`."""
    return get(session, "/tokenizers/active", TokenizerSummary)


def tokenizer_file(session: Session, tokenizer: str, file: str) -> Flow[bytes]:
    """A version (`name@version`) as a file for other programs: `tokenizer.json`, `vocab.pkl` ..."""
    name, _, version = tokenizer.partition("@")
    request = Request("GET", path_of("tokenizers", name, version, file))
    response = yield from exchange(session, request)
    require_media_type(response.headers, _MEDIA_TYPES.get(file.rpartition(".")[2], OCTETS))
    return bytes(response.body)


def promote(
    session: Session, tokenizer: str, *, if_match: str | None = None
) -> Flow[PromoteResponse]:
    """Make `name` (its newest version) or `name@version` the active tokenizer."""
    headers = {"Content-Type": JSON}
    repeat = Repeat.ALWAYS
    if if_match is not None:
        headers["If-Match"] = f'"{if_match}"'
        # After the first promotion the digest has changed, so a repeated request would get a 412.
        repeat = Repeat.UNLESS_DONE
    body = to_json({"tokenizer": tokenizer})
    request = Request("PUT", "/tokenizers/active", headers=headers, body=body)
    found = (yield from exchange(session, request, repeat=repeat)).parse(PromoteResponse)
    present = found.active.name + (f"@{found.active.version}" if "@" in tokenizer else "")
    require_same("tokenizer", present, tokenizer)
    return found


def roll_back(session: Session, promotion: PromoteResponse) -> Flow[PromoteResponse]:
    """Undo a promotion: make the previously active tokenizer active again."""
    before = promotion.previous
    if before is None:
        raise ValueError(
            "no tokenizer was active before this promotion; promote the one that should be"
        )
    name = f"{before.name}@{before.version}"
    return promote(session, name, if_match=promotion.active.digest)


def remove_version(session: Session, tokenizer: str) -> Flow[None]:
    """Remove a version (`name@version`) for good."""
    name, _, version = tokenizer.partition("@")
    return remove(session, path_of("tokenizers", name, version))


def list_models(session: Session) -> Flow[ModelsResponse]:
    """The names and aliases that `model` may be in requests of other servers' clients."""
    return get(session, "/models", ModelsResponse)


def add_alias(session: Session, alias: str, name: str) -> Flow[ModelResponse]:
    """Let such requests name the tokenizer `name` as `alias`."""
    body = to_json({"tokenizer": name})
    path, headers = path_of("models", alias), {"Content-Type": JSON}
    request = Request("PUT", path, headers=headers, body=body)
    found = (yield from exchange(session, request, repeat=Repeat.ALWAYS)).parse(ModelResponse)
    require_same("alias", found.id, alias)
    return found


def remove_alias(session: Session, alias: str) -> Flow[None]:
    """Remove an alias; its tokenizer stays."""
    return remove(session, path_of("models", alias))
