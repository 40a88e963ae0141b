"""A gateway port of the node: connections from control to the http workers of this node, each with proof.

    control --CONNECT worker, with this port's token--> here --> agent.workers.http_servers.relay

- A caller without this port's token gets 401 and no connection. The token is drawn at each start, and is sent
  only to control, in Hello.
- On loopback it uses no TLS, for a control on the same host. For one on another host it uses TLS,
  with a certificate that is made at each start and sent with the token: control recognises the node by it.
- A connection has `relay.HEAD_S` for its TLS handshake and its proof together. Of those without proof there
  are few of each address; a newcomer takes the place of the oldest (`agent.workers.http_servers.unproven`).
- A control that vanished without a word is found by TCP's keepalive.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from stoker.agent.alarm import loop_time
from stoker.agent.workers.http_servers.relay import COPY_BYTES, HEAD_S, Pair, Relay, Unproven
from stoker.agent.workers.http_servers.unproven import Waiting
from stoker.outbound.keepalive import find_vanished

log = logging.getLogger(__name__)

BACKLOG = 1024
AGAIN_S = 1.0
LOGGED_S = 60.0

SHUTDOWN_S = 1.0
"""How long the other side may take to end its TLS."""


class GatewayPort:
    """The port at which control reaches the http workers of this host. `open` listens. `port` is the one in
    force, also where 0 was requested. `refused` counts the connections that brought no proof."""

    def __init__(self, relay: Relay, context: ssl.SSLContext | None = None) -> None:
        self.token = secrets.token_urlsafe(32)
        self.port = 0
        self.refused = 0
        self._relay = relay
        self._context = context
        self._unproven = Waiting[socket.socket]()
        self._logged = float("-inf")
        self._listening: socket.socket
        self._accepting: asyncio.Task[None]

    async def open(self, host: str, port: int) -> None:
        """Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        self._accepting = asyncio.create_task(self._accept(), name="gateway port")

    async def close(self) -> None:
        """Accepts nothing more. What it accepted is the relay's."""
        self._accepting.cancel()
        await asyncio.wait((self._accepting,))
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, peer = await loop.sock_accept(self._listening)
            except OSError as error:  # too many open files: others may close some
                log.warning("the gateway port accepts nothing for a moment: %s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            if (gone := self._unproven.add(connected, peer[0])) is not None:
                with suppress(OSError):
                    gone.shutdown(socket.SHUT_RDWR)
                self._refuse("it had not brought its proof when others came")
            self._relay.begin(self._serve(connected))

    async def _serve(self, connected: socket.socket) -> None:
        """Serves a connection, which counts as one without proof until it brings that, or its socket is
        closed."""
        try:
            async with asyncio.timeout(HEAD_S) as deadline:

                def proven() -> None:
                    deadline.reschedule(None)
                    self._unproven.proven(connected)

                await self._relayed(connected, proven)
        except OSError as error:
            if connected in self._unproven:
                self._refuse(str(error) or f"it brought no proof within {HEAD_S:g} s")
        finally:
            self._unproven.remove(connected)

    async def _relayed(self, connected: socket.socket, proven: Callable[[], None]) -> None:
        reader, writer = await self._opened(connected)
        try:
            await self._relay.serve(reader, writer, self.token, proven)
        except Unproven:
            self._refuse("it has not this node's token")
        except BaseException:
            writer.transport.abort()
            raise
        if connected in self._unproven:
            with suppress(OSError):
                await writer.wait_closed()

    async def _opened(self, connected: socket.socket) -> Pair:
        """Raises OSError, as which ssl's errors count."""
        find_vanished(connected)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(COPY_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        shaking, shutdown = (None, None) if self._context is None else (HEAD_S, SHUTDOWN_S)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connected,
            ssl=self._context,
            ssl_handshake_timeout=shaking,
            ssl_shutdown_timeout=shutdown,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _refuse(self, why: str) -> None:
        self.refused += 1
        if loop_time() >= self._logged + LOGGED_S:
            self._logged = loop_time()
            log.warning("%d connections to the gateway port refused so far, the last: %s", self.refused, why)
