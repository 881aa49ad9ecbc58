"""Alias for one release: name `http.protocol` in `uvicorn --http`."""

import warnings

from tokenizer_service.http.protocol import GuardedHttpProtocol

__all__ = ["GuardedHttpProtocol"]

warnings.warn(
    "tokenizer_service.http_protocol is deprecated and will be removed in the next release: use "
    "tokenizer_service.http.protocol",
    DeprecationWarning,
    stacklevel=2,
)
