"""Runs the application under uvicorn, on the running event loop, until it is stopped.

It handles no signals: the owner of the process decides when to stop. uvicorn runs in one task that the
`HttpServer` owns; `stop` lets answers under way go out for a while, answers held requests with an error,
and returns when nothing of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeAlias, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker.control.auth.connection_shares import ConnectionShares, connections_of_a_door
from stoker.control.config.tls import NotLoopback, TlsFiles
from stoker.control.http.server.arrivals import Arrivals
from stoker.control.http.server.connection import Connection
from stoker.control.http.server.forwarded import Proxies
from stoker.control.http.server.listener import BACKLOG, listen
from stoker.outbound.refused_addresses import is_loopback

GRACE_S = 2
KEEP_ALIVE_S = 75
"""Longer than any known client's pause between polls: a reused connection must not be just closing."""


UpgradeProtocol: TypeAlias = Callable[..., asyncio.StreamReaderProtocol]
"""Called as uvicorn makes its own protocols: with `config`, `server_state` and `app_state`."""


class _BehindProxies:
    """Gives the application the caller and the scheme that the proxies in front report."""

    def __init__(self, app: ASGIApp, proxies: Proxies) -> None:
        self._app, self._proxies = app, proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = (scope["client"] or ("", 0))[0]
        scope["client"] = (self._proxies.caller(scope["headers"], peer), 0)
        scope["scheme"] = self._proxies.scheme(scope["headers"], scope["scheme"])
        await self._app(scope, receive, send)


class _Uvicorn(uvicorn.Server):
    """Without signal handlers, with an accept of its own, and woken instead of looking ten times a second
    whether it shall end."""

    def __init__(self, config: uvicorn.Config, shares: ConnectionShares) -> None:
        super().__init__(config)
        self._shares = shares
        self.stopping = asyncio.Event()
        self.ready = asyncio.Event()
        self.empty = asyncio.Event()
        """Set when the last connection is lost, once none is accepted any more."""
        self._drains = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        self.servers = []
        self._arrivals = Arrivals(sockets[0], self._connection, self._shares, self.config.ssl)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._arrivals.stop()
        for one in list(self.server_state.connections):
            one.shutdown()  # idle ones end with the next turn of the loop
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)  # looks ten times a second
        for listener in sockets or ():
            listener.close()

    def drain(self) -> None:
        self._drains = True
        self._arrivals.close()
        for connection in self.server_state.connections:
            cast(Connection, connection).end_with_answer()
        self._look()

    def _connection(self, left: Callable[[], None]) -> Connection:
        def lost() -> None:
            left()
            self._look()

        return Connection(
            config=self.config,
            server_state=self.server_state,
            app_state={},
            left=lost,
            drains=lambda: self._drains,
        )

    def _look(self) -> None:
        if self._drains and not self._shares.taken:
            self.empty.set()

    async def main_loop(self) -> None:
        self.ready.set()
        while not self.stopping.is_set():
            await self.on_tick(0)  # sets the Date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.stopping.wait()


class HttpServer:
    """A running server; `async with` stops it at the end of the block."""

    def __init__(self, server: _Uvicorn, listener: socket.socket) -> None:
        self._server = server
        self._scheme = "https" if server.config.is_ssl else "http"
        self.host, self.port = listener.getsockname()[:2]
        self._task = asyncio.create_task(server.serve([listener]), name="http server")

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self._scheme}://{host}:{self.port}"

    def renew(self, tls: TlsFiles) -> None:
        """Shows the certificate that the files have now to new connections, if it serves with TLS. Raises
        TlsFilesUnusable."""
        if isinstance(context := self._server.config.ssl, ssl.SSLContext):
            tls.load_into(context)

    async def wait(self) -> None:
        """Returns when the server has ended; raises what ended it."""
        await asyncio.shield(self._task)

    def drain(self) -> None:
        """Accepts no more connections, and ends each with its next answer. What arrives from now on waits in
        the listener's queue: for the next process, if it holds the same listener."""
        self._server.drain()

    async def drained(self, within_s: float) -> None:
        """Waits until all connections have ended, or for `within_s`: an idle one, whose caller does not come
        back, is closed by `stop`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._server.empty.wait()

    async def stop(self) -> None:
        """Stops the server, and waits until it and the tasks of its connections have ended. May be called
        twice."""
        self._server.stopping.set()
        await self._task
        tasks = list(self._server.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def serve_http(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    tls: TlsFiles | None = None,
    proxies: Proxies | None = None,
    grace_s: int = GRACE_S,
    upgrade: UpgradeProtocol | None = None,
    listener: socket.socket | None = None,
) -> HttpServer:
    """Listens and accepts when it returns. Port 0 takes a free one, to be read from `port`. `listener` is
    taken in the place of `host` and `port`, and closed at the end.

    `proxies` are those in front: they end TLS, and their X-Forwarded headers name the caller.
    `upgrade` makes what a connection is handed to when its caller asks for a WebSocket; without it, such a
    request is answered like any other.
    Raises NotLoopback, CannotListen and TlsFilesUnusable.
    """
    if listener is not None:
        host, port = listener.getsockname()[:2]
    if tls is None and proxies is None and not is_loopback(host):
        raise NotLoopback(
            f"callers would send their keys to {host} in the clear: give --tls-cert and --tls-key, say"
            " --behind-proxy where a proxy in front of this port ends TLS, or listen on 127.0.0.1"
        )
    context = None if tls is None else tls.context()
    config = uvicorn.Config(
        app if proxies is None else _BehindProxies(app, proxies),
        ws="none" if upgrade is None else cast(type[asyncio.Protocol], upgrade),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace_s,
        backlog=BACKLOG,
    )
    shares = ConnectionShares(connections_of_a_door(), by_address=proxies is None)
    server = _Uvicorn(config, shares)
    running = HttpServer(server, listener or listen(host, port))
    started = asyncio.create_task(server.ready.wait(), name="http server starting")
    await asyncio.wait((started, running._task), return_when=asyncio.FIRST_COMPLETED)
    if not started.done():
        started.cancel()
        await running.wait()
    return running
