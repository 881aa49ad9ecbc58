"""Alias for one release: name `app.http.protocol:GuardedHttpProtocol` in `uvicorn --http`."""

import warnings

from app.http.protocol import GuardedHttpProtocol

__all__ = ["GuardedHttpProtocol"]

warnings.warn(
    "app.http_protocol is deprecated and will be removed in the next release: use "
    "app.http.protocol",
    DeprecationWarning,
    stacklevel=2,
)
