"""The connections of a web server of ours: how many are open at a time, and how long each may take.

aiohttp limits neither. Its time-outs are about idle connections only: a client that never ends its headers, or never reads, keeps
its connection for ever. Both limits belong to the transport, so aiohttp's own protocol is left as it is and only watched.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Connections:
    """The open connections of one server, all on its event loop.

    most: at a time. One more closes the one that has rested for longest, and only where none rests, the oldest. seconds: how long
    one may last (called once for each), whatever its client does; ``answering`` gives it as many more.
    """

    def __init__(self, *, most: int, seconds: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._ends: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        """The open connections, in the order of their last whole request, or of their beginning where none came yet."""
        self._answering: set[asyncio.BaseTransport] = set()

    def watched(self, http: asyncio.Protocol) -> asyncio.Protocol:
        """The protocol of a new connection, watched."""
        return _Watched(http, self)

    @contextmanager
    def answering(self, transport: Any) -> Iterator[None]:
        """Within the block, a whole request is being answered. The connection's time begins anew. transport: of the request; None
        where its client has gone."""
        if transport not in self._ends:
            yield
            return
        self._begin(transport)
        self._answering.add(transport)
        try:
            yield
        finally:
            self._answering.discard(transport)

    def close(self) -> None:
        """Cut all of them off."""
        for transport in list(self._ends):
            self._cut(transport)

    def opened(self, transport: asyncio.Transport) -> None:
        """A new one, for which another may have to go."""
        while len(self._ends) >= self._most:
            self._cut(next((one for one in self._ends if not self._busy(one)), next(iter(self._ends))))
        self._begin(transport)

    def lost(self, transport: asyncio.Transport | None) -> None:
        """Forgets a connection that has ended by itself."""
        if transport in self._ends:
            self._ends.pop(transport).cancel()

    def _begin(self, transport: asyncio.Transport) -> None:
        self.lost(transport)
        self._ends[transport] = asyncio.get_running_loop().call_later(self._seconds(), self._cut, transport)

    def _busy(self, transport: asyncio.Transport) -> bool:
        """Whether a whole request is being answered, or its client has still to read the answer."""
        return transport in self._answering or transport.get_write_buffer_size() > 0

    def _cut(self, transport: asyncio.Transport) -> None:
        self.lost(transport)
        transport.abort()


class _Watched(asyncio.Protocol):
    """One connection of aiohttp's, among those that are open."""

    def __init__(self, http: asyncio.Protocol, connections: Connections) -> None:
        self._http = http
        self._connections = connections
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connections.opened(transport)
        self._http.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.lost(self._transport)
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()
