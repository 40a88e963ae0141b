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
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stoker.control.config.endpoints import Endpoints
from stoker.control.config.settings import PlaneSettings
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.jobs.waiters import JobWaiters
from stoker.control.rules.nodes.validation import AssignedAttempt, AssignedWorker
from stoker.control.rules.submissions import S3Config
from stoker.control.rules.types import Claimed
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.traces.traces import Traces
from stoker.wire import names
from stoker.wire.messages import (
    Ack,
    Assign,
    AttemptKey,
    Beat,
    Cancel,
    CertificateAnswer,
    Desired,
    FromControl,
    Grant,
    HeldAttempt,
    KeptAsk,
    KeptPage,
    Outcome,
    Refused,
    Report,
    SignAnswer,
    SignAsk,
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

ENDED = 4096
"""Attempts that are over and remembered: as many as an agent's outbox holds reports."""


class AssignedToNode:
    """The things that this process assigned to one node in one session: `validation.Assignments`.

    Workers are in the cluster state, pods and volumes in their books; `pods` and `volumes` say which of them
    the node was sent. Attempts are kept here: from their Assign, or from the Hello that named them, until
    some time after their end, as an agent may still report one.
    """

    def __init__(
        self,
        node: str,
        cluster: ClusterState,
        pods: Callable[[str, str], bool],
        volumes: Callable[[str, str], bool | None],
        attempts: Mapping[AttemptKey, AssignedAttempt],
    ) -> None:
        self.attempts = dict(attempts)
        self._node = node
        self._cluster = cluster
        self._pods = pods
        self._volumes = volumes
        self._ended: dict[AttemptKey, None] = {}
        self._logged: set[str] = set()

    # -- what was assigned

    def end(self, reports: Iterable[Report]) -> None:
        """Notes that the ends in these reports are stored."""
        for report in reports:
            if isinstance(report.body, Outcome | Refused):
                self._ended[AttemptKey(report.body.job, report.body.attempt)] = None
        while len(self._ended) > ENDED:
            key = next(iter(self._ended))
            del self._ended[key]
            self.attempts.pop(key, None)

    def worker(self, worker: str) -> AssignedWorker | None:
        placed = self._cluster.workers.get(worker)
        if placed is None or placed.node != self._node:
            return None
        slots = placed.spec.concurrency if placed.spec is not None else 2**32
        return AssignedWorker(placed.endpoint, placed.version, slots, placed.devices)

    def pod(self, pod: str) -> bool:
        return self._pods(self._node, pod)

    def volume(self, volume: str) -> bool | None:
        return self._volumes(self._node, volume)

    # -- messages

    def holds(self, attempt: HeldAttempt) -> bool:
        """Returns whether an attempt that a Hello names takes a slot of a worker of this node."""
        if attempt.key not in self.attempts:
            which = f"attempt {attempt.attempt} of job {attempt.job[:80]!r}"
            self.log_once("Hello", f"{which} is not one that control gave to this node")
            return False
        placed = self._cluster.workers.get(attempt.worker)
        if placed is not None and placed.node != self._node:
            self.log_once(
                "Hello", f"worker {attempt.worker[:80]!r} is not one that control gave to this node"
            )
        return placed is not None and placed.node == self._node

    def log_once(self, kind: str, why: str) -> None:
        """Logs one line for each kind of message and session: a flood of them does not fill the log."""
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning(
                "node %s sent %s that was refused (further ones are not logged): %s", self._node, kind, why
            )


class NodeSession:
    """A session of a node. `assigned` is what this node may report about. `handle` commits one message's
    reports and returns once they may be acknowledged. `draining`: the node reported that it is about to
    leave. `closed`: set by the server when the session is over, and the store knows. `certify` signs a
    certificate of the node for its request; None where control signs none."""

    def __init__(
        self,
        node: str,
        session: int,
        stream: ControlStream,
        handle: Callable[[NodeSession, Sequence[Report], Beat | None], Coroutine[Any, Any, None]],
        assigned: AssignedToNode,
        sign: Callable[[str, SignAsk], Coroutine[Any, Any, SignAnswer]],
        source: Callable[[str, str], Coroutine[Any, Any, SourceAnswer]],
        kept: Callable[[str, KeptAsk], Coroutine[Any, Any, KeptPage]],
        certify: Callable[[bytes], CertificateAnswer] | None = None,
    ) -> None:
        self.node = node
        self.assigned = assigned
        self.session = session
        self.draining = False
        self.closed = asyncio.Event()
        self._stream = stream
        self._handle = handle
        self._sign = sign
        self._source = source
        self._kept = kept
        self._kept_asks: deque[KeptAsk] = deque()
        self._certify = certify
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
                answer = await self._sign(self.node, request)
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
            self._sources.append(await self._source(self.node, digest))
            self._wake.set()

    def _certify_once(self, request: bytes) -> None:
        """Answers a request, but no more than one in CERTIFY_EVERY_S: each is a signature and a line of the
        log."""
        now = self._loop.time()
        if self._certify is not None and now - self._certified_at >= CERTIFY_EVERY_S:
            self._certified_at = now
            self._certificate = self._certify(request)
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
        page = await self._kept(self.node, self._kept_asks.popleft())
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


class Assigner:
    """Makes the Assign of a claimed job, and passes it to the session of the job's node; `sessions` are by
    node. `unsent` is called for a job whose node has none any more."""

    def __init__(
        self,
        settings: PlaneSettings,
        artifacts: Artifacts,
        cluster: ClusterState,
        sessions: Mapping[str, NodeSession],
        unsent: Callable[[str, AttemptKey], None],
        waiters: JobWaiters,
        clock: Callable[[], float],
        endpoints: Endpoints,
        traces: Traces | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._traces = traces
        self._settings = settings
        self._artifacts = artifacts
        self._cluster = cluster
        self._sessions = sessions
        self._unsent = unsent
        self._waiters = waiters
        self._clock = clock

    def assign(self, claimed: Claimed) -> None:
        self._waiters.changed(claimed.job)  # readers that follow its logs have a node now
        session = self._sessions.get(claimed.node)
        if session is None:
            self._unsent(claimed.node, AttemptKey(claimed.job, claimed.attempt))
            return
        worker, traceparent = self._cluster.workers.get(claimed.worker), claimed.traceparent or ""
        if traceparent and self._traces is not None:
            traceparent = self._traces.handed_on(claimed)
        endpoint = self._endpoints.by_id.get(claimed.endpoint)
        prefix = names.attempt_prefix(claimed.endpoint, claimed.job, claimed.attempt)
        assign = Assign(
            job=claimed.job,
            attempt=claimed.attempt,
            worker=claimed.worker,
            input=claimed.input,
            input_ref=claimed.input_ref,
            execution_timeout_ms=claimed.execution_timeout_ms,
            ttl_s=max(claimed.expires_at - self._clock(), 0.0),
            grant=replace(
                self._artifacts.grant,
                prefix=prefix,
                account=claimed.account,
                key=claimed.api_key,
                endpoint=claimed.endpoint,
                job=claimed.job,
                attempt=claimed.attempt,
            ),
            prices=worker.prices if worker else (),
            files_grant=self._own_grant(claimed.s3, prefix, claimed) if claimed.s3 else None,
            private_inputs=self._settings.allow_private_addresses,
            traceparent=traceparent,
            saved=claimed.saved,
            keeps_case=endpoint is not None and endpoint.keep_cases,
            stop_after=endpoint.replay.stop_after if endpoint is not None and endpoint.replay else 0,
        )
        session.assign(assign)

    def _own_grant(self, own: S3Config, prefix: str, claimed: Claimed) -> Grant:
        """Returns the grant of the caller's own bucket. The caller chose its address: only the operator may
        allow private ones."""
        folder = f"{own.object_path.strip('/')}/" if own.object_path.strip("/") else ""
        return Grant(
            endpoint_url=own.endpoint_url,
            public_endpoint=own.endpoint_url,
            region=own.region,
            bucket=own.bucket,
            prefix=folder + prefix,
            access_id=own.access_id,
            access_secret=own.access_secret,
            guarded=not self._settings.allow_private_addresses,
            account=claimed.account,
            key=claimed.api_key,
            endpoint=claimed.endpoint,
        )
