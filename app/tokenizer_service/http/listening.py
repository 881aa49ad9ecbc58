"""A serving process that listens only while its app does not stand by.

It imports little: a new process answers its supervisor after importing this module, and imports the
app afterwards.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.supervisors.multiprocess import Process

if TYPE_CHECKING:
    import socket


class _Server(uvicorn.Server):
    """uvicorn's server, which listens only while the app does not stand by.

    The processes of a service accept connections from one socket. One that cannot load what the
    others serve leaves them to the others.
    """

    servers: list[asyncio.Server]

    @property
    def is_listening(self) -> bool:
        """Whether it accepts connections."""
        return bool(self.servers)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._sockets = sockets or []
        await super().startup(sockets=[])  # starts the app, and listens nowhere
        await self._follow_app()

    async def on_tick(self, counter: int) -> bool:
        await self._follow_app()
        return await super().on_tick(counter)

    async def _follow_app(self) -> None:
        from tokenizer_service.http.connections import STATE_KEY

        stands_by = self.lifespan.state[STATE_KEY].stands_by()
        if stands_by and self.servers:
            for server in self.servers:
                server.close()
            self.servers = []
            for connection in list(self.server_state.connections):
                connection.shutdown()  # after its response
        elif not stands_by and not self.servers:
            loop = asyncio.get_running_loop()
            self.servers = [
                # Closing a server closes its socket.
                await loop.create_server(
                    self._make_protocol, sock=each.dup(), backlog=self.config.backlog
                )
                for each in self._sockets
            ]

    def _make_protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


class ServingProcess(Process):
    """One of several serving processes; one that stands by is not ready to replace another."""

    @functools.cached_property
    def server(self) -> _Server:
        """The server in the child process."""
        return _Server(self.config)

    def pong(self) -> None:
        """Answer the supervisor: whether this process takes requests."""
        self.child_conn.recv()
        self.child_conn.send(self.server.started and self.server.is_listening)
