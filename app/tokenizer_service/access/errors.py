"""Errors of access: a key is missing, the process is overloaded, or a request exceeds a limit."""

from __future__ import annotations

from typing import ClassVar


class AccessError(Exception):
    """A request is not admitted. `code` is a stable word."""

    code: ClassVar[str]


class KeyRequiredError(AccessError):
    """The request carries no valid key; `accepted` says which keys the route takes. `is_wrong`: it
    carries another."""

    code = "key_required"

    def __init__(self, accepted: str, *, is_wrong: bool = False) -> None:
        self.accepted = accepted
        self.found = "The service does not know the key of this request. " if is_wrong else ""
        super().__init__(f"{accepted} is required")


class AdminKeyRequiredError(AccessError):
    """The request carries a read key, and the route needs an admin key."""

    code = "admin_key_required"


class WorkTooLongError(AccessError):
    """A request worked for longer than `limit` seconds."""

    code = "work_too_long"

    def __init__(self, limit: float) -> None:
        self.limit = limit
        super().__init__(f"the work took longer than {limit:g} seconds")


class OverloadedError(AccessError):
    """The requests in progress use all of a resource; `reason` is the rest of the message."""

    code = "overloaded"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the requests in progress {reason}")


class TooManyConnectionsError(AccessError):
    """The process holds `limit` connections, and accepts no other."""

    code = "too_many_connections"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"{limit} connections are open")


class ShuttingDownError(AccessError):
    """The request did not finish within the grace period after SIGTERM."""

    code = "shutting_down"


class LimitError(AccessError):
    """`actual` of what a request holds or wants is more than `limit`; `wrong` lists JSON pointers
    into the request, each with the reason."""

    def __init__(
        self, limit: int, actual: int | None = None, *, pointer: str | None = None
    ) -> None:
        self.limit, self.actual = limit, actual
        self.wrong = [] if pointer is None else [(pointer, f"{actual} tokens")]
        super().__init__(f"{self.code}: {actual} is more than {limit}")


class BodyTooLargeError(LimitError):
    """The body has too many bytes."""

    code = "body_too_large"


class TooManyContainersError(LimitError):
    """The body has too many arrays and objects."""

    code = "batch_too_large"


class TooManyValuesError(LimitError):
    """The body has too many strings, arrays and objects."""

    code = "batch_too_large"


class LineTooLongError(LimitError):
    """Line `number` of a stream of ids, counted from 1, has too many bytes."""

    code = "line_too_long"

    def __init__(self, limit: int, number: int) -> None:
        self.number = number
        super().__init__(limit)


class TooManyTokensError(LimitError):
    """A text has more tokens than the request allows."""

    code = "too_many_tokens"


class TooManyDetailedTokensError(LimitError):
    """The request asks for more than the ids of too many tokens."""

    code = "too_many_detailed_tokens"


class DecodedTextTooLargeError(LimitError):
    """Ids decode to too many bytes of text."""

    code = "decoded_text_too_large"


class TooManyChunksError(LimitError):
    """A text has too many chunks."""

    code = "too_many_chunks"


class ChunksTooLargeError(LimitError):
    """Overlapping chunks would repeat too many bytes; `largest_overlap` tokens would fit."""

    code = "chunks_too_large"

    def __init__(self, limit: int, actual: int, largest_overlap: int) -> None:
        super().__init__(limit, actual)
        self.largest_overlap = largest_overlap
        reason = f"at most {largest_overlap} fits this text and max_tokens"
        self.wrong = [("/overlap_tokens", reason)]


class RequestsTooLargeError(LimitError):
    """The rendered requests of a batch, each with all fields, would have too many bytes."""

    code = "requests_too_large"
