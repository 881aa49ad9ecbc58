"""Work for clients that have left ends on a real server, and does not delay other requests."""

import json
import socket
import struct
import time

import httpx
import pytest

from tests.integration.running_server import RunningServer
from tests.integration.server_watch import wait_for_in_flight

# About 4 s of work each, measured on two cores.
DEAR = {"text": "qxz~^" * 3000, "max_tokens": 1500, "overlap_tokens": 1499}
MAX_SECONDS = 15.0  # far more than an answer takes, far less than the work of twelve


@pytest.mark.row(16)
def test_a_request_does_not_wait_for_work_of_clients_that_left(server: RunningServer) -> None:
    body = json.dumps(DEAR).encode()
    head = (
        b"POST /chunk HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    for _ in range(12):
        with socket.create_connection((server.host, server.port), timeout=60) as connection:
            connection.sendall(head + body)
            time.sleep(0.05)
            # Closing resets the connection.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    started = time.monotonic()
    response = httpx.post(f"{server.url}/encode", json={"text": "low " * 2000}, timeout=120)
    assert response.status_code == 200
    assert time.monotonic() - started < MAX_SECONDS
    wait_for_in_flight(server, 1)
    assert "Traceback" not in server.log.read_text()
