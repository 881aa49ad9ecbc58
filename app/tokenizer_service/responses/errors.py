"""Errors of what a request asks for, at a place in it. `problem_table` gives them a status."""

from __future__ import annotations

from typing import ClassVar

from tokenizer_core.errors import (
    SpecialTokenForbiddenError,
    SpecialTokenReachedError,
    TokenizerCoreError,
)


class ResponseError(Exception):
    """A response cannot be made. `code` is a stable word; `wrong` lists JSON pointers into the
    request, each with the reason."""

    code: ClassVar[str]

    def __init__(self, message: str, pointer: str | None = None, reason: str | None = None) -> None:
        self.wrong = [] if pointer is None else [(pointer, reason or message)]
        super().__init__(message)


class PlacedError(ResponseError):
    """`cause`, an error of the library, at a JSON pointer; `detail` replaces that of the table."""

    def __init__(self, cause: TokenizerCoreError, pointer: str, detail: str | None = None) -> None:
        self.cause, self.pointer, self.detail = cause, pointer, detail
        super().__init__(str(cause))


class InvalidFieldError(ResponseError):
    """A field has a value that does not fit the rest of the request, or the tokenizer."""

    code = "invalid_request"

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{pointer}: {reason}" if pointer else reason, pointer, reason)


class UnknownTokenError(ResponseError):
    """The vocabulary has no token of an id that the path or the request names."""

    code = "unknown_token_id"


class NotUtf8Error(ResponseError):
    """Ids decode to bytes that are not UTF-8."""

    code = "not_utf8"

    def __init__(self, pointer: str) -> None:
        reason = 'the bytes of these ids are not UTF-8; decode them with "errors": "replace"'
        super().__init__(f"{pointer}: {reason}.", pointer, reason)


def refused_text(error: ValueError, pointer: str) -> Exception:
    """What to raise for `error`, with which the tokenizer refused the text at `pointer`: it
    contains a forbidden special token, or gives a special id as plain text. Any other error is
    returned unchanged.
    """
    if isinstance(error, SpecialTokenForbiddenError | SpecialTokenReachedError):
        return PlacedError(error, pointer)
    return error
