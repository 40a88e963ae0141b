"""The gRPC server that agents connect to: each call of `Session` is one stream, handed to one handler.

    serve --- call ---> handle(stream, peer) ---returns, or ends the stream---> what it sent is written,
                 \\                                                             the call ends
                  \\--- connection lost ---> receive raises StreamEnded; the handler ends by itself

The handler is a task of the server's, not the call's own: gRPC cancels the call when a connection is lost,
and a handler in the middle of a commit must not be cancelled for that. `stop` awaits every handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from stoker.wire import codec
from stoker.wire.codec import Decoder, JoiningDecoder
from stoker.wire.duplex import BOX_MAX, DuplexStream
from stoker.wire.fragments import MESSAGE_MAX
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted
from stoker.wire.streams import ControlLogs, ControlStream, StreamEnded

log = logging.getLogger(__name__)

OPTIONS: list[tuple[str, int]] = [
    ("grpc.so_reuseport", 0),  # a second control on the port is an error, not a lottery
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_receive_message_length", MESSAGE_MAX),
]

Handle = Callable[[ControlStream, str], Coroutine[Any, Any, None]]
HandleLogs = Callable[[ControlLogs, str], Coroutine[Any, Any, None]]
In = TypeVar("In")
Out = TypeVar("Out", bound=FromControl | LogWanted)

LOGS_MAX = 256 * 1024
"""Bytes of log lines that wait to be looked at; past this, the stream of logs is not read."""


class NotLoopback(Exception):
    """Without TLS only this machine may connect; the text says what to do."""


class CannotListen(Exception):
    """The address cannot be bound; the text says which."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. With `client_ca`, an agent must show a certificate that it signed."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class _CallStream(DuplexStream[In, Out]):
    def __init__(self, decoder: Decoder[In], context: Any, limit: int = BOX_MAX) -> None:
        super().__init__(decoder, self._read_call, self._write_call, limit)
        self._context = context

    async def _read_call(self) -> bytes | None:
        try:
            data = await self._context.read()
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            raise StreamEnded(f"the connection to the agent broke: {error}") from None
        return None if data is grpc.aio.EOF else data

    async def _write_call(self, data: bytes) -> None:
        try:
            await self._context.write(data)
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            raise StreamEnded(f"the connection to the agent broke: {error}") from None


class GrpcControlStream(_CallStream[FromAgent, FromControl]):
    """Of a session."""


class GrpcControlLogs(_CallStream[LogLines, LogWanted]):
    """Of the logs beside one."""


class GrpcServer:
    """Made by `serve`. `port` is the one in force, also where 0 was asked for."""

    def __init__(
        self, server: grpc.aio.Server, handle: Handle, handle_logs: HandleLogs | None = None
    ) -> None:
        self.port = 0
        self._server = server
        self._handle = handle
        self._handle_logs = handle_logs
        self._streams: dict[asyncio.Task[None], GrpcControlStream | GrpcControlLogs] = {}
        self._stopping = False

    async def stop(self, grace: float = 5.0) -> None:
        """Ends every stream with a word; a handler still there after `grace` seconds is cancelled."""
        self._stopping = True
        handlers = list(self._streams)
        for stream in list(self._streams.values()):
            stream.end("control is stopping")
        if handlers:
            await asyncio.wait(handlers, timeout=grace)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await self._server.stop(grace)

    async def session(self, _requests: object, context: Any) -> None:
        """One call. It ends when its stream is over and written; gRPC cancels it when the peer is lost."""
        stream = GrpcControlStream(JoiningDecoder(FromAgent), context)
        await self._call(stream, self._handle(stream, context.peer()), context)

    async def logs(self, _requests: object, context: Any) -> None:
        """The same for the logs of a session."""
        assert self._handle_logs is not None
        stream = GrpcControlLogs(Decoder(LogLines), context, LOGS_MAX)
        await self._call(stream, self._handle_logs(stream, context.peer()), context)

    async def _call(
        self, stream: GrpcControlStream | GrpcControlLogs, handling: Coroutine[Any, Any, None], context: Any
    ) -> None:
        handler = asyncio.create_task(self._handled(stream, handling, context.peer()))
        self._streams[handler] = stream
        handler.add_done_callback(self._streams.pop)
        try:
            await context.send_initial_metadata(())  # the agent's `connect` waits for it
            await stream.run()
            context.set_trailing_metadata(((codec.REASON, (stream.reason or "").encode("utf-8", "replace")),))
        except asyncio.CancelledError:
            stream.lost("the connection to the agent was lost")
            raise

    async def _handled(
        self, stream: GrpcControlStream | GrpcControlLogs, handling: Coroutine[Any, Any, None], peer: str
    ) -> None:
        if self._stopping:
            handling.close()
            return stream.end("control is stopping")
        try:
            await handling
        except StreamEnded:
            pass
        except Exception:
            log.exception("the session of %s failed", peer)
            stream.end("control failed in this session")
        finally:
            stream.end()


async def serve(
    host: str, port: int, handle: Handle, tls: TlsFiles | None, logs: HandleLogs | None = None
) -> GrpcServer:
    """Listens. Without `logs`, no node's logs are followed. Raises NotLoopback, CannotListen, and OSError for
    TLS files that cannot be read."""
    if tls is None and not _is_loopback(host):
        raise NotLoopback(
            f"agents would connect to {host} in the clear: give TLS files, or listen on 127.0.0.1"
        )
    server = grpc.aio.server(options=OPTIONS)
    made = GrpcServer(server, handle, logs)
    calls = {codec.SESSION: made.session} | ({codec.LOGS: made.logs} if logs else {})
    methods: dict[str, Any] = {
        path.rpartition("/")[2]: grpc.stream_stream_rpc_method_handler(call) for path, call in calls.items()
    }
    service = codec.SESSION.split("/")[1]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    made.port = _bind(server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", tls)
    await server.start()
    return made


def _bind(server: grpc.aio.Server, address: str, tls: TlsFiles | None) -> int:
    with contextlib.suppress(RuntimeError):
        bound = (
            server.add_insecure_port(address)
            if tls is None
            else server.add_secure_port(address, _credentials(tls))
        )
        if bound:
            return bound
    raise CannotListen(
        f"cannot listen on {address}: it is in use, not an address of this host, or the TLS files are no pair"
    )


def _credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    pair = (tls.key.read_bytes(), tls.cert.read_bytes())
    client_ca = tls.client_ca.read_bytes() if tls.client_ca else None
    return grpc.ssl_server_credentials([pair], client_ca, client_ca is not None)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
