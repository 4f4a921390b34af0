"""Kept-alive connections, and what is known of a request that ended on one without an answer.

Law: a request was not read where the kernel says so: the server had closed the idle connection when we
came to write, or had acknowledged no byte of the request when it closed (who closes first and reads later
answers no more). Such a request was never sent. Whatever else ends without an answer may have been worked on.
Where the kernel tells nothing (no Linux, a reset below TLS) nothing is known.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    from aiohttp.client import ClientTimeout
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

TCP_INFO = getattr(socket, "TCP_INFO", None)
ACKED_AT = 120  # of tcpi_bytes_acked in struct tcp_info
OPEN = 1  # tcpi_state, its first byte: TCP_ESTABLISHED; any other and the server has closed, or it broke


class Handler(ResponseHandler):
    """A connection that remembers how many bytes were acknowledged when the server's end of it closed."""

    acked_at_end: int | None = None
    given = False  # for a request, before

    def eof_received(self) -> None:
        self._note_end()
        super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._note_end()
        super().connection_lost(exc)

    def _note_end(self) -> None:
        if self.acked_at_end is None and (seen := _seen(self.transport)) is not None:
            self.acked_at_end = seen[1]


@dataclass
class Sending:
    """One request on its way. `anew`: only a new connection will do."""

    anew: bool = False
    _on: Handler | None = None  # the kept-alive connection that it went out on
    _acked: int = 0  # of it, before

    def begin_anew(self) -> None:
        """It goes out on a new connection, or on none if there is no server to connect to any more."""
        self.anew, self._on = True, None

    def goes_out_on(self, handler: Handler | None, acked: int = 0) -> None:
        self._on, self._acked = handler, acked

    async def unread(self) -> bool:
        """Whether the server, which has closed the connection, is known not to have read the request."""
        if self._on is not None and self._on.acked_at_end is None:
            await asyncio.sleep(0)  # its end is on the way
        return self._on is not None and self._on.acked_at_end == self._acked


SENDING: ContextVar[Sending | None] = ContextVar("sending", default=None)


class Connector(aiohttp.TCPConnector):
    """Connections for what `SENDING` names; a kept-alive one that the server has closed is never given."""

    def __init__(self) -> None:
        super().__init__(limit=0)
        self._factory: partial[Any] = partial(Handler, loop=self._loop)

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        sending = SENDING.get()
        while True:
            connection = await super().connect(req, traces, timeout)
            transport, handler = connection.transport, connection.protocol
            if sending is None or not isinstance(handler, Handler):
                return connection
            if not handler.given:
                handler.given = True
                sending.goes_out_on(None)
                return connection
            seen = _seen(transport)
            if not sending.anew and (seen is None or seen[0] == OPEN):
                sending.goes_out_on(None if seen is None else handler, 0 if seen is None else seen[1])
                return connection
            connection.close()


def _seen(transport: asyncio.BaseTransport | None) -> tuple[int, int] | None:
    """(state, bytes that the other end has acknowledged) of a connection; None where they are not told."""
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or TCP_INFO is None:
        return None
    try:
        told = sock.getsockopt(socket.IPPROTO_TCP, TCP_INFO, ACKED_AT + 8)
    except OSError:
        return None
    if len(told) < ACKED_AT + 8:
        return None
    return told[0], struct.unpack_from("@Q", told, ACKED_AT)[0]
