"""A session's stream in memory, without gRPC: a pair of ends for an agent and a control."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted, TunnelPieces
from stoker.wire.streams import StreamEnded

In = TypeVar("In")
Out = TypeVar("Out")


class StreamEnd:
    """The end of a stream, queued after the last message."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class MemoryStream(Generic[In, Out]):
    """An end of a pair in memory. `cut` drops messages that were not received, as a broken network does."""

    def __init__(self) -> None:
        self._inbox: asyncio.Queue[In | StreamEnd] = asyncio.Queue()
        self._ended: str | None = None
        self.peer: MemoryStream[Out, In]

    async def receive(self) -> In:
        if self._ended is not None and self._inbox.empty():
            raise StreamEnded(self._ended)
        received = await self._inbox.get()
        if isinstance(received, StreamEnd):
            self._ended = self._ended or received.reason
            raise StreamEnded(received.reason)
        return received

    async def receive_all(self) -> Sequence[In]:
        received = [await self.receive()]
        while not self._inbox.empty():
            item = self._inbox.get_nowait()
            if isinstance(item, StreamEnd):
                self._ended = self._ended or item.reason
            else:
                received.append(item)
        return received

    async def send(self, message: Out) -> None:
        if self._ended is not None:
            raise StreamEnded(self._ended)
        self.peer._inbox.put_nowait(message)

    def end(self, reason: str = "ended") -> None:
        if self._ended is not None:
            return
        self._ended = reason
        self._inbox.put_nowait(StreamEnd(reason))
        self.peer._peer_ended(reason)

    def cut(self) -> None:
        """Breaks the connection: both ends lose the messages that they have not received."""
        for stream in (self, self.peer):
            while not stream._inbox.empty():
                stream._inbox.get_nowait()
        self.end("the connection was cut")

    def _peer_ended(self, reason: str) -> None:
        self._inbox.put_nowait(StreamEnd(reason))


def memory_logs() -> tuple[MemoryStream[LogWanted, LogLines], MemoryStream[LogLines, LogWanted]]:
    """Returns a pair as `memory_pair` does, for the log stream."""
    agent: MemoryStream[LogWanted, LogLines] = MemoryStream()
    control: MemoryStream[LogLines, LogWanted] = MemoryStream()
    agent.peer, control.peer = control, agent
    return agent, control


def memory_tunnel() -> tuple[
    MemoryStream[TunnelPieces, TunnelPieces], MemoryStream[TunnelPieces, TunnelPieces]
]:
    """Returns a pair as `memory_pair` does, for a tunnel's stream."""
    agent: MemoryStream[TunnelPieces, TunnelPieces] = MemoryStream()
    control: MemoryStream[TunnelPieces, TunnelPieces] = MemoryStream()
    agent.peer, control.peer = control, agent
    return agent, control


def memory_pair() -> tuple[MemoryStream[FromControl, FromAgent], MemoryStream[FromAgent, FromControl]]:
    """Returns the agent's end and control's end of a stream in memory."""
    agent: MemoryStream[FromControl, FromAgent] = MemoryStream()
    control: MemoryStream[FromAgent, FromControl] = MemoryStream()
    agent.peer, control.peer = control, agent
    return agent, control
