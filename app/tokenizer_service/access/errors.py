"""Errors of access: a key is missing or insufficient, or the process is overloaded."""

from __future__ import annotations

from typing import ClassVar


class AccessError(Exception):
    """A request is not admitted. `code` is a stable word."""

    code: ClassVar[str]


class KeyRequiredError(AccessError):
    """The request carries no valid key; `accepted` says which keys the route takes."""

    code = "key_required"

    def __init__(self, accepted: str) -> None:
        self.accepted = accepted
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
