"""The gRPC server that agents connect to: each call of `Session` is one stream, handed to one handler.

    call --- token ---> handle(stream, peer, token) ---returns, or ends the stream---> what it sent is
         |         \\                                                       written, and the call ends
         |          \\--- connection lost ---> receive raises StreamEnded; the handler ends by itself
         \\--- it is none, or too many wait ---> the call ends; no message of it was read

A call brings its token in its metadata (control.nodes.unauthenticated). One that was admitted and has sent
nothing yet is one of UNSPOKEN_MAX at most, and its first message is small; the handler bounds the time that
it has for it.

The handler is a task of the server's, not the call's own: gRPC cancels the call when a connection is lost,
and a handler in the middle of a commit must not be cancelled for that. `stop` awaits every handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

from stoker.control.auth.connection_shares import connections_of_a_door
from stoker.control.config.tls import NotLoopback, TlsFiles
from stoker.control.errors import Unavailable
from stoker.control.nodes.unauthenticated import TurnedAway, UnauthenticatedCallers
from stoker.outbound.refused_addresses import is_loopback
from stoker.wire import codec
from stoker.wire.codec import Decoder
from stoker.wire.duplex import QUEUE_MAX_BYTES, DuplexStream
from stoker.wire.fragments import FIRST_MAX, MESSAGE_MAX, REPORTED_MAX
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted, TunnelPieces
from stoker.wire.streams import ControlLogs, ControlStream, StreamEnded, TunnelStream
from stoker.wire.tunnel.tunnel import STREAM_BYTES

if TYPE_CHECKING:  # it comes where the configuration has certificates of nodes
    from stoker.control.nodes.certifying import NodeCertificates

log = logging.getLogger(__name__)

WINDOW_BYTES = 64 * 1024
"""Bytes of one stream that are on their way, or lie unread."""

STREAMS_MAX = 6
"""Of one connection. A node needs one for its session, one for logs and one for its tunnel; those before them
may linger."""

METADATA_MAX = 8 * 1024

OPTIONS: list[tuple[str, int]] = [
    ("grpc.so_reuseport", 0),  # a second control on the port is an error, not a lottery
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    # What an unauthenticated caller sends is not read; these bound what of it is in buffers nevertheless.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.experimental.tcp_max_read_chunk_size", WINDOW_BYTES),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.max_metadata_size", METADATA_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_MAX),
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none: few bytes must not become many
    ("grpc.max_connection_idle_ms", 20_000),  # a connection without a call
    ("grpc.server_handshake_timeout_ms", 10_000),
]

Admit = Callable[[str], Awaitable[str | None]]
"""Returns why a caller with this token is refused, or None if it is admitted."""

Handle = Callable[[ControlStream, str, str], Coroutine[Any, Any, None]]
HandleLogs = Callable[[ControlLogs, str, str], Coroutine[Any, Any, None]]
HandleTunnel = Callable[[TunnelStream, str, str], Coroutine[Any, Any, None]]
In = TypeVar("In")
Out = TypeVar("Out", bound=FromControl | LogWanted | TunnelPieces)

UNSPOKEN_MAX = 256
"""Streams of callers that brought a token and have not sent their first message."""

LOGS_MAX = 256 * 1024
"""Bytes of log lines that wait to be handled; past this, the stream of logs is not read."""


class CannotListen(Exception):
    """The address cannot be bound; the text says which."""


class _CallStream(DuplexStream[In, Out]):
    def __init__(self, decoder: Decoder[In], context: Any, limit: int = QUEUE_MAX_BYTES) -> None:
        super().__init__(decoder, context.read, context.write, limit)

    def _why_lost(self, error: BaseException) -> str:
        if isinstance(error, grpc.aio.BaseError | asyncio.InvalidStateError):
            return f"the connection to the agent broke: {error}"
        return super()._why_lost(error)


class GrpcControlStream(_CallStream[FromAgent, FromControl]):
    """The stream of a session."""


class GrpcControlLogs(_CallStream[LogLines, LogWanted]):
    """The stream of a session's logs."""


class GrpcTunnel(_CallStream[TunnelPieces, TunnelPieces]):
    """The stream of a tunnel."""


OpenStream = GrpcControlStream | GrpcControlLogs | GrpcTunnel


