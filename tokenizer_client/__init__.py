"""The client of the tokenizer service: every route as a Python method, blocking or awaited.

    from tokenizer_client import AsyncClient, Client

| module | content |
|---|---|
| `client`, `async_client` | `Client` and `AsyncClient`: every call as a typed method |
| `base` | what both share: the address, the settings, the runners of calls |
| `calls` | one generator per call: its request, its retries, its result |
| `transport` | httpx transports that read the response while the body is still being sent |
| `errors` | every error a call raises |
| `schemas` | request and response bodies; the service validates with the same models |
"""

from tokenizer_client.async_client import AsyncClient
from tokenizer_client.calls.retries import RetryPolicy
from tokenizer_client.calls.streams import EncodedFile
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

__all__ = [
    "AsyncClient",
    "AuthenticationError",
    "Client",
    "ClientError",
    "ConflictError",
    "ConnectionLostError",
    "DeadlineExceededError",
    "DigestMismatchError",
    "EncodedFile",
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
