"""Clients without a server: over a connection of this process, and in messages of ASGI alone."""

import asyncio
import socket

from uvicorn.server import ServerState

from tokenizer_service.http.protocol import GuardedHttpProtocol


async def open_protocol(config, state, server_state=None):
    """A connection to the app of `config`, and the client's end of it, which does not block."""
    loop = asyncio.get_running_loop()
    protocol = GuardedHttpProtocol(config, server_state or ServerState(), state, loop)
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    await loop.connect_accepted_socket(lambda: protocol, ours)
    return protocol, theirs


class Client:
    """Sends these chunks, each after `delay`, and then ends the body, leaves, or is silent; takes
    `patience` messages, then none."""

    def __init__(self, *chunks, then="silence", delay=0, patience=1000):
        self.chunks = list(chunks)
        self.then, self.delay, self.patience = then, delay, patience
        self.taken = []

    async def receive(self):
        await asyncio.sleep(self.delay)
        if self.chunks:
            body = self.chunks.pop(0)
            is_last = not self.chunks and self.then == "end"
            return {"type": "http.request", "body": body, "more_body": not is_last}
        if self.then == "silence":
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(self, message):
        if len(self.taken) >= self.patience:
            await asyncio.sleep(60)
        self.taken.append(message)

    def ask(self, app):
        """Run a request to `app`; the body of the response."""
        scope = {"type": "http", "method": "POST", "headers": []}
        asyncio.run(app(scope, self.receive, self.send))
        return b"".join(message["body"] for message in self.taken[1:])