class GrpcServer:
    """The server, made by `serve`. `port` is the one in force, also where 0 was requested."""

    def __init__(
        self,
        server: grpc.aio.Server,
        admit: Admit,
        handle: Handle,
        handle_logs: HandleLogs | None,
        handle_tunnel: HandleTunnel | None,
        certified: NodeCertificates | None = None,
    ) -> None:
        self.port = 0
        self.certificates: grpc.ServerCertificateConfiguration | None = None
        """Those that new connections are shown; None without TLS."""
        self._unauthenticated = UnauthenticatedCallers(admit)
        self._certified = certified
        self._server = server
        self._handle = handle
        self._handle_logs = handle_logs
        self._handle_tunnel = handle_tunnel
        self._streams: dict[asyncio.Task[None], OpenStream] = {}
        self._stopping = False

    def renew(self, tls: TlsFiles) -> None:
        """Shows the certificate that the files have now to new connections, if it serves with TLS. Raises
        TlsFilesUnusable."""
        if self.certificates is not None:
            self.certificates = _certificates(tls, self._certified)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Ends every stream with a message; a handler still there after `grace_s` is cancelled."""
        self._stopping = True
        handlers = list(self._streams)
        for stream in list(self._streams.values()):
            stream.end("control is stopping")
        if handlers:
            await asyncio.wait(handlers, timeout=grace_s)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await self._server.stop(grace_s)

    async def session(self, _requests: object, context: Any) -> None:
        """Serves one call. It ends when its stream is over and written; gRPC cancels it when the peer is
        lost."""
        token = await self._token(context)
        stream = GrpcControlStream(Decoder(FromAgent, REPORTED_MAX, FIRST_MAX), context)
        await self._call(stream, self._handle(stream, context.peer(), token), context)

    async def logs(self, _requests: object, context: Any) -> None:
        """Serves one call for the logs of a session."""
        assert self._handle_logs is not None
        token = await self._token(context)
        stream = GrpcControlLogs(Decoder(LogLines), context, LOGS_MAX)
        await self._call(stream, self._handle_logs(stream, context.peer(), token), context)

    async def tunnel(self, _requests: object, context: Any) -> None:
        """Serves one call for the tunnel of a session."""
        assert self._handle_tunnel is not None
        token = await self._token(context)
        stream = GrpcTunnel(Decoder(TunnelPieces), context, STREAM_BYTES)
        await self._call(stream, self._handle_tunnel(stream, context.peer(), token), context)

    async def _token(self, context: Any) -> str:
        """Returns the token of a caller that is admitted. For any other caller the call ends here."""
        brought = next((value for key, value in context.invocation_metadata() if key == codec.TOKEN), b"")
        try:
            refusal = await self._unauthenticated.admit(brought, context.peer())
            if refusal is None and sum(not s.spoken for s in self._streams.values()) >= UNSPOKEN_MAX:
                raise TurnedAway("too many callers who have said nothing yet: try again")
        except (TurnedAway, Unavailable) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        if refusal is not None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)
        token = str(brought, "utf-8", "surrogatepass")
        if self._certified is not None:
            shown = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
            if (refusal := self._certified.refusal(token, shown)) is not None:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
        return token

    async def _call(self, stream: OpenStream, handling: Coroutine[Any, Any, None], context: Any) -> None:
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

    async def _handled(self, stream: OpenStream, handling: Coroutine[Any, Any, None], peer: str) -> None:
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
    host: str,
    port: int,
    admit: Admit,
    handle: Handle,
    tls: TlsFiles | None,
    logs: HandleLogs | None = None,
    tunnel: HandleTunnel | None = None,
    certified: NodeCertificates | None = None,
) -> GrpcServer:
    """Listens. Without `logs`, no node's logs are followed; without `tunnel`, no node has a tunnel.
    `certified` checks the certificates of nodes, where control requires certificates. Raises NotLoopback,
    CannotListen and TlsFilesUnusable."""
    if tls is None and not is_loopback(host):
        raise NotLoopback(
            f"agents would connect to {host} in the clear: give TLS files, or listen on 127.0.0.1"
        )
    # A caller that takes all of them delays new callers, but neither HTTP nor the store.
    connections = connections_of_a_door()
    server = grpc.aio.server(options=[*OPTIONS, ("grpc.max_allowed_incoming_connections", connections)])
    made = GrpcServer(server, admit, handle, logs, tunnel, certified)
    calls = {codec.SESSION: made.session}
    calls |= {codec.LOGS: made.logs} if logs else {}
    calls |= {codec.TUNNEL: made.tunnel} if tunnel else {}
    methods: dict[str, Any] = {
        path.rpartition("/")[2]: grpc.stream_stream_rpc_method_handler(call) for path, call in calls.items()
    }
    service = codec.SESSION.split("/")[1]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    credentials = None
    if tls is not None:
        first = made.certificates = _certificates(tls, certified)
        demanded = tls.client_ca is not None or (certified is not None and certified.required)
        credentials = grpc.dynamic_ssl_server_credentials(first, lambda: made.certificates or first, demanded)
    made.port = _bind(server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", credentials)
    await server.start()
    return made


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    with contextlib.suppress(RuntimeError):
        bound = (
            server.add_insecure_port(address)
            if credentials is None
            else server.add_secure_port(address, credentials)
        )
        if bound:
            return bound
    raise CannotListen(
        f"cannot listen on {address}: it is in use, not an address of this host, or gRPC refuses the TLS"
        " files"
    )


def _certificates(tls: TlsFiles, certified: NodeCertificates | None) -> grpc.ServerCertificateConfiguration:
    (certificate, key), authority = tls.pair(), tls.authority()
    client_ca = None if authority is None else authority.pem
    if certified is not None:
        certified.reload()
        client_ca = certified.trusted
    return grpc.ssl_server_certificate_configuration([(key.pem, certificate.pem)], client_ca)
