"""The agent's end of its session, over gRPC: one bidirectional call on a channel of its own.
Further calls carry logs and the tunnel.

Nothing above this module knows gRPC. A connection that dies silently is noticed by HTTP/2 pings as well
as by the missing acks of beats.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import grpc
import grpc.aio

from stoker.agent.errors import AgentRefused
from stoker.outbound.refused_addresses import is_loopback
from stoker.wire import codec
from stoker.wire.codec import Decoder
from stoker.wire.duplex import QUEUE_MAX_BYTES, DuplexStream
from stoker.wire.fragments import MESSAGE_MAX
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted, TunnelPieces
from stoker.wire.streams import AgentLogs, NoLogs, NoTunnels, StreamEnded, TunnelStream
from stoker.wire.tunnel.tunnel import STREAM_BYTES

OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    # Each connect is a connection of its own: a shared one would carry over another's failures.
    ("grpc.use_local_subchannel_pool", 1),
]

Call = grpc.aio.StreamStreamCall[bytes, bytes]
Metadata = tuple[tuple[str, bytes]]
In = TypeVar("In")
Out = TypeVar("Out", bound=FromAgent | LogLines | TunnelPieces)

LOGS_MAX = 256 * 1024
"""Bytes of log lines that wait to be sent. What is printed meanwhile waits at its worker, or is lost."""


class ConnectFailed(StreamEnded):
    """The stream never began; the message says which address and why."""


class CertificateRefused(AgentRefused):
    """Control accepts the token, and not the certificate that goes with it."""


class _CallStream(DuplexStream[In, Out]):
    """Over one call, which it owns once it is `held`."""

    def __init__(self, decoder: Decoder[In], call: Call, limit: int = QUEUE_MAX_BYTES) -> None:
        super().__init__(decoder, call.read, call.write, limit)
        self._call = call

    async def hold(self) -> None:
        try:
            await self.run(self._call.done_writing)
        finally:
            self._call.cancel()

    def _why_lost(self, error: BaseException) -> str:
        if isinstance(error, grpc.aio.AioRpcError):
            return _connection_error(error)
        if isinstance(error, asyncio.InvalidStateError):
            return "control ended the stream"
        return super()._why_lost(error)

    async def _why_ended(self) -> str:
        for key, value in await self._call.trailing_metadata() or ():
            if key == codec.REASON:
                return value if isinstance(value, str) else value.decode()
        return await super()._why_ended()


class GrpcAgentStream(_CallStream[FromControl, FromAgent]):
    """Made by `connect`. `end` starts the closing; `closed` returns when the connection is gone, with the
    further streams that were opened on it."""

    def __init__(self, channel: grpc.aio.Channel, call: Call, token: Metadata) -> None:
        super().__init__(Decoder(FromControl), call)
        self._channel = channel
        self._token = token
        self._further: dict[asyncio.Task[None], _CallStream[Any, Any]] = {}
        self._running = asyncio.create_task(self._hold())

    async def closed(self) -> None:
        await asyncio.shield(self._running)

    async def open_logs(self) -> AgentLogs:
        call = await self._call_also(codec.LOGS, NoLogs)
        logs: _CallStream[LogWanted, LogLines] = _CallStream(Decoder(LogWanted), call, LOGS_MAX)
        self._hold_also(logs)
        return logs

    async def open_tunnel(self) -> TunnelStream:
        call = await self._call_also(codec.TUNNEL, NoTunnels)
        tunnel: _CallStream[TunnelPieces, TunnelPieces] = _CallStream(
            Decoder(TunnelPieces), call, STREAM_BYTES
        )
        self._hold_also(tunnel)
        return tunnel

    async def _call_also(self, method: str, unknown: type[Exception]) -> Call:
        """Raises StreamEnded, and `unknown` where control does not have the method."""
        call: Call = self._channel.stream_stream(method)(metadata=self._token)
        try:
            await call.initial_metadata()
            if call.done() and await call.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise unknown
        except grpc.aio.AioRpcError as error:
            raise StreamEnded(_connection_error(error)) from None
        except BaseException:
            call.cancel()
            raise
        return call

    def _hold_also(self, stream: _CallStream[Any, Any]) -> None:
        task = asyncio.create_task(stream.hold())
        self._further[task] = stream
        task.add_done_callback(self._further.pop)

    async def _hold(self) -> None:
        try:
            await self.hold()
        finally:
            for stream in self._further.values():
                stream.lost("the session is over")
            await asyncio.gather(*self._further, return_exceptions=True)
            await self._channel.close()


async def connect(
    target: str,
    token: str,
    *,
    ca: bytes | None = None,
    cert: bytes | None = None,
    key: bytes | None = None,
    connect_timeout_s: float = 10.0,
) -> GrpcAgentStream:
    """Opens a stream to the control plane at `HOST:PORT`; with `ca` (PEM) over TLS, with `cert` and `key`
    under the agent's own name. Returns once control has accepted the token; raises ConnectFailed, and
    AgentRefused where control refuses the token; CertificateRefused where it refuses the certificate."""
    channel = _channel(target, ca, cert, key)
    brought: Metadata = ((codec.TOKEN, token.encode("utf-8", "surrogatepass")),)
    try:
        async with asyncio.timeout(connect_timeout_s):
            call: Call = channel.stream_stream(codec.SESSION)(metadata=brought)
            await call.initial_metadata()
            if call.done():
                why = await call.details() or "it ended the stream"
                code = await call.code()
                if code is grpc.StatusCode.UNAUTHENTICATED:
                    raise AgentRefused(why)
                if code is grpc.StatusCode.PERMISSION_DENIED:
                    raise CertificateRefused(why)
                raise ConnectFailed(_cannot(target, why, ca))
        return GrpcAgentStream(channel, call, brought)
    except TimeoutError:
        await channel.close()
        why = f"no answer within {connect_timeout_s:g} s"
        raise ConnectFailed(_cannot(target, why, ca)) from None
    except BaseException:
        await channel.close()
        raise


def _channel(target: str, ca: bytes | None, cert: bytes | None, key: bytes | None) -> grpc.aio.Channel:
    if ca is None:
        direct = [("grpc.enable_http_proxy", 0)] if stays_here(target) else []
        return grpc.aio.insecure_channel(target, options=[*OPTIONS, *direct])
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    return grpc.aio.secure_channel(target, credentials, options=OPTIONS)


def stays_here(target: str) -> bool:
    """Returns whether what is sent to `HOST:PORT` never leaves this machine (through a proxy it would)."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    return is_loopback(target.rpartition(":")[0].removeprefix("[").removesuffix("]"))


def _cannot(target: str, why: str, ca: bytes | None) -> str:
    # gRPC shows a client without a certificate no more than that the server is unavailable.
    hint = "" if ca is None else " (a certificate that control does not accept looks the same)"
    return f"cannot reach control at {target}: {why}{hint}"


def _connection_error(error: grpc.aio.AioRpcError) -> str:
    return f"the connection to control broke: {error.details() or error.code().name}"
