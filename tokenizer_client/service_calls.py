"""Calls about the service and its tokenizers: served, published, promote, roll back."""

from __future__ import annotations

from pydantic_core import to_json

from tokenizer_client.errors import ClientError, ConnectionLostError, UnavailableError
from tokenizer_client.exchanges import JSON, exchange, get, open_answer, path_of, remove
from tokenizer_client.retries import Repeat, Session
from tokenizer_client.schemas.tokens import (
    InfoResponse,
    PromoteResponse,
    TokenizersResponse,
    TokenizerSummary,
)
from tokenizer_client.steps import Flow, Request, Wait


def info(session: Session) -> Flow[InfoResponse]:
    """What serves, with which engine, and within which limits.

    Example:
        >>> client.info().tokenizer.name
        'starter'
    """
    return get(session, "/info", InfoResponse)


def is_ready(session: Session) -> Flow[bool]:
    """Whether the service has a tokenizer that passed its round trip. Asked once.

    Example:
        >>> client.is_ready()
        True
    """
    deadline = session.deadline(session.deadline_seconds)
    try:
        yield from open_answer(session, Request("GET", "/readyz"), deadline)
    except (ConnectionLostError, UnavailableError):
        return False
    return True


def wait_until_ready(session: Session, *, deadline_seconds: float = 60.0) -> Flow[None]:
    """Return as soon as the service is ready, which may still be starting.

    Raises:
        DeadlineExceededError: it was not within `deadline_seconds`.
    """
    deadline = session.deadline(deadline_seconds)
    while True:
        try:
            yield from open_answer(session, Request("GET", "/readyz"), deadline)
            return
        except (ConnectionLostError, UnavailableError) as failed:
            error: ClientError = failed
        deadline.check(error)
        yield Wait(min(0.25, deadline.seconds_left))


def list_tokenizers(session: Session) -> Flow[TokenizersResponse]:
    """Every published version, names in order, newest first; and which is active.

    Example:
        >>> client.list_tokenizers().active.name
        'starter'
    """
    return get(session, "/tokenizers", TokenizersResponse)


def describe_tokenizer(session: Session, name: str) -> Flow[list[TokenizerSummary]]:
    """The versions of one tokenizer with their manifests, newest first.

    Example:
        >>> client.describe_tokenizer("starter")[0].active
        True
    """
    return (yield from get(session, path_of("tokenizers", name), TokenizersResponse)).tokenizers


def active_tokenizer(session: Session) -> Flow[TokenizerSummary]:
    """What answers when a request names no tokenizer; its `digest` pins it.

    Example:
        >>> client.active_tokenizer().name
        'starter'
    """
    return get(session, "/tokenizers/active", TokenizerSummary)


def tokenizer_file(session: Session, tokenizer: str, file: str) -> Flow[bytes]:
    """A version (`name@version`) as a file for other programs: `tokenizer.json`, `vocab.pkl` ...

    Example:
        >>> active = client.active_tokenizer()
        >>> client.tokenizer_file(f"{active.name}@{active.version}", "tokenizer.json")[:1]
        b'{'
    """
    name, _, version = tokenizer.partition("@")
    request = Request("GET", path_of("tokenizers", name, version, file))
    return bytes((yield from exchange(session, request)).body)


def promote(
    session: Session, tokenizer: str, *, if_match: str | None = None
) -> Flow[PromoteResponse]:
    """Make `name` (its newest version) or `name@version` what answers; returns when all processes
    of the service do.

    With `if_match`, the digest that must be active now, nobody else's promotion is overwritten.

    Raises:
        DigestMismatchError: another one is active.
        ConflictError: another promotion is under way.
    """
    headers = {"Content-Type": JSON}
    repeat = Repeat.ALWAYS
    if if_match is not None:
        headers["If-Match"] = f'"{if_match}"'
        # Done once, the digest that was to be active is not: the second time it would be a 412.
        repeat = Repeat.UNLESS_DONE
    body = to_json({"tokenizer": tokenizer})
    request = Request("PUT", "/tokenizers/active", headers=headers, body=body)
    return (yield from exchange(session, request, repeat=repeat)).parse(PromoteResponse)


def roll_back(session: Session, promotion: PromoteResponse) -> Flow[PromoteResponse]:
    """Undo a promotion: what was active before it answers again.

    Raises:
        DigestMismatchError: somebody has promoted another one since; that stays.
        ValueError: nothing was active before.
    """
    before = promotion.previous
    if before is None:
        raise ValueError("nothing was active before this promotion; promote what should be")
    name = f"{before.name}@{before.version}"
    return promote(session, name, if_match=promotion.active.digest)


def remove_version(session: Session, tokenizer: str) -> Flow[None]:
    """Remove a version (`name@version`) for good.

    Raises:
        ConflictError: it is in use.
    """
    name, _, version = tokenizer.partition("@")
    return remove(session, path_of("tokenizers", name, version))
