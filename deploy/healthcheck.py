#!/usr/bin/env python3
"""Exit with 0 if the service of this container responds at /livez, over TCP or its Unix socket."""

import http.client
import os
import socket
import sys

SECONDS = 4

host = os.environ.get("TOKENIZER_HOST", "")
connection = http.client.HTTPConnection(
    "127.0.0.1", int(os.environ.get("TOKENIZER_PORT", "8000")), timeout=SECONDS
)
if host.startswith("unix:"):
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(SECONDS)
    connection.sock.connect(host.removeprefix("unix:"))
connection.request("GET", "/livez")
sys.exit(connection.getresponse().status != 200)
