"""The agent's end of its session, over gRPC: one bidirectional call on a channel of its own.

Nothing above this module knows gRPC. A connection that dies silently is noticed by HTTP/2 pings as well
as by the missing acks of beats.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from stoker.wire import codec
from stoker.wire.duplex import DuplexStream
from stoker.wire.fragments import MESSAGE_MAX
from stoker.wire.messages import FromAgent, FromControl
from stoker.wire.streams import StreamEnded

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


class ConnectFailed(StreamEnded):
    """The stream never began; the text says which address and why."""


class GrpcAgentStream(DuplexStream[FromControl, FromAgent]):
    """Made by `connect`. `end` starts the closing; `closed` returns when the connection is gone."""

    def __init__(self, channel: grpc.aio.Channel, call: Call) -> None:
        super().__init__(codec.from_control_decoder(), self._read_call, self._write_call)
        self._channel = channel
        self._call = call
        self._running = asyncio.create_task(self._hold())

    async def closed(self) -> None:
        await asyncio.shield(self._running)

    async def _hold(self) -> None:
        try:
            await self.run(self._call.done_writing)
        finally:
            self._call.cancel()
            await self._channel.close()

    async def _read_call(self) -> bytes | None:
        try:
            data: Any = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise StreamEnded(_words(error)) from None
        if data is not grpc.aio.EOF:
            return bytes(data)
        for key, value in await self._call.trailing_metadata() or ():
            if key == codec.REASON:
                self.end(value if isinstance(value, str) else value.decode())
        return None

    async def _write_call(self, data: bytes) -> None:
        try:
            await self._call.write(data)
        except grpc.aio.AioRpcError as error:
            raise StreamEnded(_words(error)) from None
        except asyncio.InvalidStateError:
            raise StreamEnded("control ended the stream") from None


async def connect(
    target: str,
    *,
    ca: bytes | None = None,
    cert: bytes | None = None,
    key: bytes | None = None,
    connect_timeout_s: float = 10.0,
) -> GrpcAgentStream:
    """A stream to the control plane at `HOST:PORT`; with `ca` (PEM) over TLS, with `cert` and `key` under
    the agent's own name. Returns once control has taken the call; raises ConnectFailed."""
    channel = _channel(target, ca, cert, key)
    try:
        async with asyncio.timeout(connect_timeout_s):
            call: Call = channel.stream_stream(codec.SESSION)()
            await call.initial_metadata()
            if call.done():
                raise ConnectFailed(_cannot(target, await call.details() or "it ended the stream", ca))
        return GrpcAgentStream(channel, call)
    except TimeoutError:
        await channel.close()
        why = f"no answer within {connect_timeout_s:g} s"
        raise ConnectFailed(_cannot(target, why, ca)) from None
    except BaseException:
        await channel.close()
        raise


def _channel(target: str, ca: bytes | None, cert: bytes | None, key: bytes | None) -> grpc.aio.Channel:
    if ca is None:
        return grpc.aio.insecure_channel(target, options=OPTIONS)
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    return grpc.aio.secure_channel(target, credentials, options=OPTIONS)


def _cannot(target: str, why: str, ca: bytes | None) -> str:
    # gRPC shows a client without a certificate no more than that the server is unavailable.
    hint = "" if ca is None else " (a certificate that control does not accept looks the same)"
    return f"cannot reach control at {target}: {why}{hint}"


def _words(error: grpc.aio.AioRpcError) -> str:
    return f"the connection to control broke: {error.details() or error.code().name}"
