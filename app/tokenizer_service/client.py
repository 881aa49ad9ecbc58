"""Alias for one release: import `Client` and `AsyncClient` from `tokenizer_client` instead."""

import warnings

from tokenizer_client import (
    AsyncClient as AsyncTokenizerClient,
)
from tokenizer_client import (
    AuthenticationError,
    ClientError,
    ConflictError,
    ConnectionLostError,
    DeadlineExceededError,
    DigestMismatchError,
    EncodedFile,
    InvalidRequestError,
    JobFailedError,
    NotFoundError,
    PreconditionFailedError,
    ProblemError,
    RetryPolicy,
    StreamCutOffError,
    TooLargeError,
    UnavailableError,
)
from tokenizer_client import (
    Client as TokenizerClient,
)
from tokenizer_client import (
    UnexpectedResponseError as UnexpectedAnswerError,
)

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

warnings.warn(
    "tokenizer_service.client is deprecated and will be removed in the next release: use "
    "`from tokenizer_client import Client, AsyncClient` (formerly TokenizerClient and "
    "AsyncTokenizerClient; UnexpectedAnswerError is now UnexpectedResponseError)",
    DeprecationWarning,
    stacklevel=2,
)
