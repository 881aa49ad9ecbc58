"""The client: the service from Python, blocking or awaited.

    from tokenizer_client import AsyncTokenizerClient, TokenizerClient

The calls (`text_calls`, `stream_calls`, `service_calls`, `job_calls`, `corpus_calls`) are
generators that know requests, answers and what to do when something fails, and wait for nothing;
`steps` is what they ask for, `retries` and `exchanges` what they share, `id_bytes`, `event_lines`
and `sources` what goes over the wire. `blocking_client` and `async_client` run them, over httpx
and, where an answer comes before the body has ended, `two_way_transport`. Knows of the service only
the schemas.
"""

from tokenizer_client.async_client import AsyncTokenizerClient
from tokenizer_client.blocking_client import TokenizerClient
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
    UnexpectedAnswerError,
)
from tokenizer_client.retries import RetryPolicy
from tokenizer_client.stream_calls import EncodedFile

__all__ = [
    "AsyncTokenizerClient",
    "AuthenticationError",
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
    "TokenizerClient",
    "TooLargeError",
    "UnavailableError",
    "UnexpectedAnswerError",
]
