"""The state of a running server, seen from outside: its memory, its requests in progress."""

from __future__ import annotations

import time

import httpx
import psutil

from tests.integration.running_server import RunningServer


def resident_bytes(server: RunningServer) -> int:
    rss: int = psutil.Process(server.process.pid).memory_info().rss
    return rss


PATIENCE_SECONDS = 5.0
"""Row 16 frees a place in less than one second. Other processes may lengthen that; the next
deadline of the service itself is ten seconds."""


def wait_for_in_flight(server: RunningServer, wanted: int) -> None:
    """Requests in progress, including this one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        text = httpx.get(f"{server.url}/metrics", timeout=30).text
        in_flight = float(text.split("\ntokenizer_inflight ")[1].split()[0])
        if in_flight == wanted:
            return
        assert time.monotonic() < deadline, in_flight
        time.sleep(0.02)
