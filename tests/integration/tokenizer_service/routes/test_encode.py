"""/encode on a real server: the event loop stays free, and lost clients free their place."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

PROBE = """
import select, socket, sys

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
print("ready", flush=True)
answers = 0
while not select.select([sys.stdin], [], [], 0.005)[0]:
    connection.sendall(b"GET /livez HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    answer = b""
    while b"}" not in answer:
        answer += connection.recv(4096)
    assert b" 200 " in answer
    answers += 1
print(answers)
"""
"""Asks for the health of the server without a pause, from another process."""


@pytest.mark.row(22)
def test_health_answers_while_large_texts_are_encoded(server):
    n_texts = 3
    body = json.dumps({"text": "the quick brown fox 12345 " * 150_000}).encode()
    with subprocess.Popen(
        [sys.executable, "-c", PROBE, str(server.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as probe:
        assert probe.stdout is not None
        assert probe.stdin is not None
        assert probe.stdout.readline() == "ready\n"

        def post(_):
            url, headers = f"{server.url}/encode", {"Content-Type": "application/json"}
            return httpx.post(url, content=body, headers=headers, timeout=200).status_code

        with ThreadPoolExecutor(n_texts) as threads:
            statuses = list(threads.map(post, range(n_texts)))
        probe.stdin.close()
        answers = int(probe.stdout.readline())
    assert statuses == [200] * n_texts
    # A loop that a text blocks answers at most once before, between and after the texts.
    assert answers > 2 * n_texts + 2
