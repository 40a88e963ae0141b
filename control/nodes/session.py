"""One session of one node: receives what its agent sends, in order, and sends what the plane decides.

    Hello -> Welcome, Desired -> messages both ways -> the stream ends, or a newer session takes over

Reports are committed before they are acknowledged, and the claims that they made possible ride in the same
transaction. Everything waiting for the agent leaves in one message: the acknowledgement and the next Assigns
together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from stoker.wire.messages import (
    Ack,
    Assign,
    Beat,
    Cancel,
    Desired,
    FromAgent,
    FromControl,
    Report,
    Welcome,
)
from stoker.wire.streams import ControlStream, StreamEnded

log = logging.getLogger(__name__)

ACK_S = 0.02
"""An acknowledgement waits so long for a next Assign to ride with: alone it costs as much as one."""

MESSAGE_INPUTS = 4 * 1024 * 1024
"""Bytes of inputs in one message; the stream takes 64 MiB, and a node should begin before the last came."""

SILENCE_S = 60.0
"""An agent that sends nothing for so long is gone, whatever the connection says."""


class NodeSession:
    """`handle` commits one message's reports and returns once they may be acknowledged. `draining`: the node
    said that it is about to go. `closed`, for whoever serves it to set: it is over, and the store knows."""

    def __init__(
        self,
        node: str,
        session: int,
        stream: ControlStream,
        handle: Callable[[NodeSession, Sequence[Report], Beat | None], Coroutine[Any, Any, None]],
    ) -> None:
        self.node = node
        self.session = session
        self.draining = False
        self.closed = asyncio.Event()
        self._stream = stream
        self._handle = handle
        self._assigns: list[Assign] = []
        self._cancels: list[Cancel] = []
        self._welcome: Welcome | None = None
        self._desired: Desired | None = None
        self._ack: Ack | None = None
        self._stopping = False
        self._acked = Ack(0, 0)
        self._loop = asyncio.get_running_loop()
        self._ack_timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._reason = ""
        self._handling = False
        self._heard_at = self._loop.time()

    # -- what the plane decides; all return at once

    def welcome(self, welcome: Welcome) -> None:
        self._welcome = welcome
        self._wake.set()

    def assign(self, assign: Assign) -> None:
        self._assigns.append(assign)
        self._wake.set()

    def cancel(self, cancel: Cancel) -> None:
        self._cancels.append(cancel)
        self._wake.set()

    def desire(self, desired: Desired) -> None:
        self._desired = desired
        self._wake.set()

    def stop(self) -> None:
        """This process goes: the agent is told to look for the next one soon."""
        self._stopping = True
        self._wake.set()

    def end(self, reason: str) -> None:
        """Nothing more is handled. The first reason stands."""
        self._reason = self._reason or reason
        self._stream.end(self._reason)

    # -- the connection

    async def run(self) -> str:
        """Until the stream ends; returns the reason.

        What is being committed then is brought to its end: it may have ended jobs that callers wait for, and
        claimed others for other nodes.
        """
        handling = asyncio.create_task(self._handle_all(), name=f"handle what {self.node} reports")
        sending = asyncio.create_task(self._send_all(), name=f"send to {self.node}")
        watching = asyncio.create_task(self._watch_silence(), name=f"watch the silence of {self.node}")
        tasks = (handling, sending, watching)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.end(_first_end(tasks))
        finally:
            self.end("the session is over")
            sending.cancel()
            watching.cancel()
            await asyncio.wait(tasks)
            if self._ack_timer is not None:
                self._ack_timer.cancel()
            self._log_failures(tasks)
        return self._reason

    def _log_failures(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, StreamEnded):
                log.error("the session of node %s failed", self.node, exc_info=error)

    async def _handle_all(self) -> None:
        """Whatever came while one transaction was under way makes up the next."""
        while not self._reason:
            messages = [await self._stream.receive(), *self._stream.more()]
            self._handling = True
            await self._received(messages)
            self._handling, self._heard_at = False, self._loop.time()

    async def _watch_silence(self) -> None:
        """Nothing is read while something is handled, and that is nobody's silence."""
        while True:
            left = SILENCE_S if self._handling else self._heard_at + SILENCE_S - self._loop.time()
            if left <= 0:
                raise StreamEnded(f"no message for {SILENCE_S:.0f} s")
            await asyncio.sleep(left)

    async def _received(self, messages: Sequence[FromAgent]) -> None:
        reports = [report for message in messages for report in message.reports]
        beats = [message.beat for message in messages if message.beat is not None]
        self.draining = self.draining or any(message.draining for message in messages)
        await self._handle(self, reports, beats[-1] if beats else None)
        report = reports[-1].number if reports else self._acked.report
        beat = beats[-1].number if beats else self._acked.beat
        self._acked = self._ack = Ack(max(report, self._acked.report), max(beat, self._acked.beat))
        if self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_S, self._ack_is_due)

    def _ack_is_due(self) -> None:
        self._ack_timer = None
        if self._ack is not None:
            self._wake.set()

    async def _send_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            assigns, self._assigns = _slice(self._assigns)
            if self._assigns:
                self._wake.set()
            message = FromControl(
                welcome=self._welcome,
                desired=self._desired,
                ack=self._ack,
                assigns=assigns,
                cancels=tuple(self._cancels),
                stopping=self._stopping,
            )
            self._welcome = self._desired = self._ack = None
            self._cancels = []
            await self._stream.send(message)
            if message.stopping:
                raise StreamEnded("control is stopping")


def _first_end(tasks: Sequence[asyncio.Task[None]]) -> str:
    error = next((task.exception() for task in tasks if task.done()), None)
    if error is None or isinstance(error, StreamEnded):
        return str(error or "ended")
    return "control failed in this session"


def _slice(assigns: list[Assign]) -> tuple[tuple[Assign, ...], list[Assign]]:
    """As many as fit into one message, at least one; and the rest."""
    size = 0
    for n, assign in enumerate(assigns):
        size += len(assign.input or b"")
        if n and size > MESSAGE_INPUTS:
            return tuple(assigns[:n]), assigns[n:]
    return tuple(assigns), []
