"""BaseClient: what both clients are before it matters whether they block."""

from __future__ import annotations

import copy
import inspect
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Self, TypedDict

import httpx

from tokenizer_client.retries import RetryPolicy, Session
from tokenizer_client.service_address import ServiceAddress
from tokenizer_client.sources import Source
from tokenizer_client.steps import Open

_CONNECT_SECONDS: Final = 10.0


class ClientOptions(TypedDict, total=False):
    """What a client may be told beside where the service is.

    `timeout_seconds` (60) bounds each wait for the service, `deadline_seconds` (300, None for no
    end) a whole call with its retries; streams, transfers and waiting for jobs take as long as they
    take. `retries` is how often and how long between; `verify` what https is checked with.
    """

    timeout_seconds: float
    deadline_seconds: float | None
    retries: RetryPolicy
    verify: bool | ssl.SSLContext


class BaseClient:
    """An address, a key that shows nowhere, patience, and perhaps a tokenizer it is pinned to."""

    def __init__(self, base_url: str | None, api_key: str | None, options: ClientOptions) -> None:
        self._address = ServiceAddress.of(base_url, api_key)
        self._session = Session(
            policy=options.get("retries", RetryPolicy()),
            timeout_seconds=options.get("timeout_seconds", 60.0),
            deadline_seconds=options.get("deadline_seconds", 300.0),
        )
        # Where there is no https there is nothing to check, and certificates take time to load.
        verify = options.get("verify", True)
        is_tls = self._address.url.startswith("https:")
        self._tls = httpx.create_ssl_context(verify) if is_tls else None

    def __repr__(self) -> str:
        pin = self._session.tokenizer or self._session.digest
        return f"{type(self).__name__}({self._address.url!r}{f', pinned to {pin}' if pin else ''})"

    def pinned(self, tokenizer: str | None = None, *, digest: str | None = None) -> Self:
        """A client that one tokenizer answers or none, whatever is promoted meanwhile.

        `tokenizer` is `name@version` (`name`: its newest version), `digest` that of a tokenizer: an
        answer by another one is a DigestMismatchError. It shares the connections of this client.

        Example:
            >>> active = client.active_tokenizer()
            >>> client.pinned(digest=active.digest).count("low") == client.count("low")
            True
        """
        pinned = copy.copy(self)
        pinned._session = replace(
            self._session,
            tokenizer=tokenizer or self._session.tokenizer,
            digest=digest or self._session.digest,
        )
        return pinned

    def _http_options(self) -> dict[str, Any]:
        """What httpx is told, whichever of its clients it is."""
        # Ids do not shrink much, and ranges of a file are ranges of its own bytes.
        headers = {"User-Agent": "tokenizer-client", "Accept-Encoding": "identity"}
        if self._address.api_key is not None:
            headers["Authorization"] = f"Bearer {self._address.api_key}"
        return {
            "base_url": self._address.url,
            "headers": headers,
            "verify": self._tls or False,
        }

    def _request_options(self, step: Open, pieces: Any) -> dict[str, Any]:
        """A request as httpx builds it; `pieces` are those of a body that is not whole."""
        request = step.request
        connect = min(step.timeout_seconds, _CONNECT_SECONDS)
        return {
            "method": request.method,
            "url": request.path,
            "params": request.query,
            "headers": dict(request.headers),
            "content": pieces if isinstance(request.body, Source) else request.body,
            "timeout": httpx.Timeout(step.timeout_seconds, connect=connect),
        }


def describe_method(method: Callable[..., Any], call: Callable[..., Any], form: str) -> None:
    """Have `help` show what `method` returns: `form` of what the flow of `call` results in."""
    returned = str(call.__annotations__["return"]).partition("[")[2].removesuffix("]")
    signature = inspect.signature(call).replace(return_annotation=form.format(returned))
    method.__signature__ = signature  # type: ignore[attr-defined]
