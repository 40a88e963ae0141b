"""Accepts connections, counts them by address from then on, and bounds the time of their handshakes.

accepted ──its address has its share already──> closed; counted, and logged once a minute
    └── TLS handshake, HANDSHAKE_S ──> the protocol, which bounds the time of the first request
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from stoker.control.auth.connection_shares import ConnectionShares

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
SHUTDOWN_S = 5.0
"""How long the other side may take to say that it closes TLS, too."""

LOGGED_S = 60.0
FULL_S = 0.2
"""A pause after an accept that failed, as the process has no file left for it."""

Make = Callable[[Callable[[], None]], asyncio.Protocol]
"""Makes the protocol of a connection. It calls what it is given once the connection is lost."""


class Arrivals:
    """The arriving connections of a listener, accepted from now on. `stop` must be called; connections that
    are made by then live on."""

    def __init__(
        self, listener: socket.socket, make: Make, shares: ConnectionShares, tls: ssl.SSLContext | None
    ) -> None:
        listener.setblocking(False)
        self._listener, self._make, self._shares = listener, make, shares
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._turned_away = 0
        self._logged_at = float("-inf")
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False
        self._listen()

    def close(self) -> None:
        """Accepts no more. Handshakes go on; what was not accepted waits for another process that holds the
        same socket. May be called again, when the listener is closed."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()

    async def stop(self) -> None:
        self.close()
        for task in self._handshakes:
            task.cancel()
        if self._handshakes:
            await asyncio.wait(self._handshakes)

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Accepts one connection, at once: a cancelled wait for it could lose one that was accepted. Those
        that are ready one after the other do not hold up the loop."""
        try:
            accepted, peer = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._note(f"cannot be accepted: {error.strerror}")
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(FULL_S, self._listen)
            return
        accepted.setblocking(False)
        address = str(peer[0])
        if self._shares.enter(address):
            task = asyncio.create_task(self._connect(accepted, address), name="a connection's handshake")
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)
        else:
            accepted.close()
            self._note(f"of {address} are too many")

    async def _connect(self, accepted: socket.socket, address: str) -> None:
        left, made = False, False

        def leave() -> None:
            nonlocal left
            if not left:
                self._shares.leave(address)
            left = True

        try:
            timeouts = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": SHUTDOWN_S}
            await self._loop.connect_accepted_socket(
                lambda: self._make(leave), accepted, ssl=self._tls, **(timeouts if self._tls else {})
            )
            made = True
        except OSError:  # as ssl.SSLError is: no handshake, or none in time
            pass
        finally:
            if not made:
                accepted.close()
                leave()

    def _note(self, why: str) -> None:
        self._turned_away += 1
        if (now := self._loop.time()) - self._logged_at >= LOGGED_S:
            log.warning("connections refused: %d; the last ones %s", self._turned_away, why)
            self._turned_away, self._logged_at = 0, now
