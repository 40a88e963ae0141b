"""Runs the application under uvicorn, on the running event loop, until it is stopped.

It handles no signals: the owner of the process decides when to stop. uvicorn runs in one task that the
`HttpServer` owns; `stop` lets answers under way go out for a while, answers held requests with an error,
and returns when nothing of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeAlias, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stoker.control.api.answers import RECEIVED_TRAILERS, SEND_TRAILERS, WRITTEN, Headers
from stoker.control.api.forwarded import Proxies
from stoker.control.auth.tls import NotLoopback, TlsFiles
from stoker.outbound.refused_addresses import is_loopback

BACKLOG = 2_048
GRACE_S = 2
HEAD_BYTES = 64 * 1024
"""The most that the head of a request may take."""

TRAILER_BYTES = 1024 * 1024
"""The most that may come of a chunked body without a byte of it: its trailers, for the greater part."""

TRAILERS = 100
"""How many fields may come after a body."""

HEAD_S = 30.0
"""The time in which a head must be complete; the first one counts from its connection on."""

KEEP_ALIVE_S = 75
"""Longer than any known client's pause between polls: a reused connection must not be just closing."""


UpgradeProtocol: TypeAlias = Callable[..., asyncio.StreamReaderProtocol]
"""Called as uvicorn makes its own protocols: with `config`, `server_state` and `app_state`."""


class CannotListen(Exception):
    """The address could not be bound; the text says which and why."""


class _Connection(HttpToolsProtocol):
    """Tells an application whether the socket took what it sent (`WRITTEN` in the state of its requests),
    keeps trailers apart from headers (`RECEIVED_TRAILERS`, `SEND_TRAILERS`), and limits the size and the time
    of a request's head, which uvicorn does not."""

    _cut = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {
            **self.app_state,
            WRITTEN: self._wait_written,
            SEND_TRAILERS: self._send_trailers,
        }
        self._head_timer = self.loop.call_later(HEAD_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        of_body = before is not None and before.more_body
        size_before = len(before.body) if of_body else 0
        super().data_received(data)
        if of_body or self.cycle is not before or self.transport.get_protocol() is not self:
            if self._head_timer is not None:
                self._head_is_complete(self._head_timer)
            if of_body and len(before.body) == size_before and self.headers is not self.scope["headers"]:
                self._limit_trailers(len(data))
        elif not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.send_400_response(f"The head of the request is larger than {HEAD_BYTES} bytes.")
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _head_is_complete(self, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._head_bytes, self._head_timer = 0, None

    def on_chunk_header(self) -> None:
        """A chunk begins, perhaps the empty one, after which trailers come. The parser calls them headers,
        and uvicorn adds them to what `headers` is now."""
        self._head_bytes = 0
        if self.headers is self.scope["headers"]:
            self.headers = self.scope["state"][RECEIVED_TRAILERS] = []

    def _should_upgrade(self) -> bool:
        """By the headers alone."""
        trailers, self.headers = self.headers, list(self.scope["headers"])
        try:
            return super()._should_upgrade()
        finally:
            self.headers = trailers

    def _limit_trailers(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > TRAILER_BYTES or len(self.headers) > TRAILERS:
            self.transport.close()

    def _send_trailers(self, scope: Scope, trailers: Headers) -> None:
        """Ends a chunked response with them; an empty last piece must follow. They are dropped where the body
        is not chunked, and where its caller has sent the next request already."""
        cycle = self.cycle
        if (
            cycle.scope is scope
            and cycle.chunked_encoding
            and not cycle.disconnected
            and scope["method"] != "HEAD"
        ):
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in trailers)
            self.transport.write(b"0\r\n" + lines + b"\r\n")
            cycle.chunked_encoding, cycle.expected_content_length = False, 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._cut = self.flow.write_paused
        if self._head_timer is not None:
            self._head_is_complete(self._head_timer)
        super().connection_lost(exc)

    async def _wait_written(self) -> bool:
        """Waits until the socket has taken all that was sent; False where the connection broke before."""
        self.transport.set_write_buffer_limits(high=0)  # now paused while a single byte is left
        await self.flow.drain()
        self.transport.set_write_buffer_limits()
        return not self._cut


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
    """Without signal handlers, and woken instead of looking ten times a second whether it shall end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopping = asyncio.Event()
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

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

    async def wait(self) -> None:
        """Returns when the server has ended; raises what ended it."""
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        """May be called twice."""
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
) -> HttpServer:
    """Listens and accepts when it returns. Port 0 takes a free one, to be read from `port`.

    `proxies` are those in front: they end TLS, and their X-Forwarded headers name the caller.
    `upgrade` makes what a connection is handed to when its caller asks for a WebSocket; without it, such a
    request is answered like any other.
    Raises NotLoopback, CannotListen and TlsFilesUnusable.
    """
    if tls is None and proxies is None and not is_loopback(host):
        raise NotLoopback(
            f"callers would send their keys to {host} in the clear: give --tls-cert and --tls-key, say"
            " --behind-proxy where a proxy in front of this port ends TLS, or listen on 127.0.0.1"
        )
    context = None if tls is None else tls.context()
    config = uvicorn.Config(
        app if proxies is None else _BehindProxies(app, proxies),
        http=_Connection,
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
    server = _Uvicorn(config)
    running = HttpServer(server, _listen(host, port))
    started = asyncio.create_task(server.ready.wait(), name="http server starting")
    await asyncio.wait((started, running._task), return_when=asyncio.FIRST_COMPLETED)
    if not started.done():
        started.cancel()
        await running.wait()
    return running


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
