"""The stream of a node's session, and those of its logs and its tunnel, as each side sees them.

gRPC stays in its adapters (`agent.link.grpc_stream`, `control.nodes.grpc_stream`); tests and the simulation
connect agent and control in memory (`testing.memory_stream`). All kinds pass the same contract tests:

- messages arrive in order, each once, or the stream ends;
- `receive` and `receive_all` raise `StreamEnded` after the other side has ended and everything it sent was
  received;
- `send` waits only while the outbox is over its limit; it raises `StreamEnded` after the end;
- `end` may be called twice, and wakes a waiting `receive` on both sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted, TunnelPieces

HELLO_S = 10.0
"""How long control waits for the first message of a stream."""

T = TypeVar("T")
In_co = TypeVar("In_co", covariant=True)
Out_contra = TypeVar("Out_contra", contravariant=True)


class StreamEnded(Exception):
    """The stream has ended; the message says why."""


class Stream(Protocol[In_co, Out_contra]):
    """Receives `In`, sends `Out`."""

    async def receive(self) -> In_co: ...

    async def receive_all(self) -> Sequence[In_co]:
        """Receives the next message, and those that have arrived behind it."""

    async def send(self, message: Out_contra) -> None: ...

    def end(self, reason: str = "ended") -> None: ...


async def first_message(stream: Stream[T, Any]) -> T | None:
    """Returns the first message. Ends the stream and returns None if no message comes within HELLO_S. Raises
    StreamEnded."""
    try:
        async with asyncio.timeout(HELLO_S):
            return await stream.receive()
    except TimeoutError:
        stream.end(f"no Hello within {HELLO_S:.0f} s")
        return None


AgentStream = Stream[FromControl, FromAgent]
ControlStream = Stream[FromAgent, FromControl]
AgentLogs = Stream[LogWanted, LogLines]
ControlLogs = Stream[LogLines, LogWanted]
TunnelStream = Stream[TunnelPieces, TunnelPieces]


class NoLogs(Exception):
    """The other side has no log stream."""


@runtime_checkable
class HasLogs(Protocol):
    """An agent's stream that can open a second stream for logs."""

    async def open_logs(self) -> AgentLogs:
        """Raises StreamEnded, and NoLogs if control has no log stream."""


class NoTunnels(Exception):
    """The other side has no tunnels."""


@runtime_checkable
class HasTunnels(Protocol):
    """An agent's stream that can open another stream for a tunnel."""

    async def open_tunnel(self) -> TunnelStream:
        """Raises StreamEnded, and NoTunnels if control has none."""
