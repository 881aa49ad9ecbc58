"""Request heads: what a request line and headers may be.

It stands alone because these are rules about bytes, which need no connection to be tried.
"""

from __future__ import annotations

import re
from typing import Final

from app.http.problem import Problem

MAX_HEADER_BYTES: Final = 32 * 1024
"""Request line and headers together; also what may arrive between two pieces of a body."""

MAX_HEADERS: Final = 100

_HOST: Final = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~!$&'()*+,;=%]+)(?::[0-9]{0,5})?", re.ASCII
)


def check_size(url: bytes, headers: list[tuple[bytes, bytes]], n_received: int) -> None:
    """Raise Problem 431 for a head over the limits; it came within `n_received` bytes."""
    if len(headers) > MAX_HEADERS:
        raise Problem(
            431,
            "too_many_headers",
            f"A request has at most {MAX_HEADERS} headers.",
            limit=MAX_HEADERS,
            actual=len(headers),
        )
    if n_received <= MAX_HEADER_BYTES:
        return
    n_bytes = len(url) + sum(len(name) + len(value) + len(": \r\n") for name, value in headers)
    if n_bytes > MAX_HEADER_BYTES:
        raise headers_too_large()


def check_framing(headers: list[tuple[bytes, bytes]], version: str) -> None:
    """Raise Problem 400 or 501 unless it is clear whom the request is for and where it ends."""
    hosts: list[bytes] = []
    codings: list[bytes] = []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value)
    if len(hosts) > 1 or (not hosts and version != "1.0"):
        raise Problem(400, "host_invalid", "A request has exactly one Host header.")
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise Problem(400, "host_invalid", "The Host header is no host with an optional port.")
    if codings and version == "1.0":
        raise Problem(400, "bad_http", "HTTP/1.0 has no Transfer-Encoding.")
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked"):
        raise Problem(
            501,
            "transfer_coding_unsupported",
            "The only Transfer-Encoding taken is `chunked`, once.",
        )


def malformed() -> Problem:
    """What the parser does not understand."""
    return Problem(400, "bad_http", "This is not well-formed HTTP/1.1.")


def headers_too_large() -> Problem:
    """More bytes than a head may have."""
    return Problem(
        431,
        "headers_too_large",
        f"The request line and the headers are together larger than {MAX_HEADER_BYTES} bytes.",
        limit=MAX_HEADER_BYTES,
    )


def headers_too_slow(seconds: float) -> Problem:
    """A head that took longer than it may."""
    return Problem(
        408, "headers_too_slow", f"The headers did not arrive within {seconds:g} seconds."
    )
