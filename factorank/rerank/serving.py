"""The process of a service: it listens, computes on all cores but one, and loses no request at a stop.

A stop has three steps. Connections that wait to be accepted are accepted, and the listening socket is closed.
Open connections are read on, and each answer says that its connection closes. Connections on which nothing
more comes are closed.
"""

import asyncio
import gc
import os
import socket
from typing import Any

import torch
import uvicorn

from factorank.rerank.ranker import Ranker

QUIET = 1.0
"""Seconds without a request after which a stop closes the connections that are still open."""
LONGEST_STOP = 30
"""Seconds after which a stop waits no longer."""
BACKLOG = 2048


class Closing:
    """An ASGI application whose answers close their connections once ``stopping`` is set."""

    def __init__(self, app: Any) -> None:
        self.app, self.stopping = app, False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if self.stopping and message["type"] == "http.response.start":
                message = message | {"headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self.app(scope, receive, sent if scope["type"] == "http" else send)


class Server(uvicorn.Server):
    """A server of an application that answers at a stop all that was sent to it."""

    def __init__(self, app: Any, quiet: float = QUIET) -> None:
        self.closing, self.quiet = Closing(app), quiet
        super().__init__(
            uvicorn.Config(self.closing, log_level="warning", timeout_graceful_shutdown=LONGEST_STOP)
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was sent, then end."""
        self.closing.stopping = True
        waiting = [each for listener in sockets or () for each in accepted(listener)]
        for server in self.servers:  # at once: what comes from here on is refused before it sends anything
            server.close()
        loop = asyncio.get_running_loop()
        for each in waiting:
            await loop.connect_accepted_socket(self._protocol, each)
        await asyncio.sleep(0.05)  # asyncio may still be making those that it has accepted itself
        state, until = self.server_state, loop.time() + LONGEST_STOP
        seen, since = state.total_requests, loop.time()
        while state.connections and not self.force_exit and loop.time() < until:
            if state.tasks or state.total_requests != seen:
                seen, since = state.total_requests, loop.time()
            elif loop.time() - since >= self.quiet:
                break
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        kind: Any = self.config.http_protocol_class
        made: asyncio.Protocol = kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


def accepted(listener: socket.socket) -> list[socket.socket]:
    """The connections that wait to be accepted; the listening socket does not block."""
    connections = []
    while True:
        try:
            connections.append(listener.accept()[0])
        except BlockingIOError:
            return connections


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at each address of a host; their connections send small packets at once."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        listener = socket.socket(family, kind, protocol)
        listeners.append(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    return listeners


def settle(ranker: Ranker) -> None:
    """Do before the first request what others would wait for.

    One request is answered, which compiles what is compiled. What is in memory now stays, so the garbage
    collector leaves it out: looking through the objects of torch stopped all requests for .14 s at a time.
    """
    ranker.rerank(ranker.catalogue.ids[: ranker.model.n])
    gc.collect()
    gc.freeze()


def compute_threads() -> int:
    """Threads of the computation: all cores but one, which reads and writes; OMP_NUM_THREADS where set."""
    if os.environ.get("OMP_NUM_THREADS"):
        return torch.get_num_threads()
    return max(1, torch.get_num_threads() - 1)
