"""The client of the tokenizer service: every route as a Python method, blocking or awaited.

    from tokenizer_client import AsyncClient, Client

| module | content |
|---|---|
| `async_client` | every call as a method, its request, the checks of its response |
| `async_exchange` | one request and its response, repeated if a retry may succeed |
| `client`, `exchange` | the same, blocking; made from them by dropping `await` |
| `arguments` | what callers pass, checked, and as fields or a query |
| `wire` | requests and responses as bytes, and what a response must be |
| `retries` | whether and when a failed request is repeated |
| `local_files` | the files that are sent and written |
| `address` | the address of the service and the key |
| `transport` | httpx transports that read the response while the body is still being sent |
| `errors` | every error a call raises |
| `schemas` | request and response bodies; the service validates with the same models |
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizer_client.async_client import AsyncClient
    from tokenizer_client.client import Client
    from tokenizer_client.errors import (
        AuthenticationError,
        ClientError,
        ConflictError,
        ConnectionLostError,
        DeadlineExceededError,
        DigestMismatchError,
        InvalidRequestError,
        JobFailedError,
        NotFoundError,
        PreconditionFailedError,
        ProblemError,
        StreamCutOffError,
        TooLargeError,
        UnavailableError,
        UnexpectedResponseError,
    )
    from tokenizer_client.retries import RetryPolicy

__all__ = [
    "AsyncClient",
    "AuthenticationError",
    "Client",
    "ClientError",
    "ConflictError",
    "ConnectionLostError",
    "DeadlineExceededError",
    "DigestMismatchError",
    "InvalidRequestError",
    "JobFailedError",
    "NotFoundError",
    "PreconditionFailedError",
    "ProblemError",
    "RetryPolicy",
    "StreamCutOffError",
    "TooLargeError",
    "UnavailableError",
    "UnexpectedResponseError",
]

_HOMES = {
    "AsyncClient": "async_client",
    "Client": "client",
    "RetryPolicy": "retries",
}


if not TYPE_CHECKING:  # else a misspelt name has a type

    def __getattr__(name: str) -> object:
        """Import a public name on first use: the service needs the schemas, and no httpx."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            home = import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"the client needs the package {error.name}; "
                "pip install 'tokenizer-service[client]'",
                name=error.name,
            ) from error
        globals()[name] = found = getattr(home, name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
