"""The session of a node: receives what its agent sends, in order, and sends what the plane decides.

    Hello -> Welcome, Desired -> messages both ways -> the stream ends, or a newer session takes over

Reports are committed before they are acknowledged, and the claims that they made possible ride in the same
transaction. Everything waiting for the agent leaves in one message: the acknowledgement and the next Assigns
together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from stoker.control.nodes.answers import Answers
from stoker.control.nodes.assigned import AssignedToNode
from stoker.control.rules.nodes.validation import AssignedAttempt
from stoker.wire.messages import (
    Ack,
    Assign,
    AttemptKey,
    Beat,
    Cancel,
    CertificateAnswer,
    Desired,
    FromControl,
    KeptAsk,
    KeptPage,
    Report,
    SignAnswer,
    SourceAnswer,
    Welcome,
    Yield,
)
from stoker.wire.streams import ControlStream, StreamEnded

log = logging.getLogger(__name__)

ACK_S = 0.02
"""How long an acknowledgement waits for an Assign to be sent with: alone it costs as much as one."""

MESSAGE_INPUTS = 4 * 1024 * 1024
"""Bytes of inputs in one message; the stream takes 64 MiB, and a node should begin before the last came."""

SILENCE_S = 60.0
"""An agent that sends nothing for this time is gone, even if the connection stands."""

SOURCES_MAX = 64
"""The most sources that one message may ask for; further ones are not answered in this session."""

CERTIFY_EVERY_S = 1.0
"""An agent requests its certificate no more often than it beats."""

KEPT_ASKS_MAX = 64
"""The most asks for kept chunks that wait; further ones are not answered in this session."""


class NodeSession:
    """A session of a node. `assigned` is what this node may report about. `handle` commits one message's
    reports and returns once they may be acknowledged. `draining`: the node reported that it is about to
    leave. `closed`: set by the server when the session is over, and the store knows. `credential`: the token
    that the node came in with."""

    def __init__(
        self,
        node: str,
        session: int,
        credential: str,
        stream: ControlStream,
        handle: Callable[[NodeSession, Sequence[Report], Beat | None], Coroutine[Any, Any, None]],
        assigned: AssignedToNode,
        answers: Answers,
    ) -> None:
        self.node = node
        self.assigned = assigned
        self.session = session
        self.draining = False
        self.closed = asyncio.Event()
        self._credential = credential
        self._stream = stream
        self._handle = handle
        self._answering = answers
        self._kept_asks: deque[KeptAsk] = deque()
        self._certificate: CertificateAnswer | None = None
        self._certified_at = float("-inf")
        self._answers: list[SignAnswer] = []
        self._sources: list[SourceAnswer] = []
        self._assigns: list[Assign] = []
        self._cancels: list[Cancel] = []
        self._yields: list[Yield] = []
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
        self._received_at = self._loop.time()

    # -- what the plane decides; all return at once

    def welcome(self, welcome: Welcome) -> None:
        self._welcome = welcome
        self._wake.set()

    def assign(self, assign: Assign) -> None:
        prefix = "" if assign.grant is None else assign.grant.prefix
        own_bucket = assign.files_grant is not None
        key = AttemptKey(assign.job, assign.attempt)
        self.assigned.attempts[key] = AssignedAttempt(prefix, assign.worker, own_bucket, assign.prices)
        self._assigns.append(assign)
        self._wake.set()

    def unsent(self) -> list[AttemptKey]:
        """Returns the attempts that the session's stream has not taken: once the session is over, its node
        never had them."""
        return [AttemptKey(assign.job, assign.attempt) for assign in self._assigns]

    def cancel(self, cancel: Cancel) -> None:
        self._cancels.append(cancel)
        self._wake.set()

    def ask_to_yield(self, request: Yield) -> None:
        self._yields.append(request)
        self._wake.set()

    def desire(self, desired: Desired) -> None:
        self._desired = desired
        self._wake.set()

    def stop(self) -> None:
        """Tells the agent that this process ends: the agent is to look for the next one soon."""
        self._stopping = True
        self._wake.set()

    def end(self, reason: str) -> None:
        """Ends the session: nothing more is handled. The first reason stands."""
        self._reason = self._reason or reason
        self._stream.end(self._reason)

    # -- the connection

    async def run(self) -> str:
        """Runs until the stream ends; returns the reason.

        A commit that is under way then is brought to its end: the commit may have ended jobs that callers
        wait for, and claimed others for other nodes.
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
        """Handles the agent's messages: whatever came while one transaction was under way makes up the
        next."""
        while not self._reason:
            messages = await self._stream.receive_all()
            self._handling = True
            reports = [report for message in messages for report in message.reports]
            beats = [message.beat for message in messages if message.beat is not None]
            self.draining = self.draining or any(message.draining for message in messages)
            await self._handle(self, reports, beats[-1] if beats else None)
            for request in [request for message in messages for request in message.asks]:
                answer = await self._answering.sign(self.node, request)
                self._answers.append(answer)  # to the list of now: what was there before may have been sent
                self._wake.set()
            if asks := [ask for message in messages for ask in message.kept_asks]:
                self._ask_kept(asks)
            if digests := [digest for message in messages for digest in message.source_asks]:
                await self._send_sources(digests)
            if requests := [message.certificate_ask for message in messages if message.certificate_ask]:
                self._certify_once(requests[-1])
            report = reports[-1].number if reports else self._acked.report
            beat = beats[-1].number if beats else self._acked.beat
            self._acked = self._ack = Ack(max(report, self._acked.report), max(beat, self._acked.beat))
            if self._ack_timer is None:
                self._ack_timer = self._loop.call_later(ACK_S, self._ack_is_due)
            self._handling, self._received_at = False, self._loop.time()

    def _ask_kept(self, asks: Sequence[KeptAsk]) -> None:
        room = KEPT_ASKS_MAX - len(self._kept_asks)
        if len(asks) > room:
            self.assigned.log_once("KeptAsk", f"{KEPT_ASKS_MAX} wait already")
        self._kept_asks.extend(asks[:room])
        self._wake.set()

    async def _send_sources(self, digests: Sequence[str]) -> None:
        """Reads each once, and no more at once than the stream takes: archives are large."""
        for digest in dict.fromkeys(digests[:SOURCES_MAX]):
            self._sources.append(await self._answering.source(self.node, digest))
            self._wake.set()

    def _certify_once(self, request: bytes) -> None:
        """Answers a request, but no more than one in CERTIFY_EVERY_S: each is a signature and a line of the
        log."""
        now = self._loop.time()
        if now - self._certified_at >= CERTIFY_EVERY_S:
            self._certified_at = now
            self._certificate = self._answering.certificate(self.node, self._credential, request)
            self._wake.set()

    async def _watch_silence(self) -> None:
        """Raises StreamEnded once the node was silent for too long. Nothing is read while something is
        handled: that is not a silence of the node."""
        while True:
            left = SILENCE_S if self._handling else self._received_at + SILENCE_S - self._loop.time()
            if left <= 0:
                raise StreamEnded(f"no message for {SILENCE_S:.0f} s")
            await asyncio.sleep(left)

    def _ack_is_due(self) -> None:
        self._ack_timer = None
        if self._ack is not None:
            self._wake.set()

    async def _kept_page(self) -> KeptPage:
        """Reads the next page now that the stream takes it, since pages are large."""
        page = await self._answering.kept(self.node, self._kept_asks.popleft())
        if page.refusal and not page.retryable:
            self.assigned.log_once("KeptAsk", page.refusal)
        return page

    async def _send_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            page = await self._kept_page() if self._kept_asks else None
            assigns = self._assigns if len(self._assigns) < 2 else _first(self._assigns)
            message = FromControl(
                welcome=self._welcome,
                desired=self._desired,
                ack=self._ack,
                assigns=tuple(assigns),
                cancels=tuple(self._cancels),
                stopping=self._stopping,
                answers=tuple(self._answers),
                sources=tuple(self._sources[:1]),
                yields=tuple(self._yields),
                kept=page,
                certificate=self._certificate,
            )
            self._answers = []
            self._welcome = self._desired = self._ack = self._certificate = None
            self._cancels, self._yields = [], []
            await self._stream.send(message)
            del self._assigns[: len(message.assigns)]
            del self._sources[: len(message.sources)]
            if self._assigns or self._sources or self._kept_asks:
                self._wake.set()
            if message.stopping:
                raise StreamEnded("control is stopping")


def _first_end(tasks: Sequence[asyncio.Task[None]]) -> str:
    error = next((task.exception() for task in tasks if task.done()), None)
    if error is None or isinstance(error, StreamEnded):
        return str(error or "ended")
    return "control failed in this session"


def _first(assigns: list[Assign]) -> list[Assign]:
    """Returns as many as fit into one message, at least one."""
    size = 0
    for n, assign in enumerate(assigns):
        size += len(assign.input or b"")
        if n and size > MESSAGE_INPUTS:
            return assigns[:n]
    return assigns
