"""EventReader: server-sent events, as this service sends them, out of bytes that come cut anywhere.

The format: html.spec.whatwg.org, server-sent events. Imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `id` is what Last-Event-ID says to have seen it."""

    id: str
    data: bytes


class EventReader:
    r"""Reads events; comments, and what comes before the first whole event, are left out.

    Example:
        >>> reader = EventReader()
        >>> reader.feed(b"retry: 2000\n\nid: 1f\nda"), reader.feed(b'ta: {}\n\n:\n\n')
        ([], [Event(id='1f', data=b'{}')])
    """

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Event]:
        """The events that are whole now."""
        self._held += data
        *blocks, rest = bytes(self._held).split(b"\n\n")
        self._held = bytearray(rest)
        return [event for event in map(_parse, blocks) if event is not None]


def _parse(block: bytes) -> Event | None:
    fields: dict[bytes, list[bytes]] = {}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        fields.setdefault(name, []).append(value.removeprefix(b" "))
    if b"data" not in fields:
        return None
    return Event(
        fields.get(b"id", [b""])[-1].decode("utf-8", "replace"), b"\n".join(fields[b"data"])
    )
