"""The session of this node on one connection: Hello, Welcome, then both directions until the stream ends.

A Hello with a join token is answered with a credential instead, and opens no session.

One task writes (so fragments of two messages never mix), one reads, one beats. Whatever ends one of them ends
the session; the reports that were not acknowledged stay in the outbox, and the next session sends them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from stoker.agent.errors import AgentRefused
from stoker.agent.host.devices.watch import DeviceWatch
from stoker.agent.host.storage.volume_watch import VolumeWatch
from stoker.agent.interfaces import Certificates
from stoker.agent.jobs.attempts.attempts import Attempts
from stoker.agent.jobs.inputs.kept_requests import KeptRequests
from stoker.agent.jobs.reports.reports import Reports
from stoker.agent.jobs.uploads.signing_requests import SigningRequests
from stoker.agent.link.lease import Lease
from stoker.agent.link.source_requests import SourceRequests
from stoker.agent.pods.pods import Pods
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.agent.workers.lifecycle.workers import Workers
from stoker.wire.messages import (
    AttemptKey,
    Beat,
    CertificateAnswer,
    FromAgent,
    FromControl,
    Hello,
    StreamHello,
    Welcome,
)
from stoker.wire.streams import AgentStream, HasLogs, HasTunnels, StreamEnded

log = logging.getLogger(__name__)

Tunnelling = Callable[[HasTunnels, StreamHello], Coroutine[Any, Any, None]]
"""Holds the tunnel of one session open."""

SILENT_BEATS = 3
"""A connection on which this many beats got no answer is closed: it may be half open."""


class Node(Struct, frozen=True):
    """The parts of the agent that a session connects with control."""

    workers: Workers
    attempts: Attempts
    reports: Reports
    lease: Lease
    watch: DeviceWatch[Worker]
    pods: Pods
    volumes: VolumeWatch
    boottime: Callable[[], float]
    next_beat: Callable[[], int]
    take_new_facts: Callable[[], Mapping[str, str]]
    draining: Callable[[], bool]
    signing: SigningRequests
    source_requests: SourceRequests
    kept_requests: KeptRequests
    keep_credential: Callable[[str], bool]
    certificates: Certificates
    on_welcome: Callable[[], None]
    tunnel: Tunnelling | None


class Joined(Exception):
    """Control gave this node a credential of its own, which is kept: it reconnects with that."""


class Session:
    """The session with control. `welcomed`: control has accepted this node. `control_stops`: control has
    announced that it stops. `control_silent`: control answers no more."""

    def __init__(self, node: Node, stream: AgentStream, answer_s: float) -> None:
        self._node, self._stream, self._answer_s = node, stream, answer_s
        self._beat: Beat | None = None
        self._revision = 0
        self._speaker = StreamHello("", 0)
        self._tunnel_wanted = False
        self._certifies = self._certificate_requested = False
        self._certificate_ask = b""
        self.welcomed = False
        self.control_stops = self.control_silent = False

    async def run(self, hello: Hello) -> NoReturn:
        """Runs the session until it is over: raises StreamEnded with the reason, Joined or AgentRefused."""
        try:
            beat_s = await self._open(hello)
            await self._serve(beat_s)
        finally:
            self._stream.end("the session is over")

    async def _open(self, hello: Hello) -> float:
        """Opens the session; returns the seconds from one beat to the next."""
        node = self._node
        first = node.reports.reconnected()
        node.signing.reconnected()
        node.source_requests.reconnected()
        node.kept_requests.reconnected()
        attempts = node.attempts.held() + node.reports.reporting()
        sent = node.boottime()
        workers, samples = node.workers.held(), node.watch.samples()
        pods = node.pods.held()
        whole = replace(
            hello, workers=workers, attempts=attempts, first_unacked=first, samples=samples, pods=pods
        )
        try:
            async with asyncio.timeout(self._answer_s):
                request = node.certificates.request()
                await self._stream.send(FromAgent(hello=whole, certificate_ask=request))
                message = await self._stream.receive()
        except TimeoutError:
            raise StreamEnded(f"no answer to Hello within {self._answer_s:g} s") from None
        if message.refusal is not None:
            raise AgentRefused(message.refusal.reason)
        if message.credential is not None:
            self._join(message.credential, message.certificate)
        if message.welcome is None:
            raise StreamEnded("control did not begin with a Welcome")
        self._welcome(hello, message.welcome, sent)
        self._received(message)
        return message.welcome.beat_s

    def _join(self, credential: str, certificate: CertificateAnswer | None) -> NoReturn:
        """Keeps the credential first: with a new one and an old certificate, the node can join again."""
        if self._node.keep_credential(credential):
            if certificate is not None:
                self._node.certificates.answered(certificate)
            raise Joined("this node joined; it reconnects with a credential of its own")
        raise StreamEnded("the credential that this node joined with could not be kept")

    def _welcome(self, hello: Hello, welcome: Welcome, hello_sent: float) -> None:
        log.info("session %d begins", welcome.session)
        self.welcomed = True
        self._speaker = StreamHello(hello.node, welcome.session)
        self._tunnel_wanted, self._certifies = welcome.tunnel, welcome.certifies
        self._node.lease.begin(welcome.lease_s, hello_sent)
        self._node.reports.welcomed(saves=welcome.saves)
        self._node.attempts.control_takes_yields = welcome.yields
        self._node.kept_requests.welcomed(kept=welcome.kept)
        self._node.attempts.drop(welcome.stop)
        self._node.on_welcome()

    async def _serve(self, beat_s: float) -> NoReturn:
        node, ended = self._node, StreamEnded("ended")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write(), name="write")
                tasks.create_task(self._read(), name="read")
                tasks.create_task(self._beats(beat_s), name="beat")
                if isinstance(self._stream, HasLogs):
                    tasks.create_task(node.attempts.logs.run(self._stream, self._speaker), name="logs")
                if self._tunnel_wanted and node.tunnel is not None and isinstance(self._stream, HasTunnels):
                    tasks.create_task(node.tunnel(self._stream, self._speaker), name="tunnel")
        except* StreamEnded as group:
            ended = StreamEnded(_first(group))
        raise ended

    # -- towards control

    async def _write(self) -> None:
        node, sent_draining = self._node, False
        wake = node.reports.wake
        while True:
            await wake.wait()
            wake.clear()
            while True:
                beat, self._beat = self._beat, None
                reports = node.reports.take()
                requests = node.signing.take() if node.signing.unsent else ()
                sources = node.source_requests.take() if node.source_requests.unsent else ()
                kept = node.kept_requests.take() if node.kept_requests.unsent else ()
                draining = node.draining() and not sent_draining
                if beat is None and not (reports or requests or sources or kept or draining):
                    break
                sent_draining = sent_draining or draining
                certificate_ask, self._certificate_ask = self._certificate_ask, b""
                if beat is not None:
                    node.lease.sent(beat.number, node.boottime())
                await self._stream.send(
                    FromAgent(None, beat, reports, draining, requests, sources, certificate_ask, kept)
                )

    async def _beats(self, beat_s: float) -> None:
        """Prepares a beat every `beat_s` seconds. Each carries the newest samples, once. A device that became
        unhealthy is reported at once."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(beat_s):
                    await self._node.watch.changed.wait()
            oldest = self._node.lease.unanswered_since()
            if oldest is not None and self._node.boottime() - oldest > SILENT_BEATS * beat_s:
                self.control_silent = True
                raise StreamEnded("control answers no more")
            unsent = {} if self._beat is None else self._beat.facts
            facts = {**unsent, **self._node.take_new_facts()}
            self._beat = Beat(self._node.next_beat(), self._node.watch.new_samples(), facts)
            if self._certifies and not self._certificate_requested:
                self._certificate_ask = self._node.certificates.request()
                self._certificate_requested = bool(self._certificate_ask)
            self._node.reports.wake.set()

    # -- from control

    async def _read(self) -> None:
        while True:
            for message in await self._stream.receive_all():
                self._received(message)

    def _received(self, message: FromControl) -> None:
        """Workers before their Assigns, Assigns before the Cancels that may follow them."""
        node = self._node
        self.control_stops = self.control_stops or message.stopping
        if message.ack is not None:
            node.reports.ack(message.ack.report)
            node.attempts.acked(message.ack.report)
            node.lease.acked(message.ack.beat)
            node.attempts.moved.set()
        if message.desired is not None and message.desired.revision >= self._revision:
            self._revision = message.desired.revision
            node.workers.desire(message.desired.workers)
            node.pods.desire(message.desired.pods)
            node.attempts.logs.begin_workers()
            node.volumes.desire(message.desired.volumes, [pod.volume for pod in message.desired.pods])
        for assign in message.assigns:
            node.attempts.assign(assign)
        for answer in message.answers:
            node.signing.answered(answer)
        if message.certificate is not None:
            self._certificate_requested = False
            node.certificates.answered(message.certificate)
        for source in message.sources:
            node.source_requests.answered(source)
        if message.kept is not None:
            node.kept_requests.answered(message.kept)
        for cancel in message.cancels:
            node.attempts.cancel(AttemptKey(cancel.job, cancel.attempt), cancel.reason)
        for request in message.yields:
            node.attempts.ask_to_yield(AttemptKey(request.job, request.attempt), request.reason)


def _first(group: BaseExceptionGroup[StreamEnded]) -> str:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else str(first)
