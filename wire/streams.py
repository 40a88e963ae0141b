"""One connection life of a node, as each side sees it; and a pair of them in memory.

gRPC stays in its adapters (`agent.grpc_stream`, `control.grpc_stream`); tests and the simulation join
the real shells with `memory_pair`. Both obey the same contract tests:

- messages arrive in order, each once, or the stream ends;
- `receive` raises `StreamEnded` once the other side has ended, after what it had sent was received;
- `send` never waits for the other side to read less than its limit; it raises `StreamEnded` when ended;
- `end` may be called twice, and wakes a waiting `receive` on both sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted

In_co = TypeVar("In_co", covariant=True)
Out_contra = TypeVar("Out_contra", contravariant=True)
In = TypeVar("In")
Out = TypeVar("Out")


class StreamEnded(Exception):
    """The stream is over; the text says why."""


class Stream(Protocol[In_co, Out_contra]):
    """Receives `In`, sends `Out`."""

    async def receive(self) -> In_co: ...

    def more(self) -> Sequence[In_co]:
        """What else has come, without waiting."""

    async def send(self, message: Out_contra) -> None: ...

    def end(self, reason: str = "ended") -> None: ...


AgentStream = Stream[FromControl, FromAgent]
ControlStream = Stream[FromAgent, FromControl]
AgentLogs = Stream[LogWanted, LogLines]
ControlLogs = Stream[LogLines, LogWanted]


class NoLogs(Exception):
    """The other side knows no stream for logs."""


@runtime_checkable
class HasLogs(Protocol):
    """An agent's stream beside which another for logs can be opened."""

    async def open_logs(self) -> AgentLogs:
        """Raises StreamEnded, and NoLogs where control knows of none."""


class _Ended:
    def __init__(self, reason: str) -> None:
        self.reason = reason


class MemoryStream(Generic[In, Out]):
    """One end of a pair in memory. `cut` drops what is under way, as a broken network does."""

    def __init__(self) -> None:
        self._inbox: asyncio.Queue[In | _Ended] = asyncio.Queue()
        self._ended: str | None = None
        self.peer: MemoryStream[Out, In]

    async def receive(self) -> In:
        if self._ended is not None and self._inbox.empty():
            raise StreamEnded(self._ended)
        got = await self._inbox.get()
        if isinstance(got, _Ended):
            self._ended = self._ended or got.reason
            raise StreamEnded(got.reason)
        return got

    def more(self) -> Sequence[In]:
        got: list[In] = []
        while not self._inbox.empty():
            thing = self._inbox.get_nowait()
            if isinstance(thing, _Ended):
                self._ended = self._ended or thing.reason
            else:
                got.append(thing)
        return got

    async def send(self, message: Out) -> None:
        if self._ended is not None:
            raise StreamEnded(self._ended)
        self.peer._inbox.put_nowait(message)

    def end(self, reason: str = "ended") -> None:
        if self._ended is not None:
            return
        self._ended = reason
        self._inbox.put_nowait(_Ended(reason))
        self.peer._peer_ended(reason)

    def cut(self) -> None:
        """The network breaks: both ends lose what was under way."""
        for stream in (self, self.peer):
            while not stream._inbox.empty():
                stream._inbox.get_nowait()
        self.end("the connection was cut")

    def _peer_ended(self, reason: str) -> None:
        self._inbox.put_nowait(_Ended(reason))


def memory_logs() -> tuple[MemoryStream[LogWanted, LogLines], MemoryStream[LogLines, LogWanted]]:
    """The same of a stream for logs."""
    agent: MemoryStream[LogWanted, LogLines] = MemoryStream()
    control: MemoryStream[LogLines, LogWanted] = MemoryStream()
    agent.peer, control.peer = control, agent
    return agent, control


def memory_pair() -> tuple[MemoryStream[FromControl, FromAgent], MemoryStream[FromAgent, FromControl]]:
    """The agent's end and control's end of one stream in memory."""
    agent: MemoryStream[FromControl, FromAgent] = MemoryStream()
    control: MemoryStream[FromAgent, FromControl] = MemoryStream()
    agent.peer, control.peer = control, agent
    return agent, control
