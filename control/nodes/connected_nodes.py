"""The nodes that are connected to this process: opens their sessions, commits their reports, sends them work.

    stream ── Hello ──> refused (a message, and the end)
              ├── with a join token ──> a credential to reconnect with, and the end: no session
              └──> session raised in the store; what the node holds is reconciled with the store
                   └──> reports ──> one transaction: outcomes, chunks, the next claims ──> Ack, Assigns
    stream breaks ──> 5 s to reconnect, then its jobs are requeued

A double run is wasted work, never a double result: the store guards outcomes by node and attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import Unavailable, level_of
from stoker.control.jobs.waiters import JobChanges
from stoker.control.nodes.answers import Answers
from stoker.control.nodes.assigned import AssignedToNode
from stoker.control.nodes.joining import (
    JoinRefused,
    is_credential_of,
    is_join_token,
    join,
    reconnect,
    unknown,
    why_refused,
)
from stoker.control.nodes.reports import NodeReports, note_samples
from stoker.control.nodes.session import NodeSession
from stoker.control.nodes.sessions import NodeSessions
from stoker.control.nodes.yields import Yields
from stoker.control.rules.nodes.hello import assigned_workers, checked_hello, reach_of
from stoker.control.rules.nodes.validation import AssignedWorker, InvalidReport
from stoker.control.rules.nodes.ways import Reach, allowed
from stoker.control.rules.pods import WantedPod
from stoker.control.rules.types import Changed, Reconciled
from stoker.control.scheduling.cluster_state import NodeState
from stoker.control.scheduling.desired_pods import DesiredState
from stoker.control.scheduling.placed import PlacedWorker
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store import Conn
from stoker.wire.messages import (
    PROTOCOL,
    AttemptKey,
    FromControl,
    HeldWorker,
    Hello,
    Refusal,
    StreamHello,
    Welcome,
    accepts_protocol,
)
from stoker.wire.streams import ControlStream, StreamEnded, first_message

log = logging.getLogger(__name__)

RETRY_S = 1.0
GOODBYE_S = 2.0
CLOSING_S = 5.0

Opened: TypeAlias = tuple[int, Reconciled, tuple[WantedPod, ...], dict[str, AssignedWorker]]
"""A session's number, what becomes of the attempts that the node holds, the pods that it is to have, and the
workers assigned to it."""


class _Broken(Struct, frozen=True):
    """A session whose stream broke. `ahead`: the jobs that lay ahead of a worker then."""

    node: str
    session: int
    at: float
    ahead: frozenset[AttemptKey]


class ConnectedNodes:
    """The connected nodes, from their Hello to the end of their sessions."""

    def __init__(
        self,
        context: Context,
        scheduling: Scheduling,
        sessions: NodeSessions,
        changes: JobChanges,
        reports: NodeReports,
        answers: Answers,
        yields: Yields,
        desired: DesiredState,
    ) -> None:
        self._settings, self._commits, self._clock = context.settings, context.commits, context.clock
        self._cluster, self._dispatch = scheduling.cluster, scheduling.dispatch
        self._scaling, self._sessions, self._changes = scheduling.scaling, sessions, changes
        self._reports, self._answers, self._yields, self._desired = reports, answers, yields, desired
        self._broken: asyncio.Queue[_Broken] = asyncio.Queue()

    # -- a session's life

    async def admit(self, token: str) -> str | None:
        """Returns why a caller with this token may open no stream; None if it may send a Hello."""
        return await self._commits.read(lambda conn: unknown(conn, token))

    async def serve(self, stream: ControlStream, peer: str, token: str) -> None:
        """Serves one stream, from Hello to its end."""
        try:
            opened = await self._open(stream, peer, token)
        except StreamEnded as ended:
            log.info("%s went before its Hello was answered: %s", peer, ended)
            return
        except Unavailable as error:
            log.log(level_of(error), "the node at %s cannot be taken in: %s", peer, error)
            stream.end(str(error))  # not a refusal: the agent tries again
            return
        if opened is None:
            return
        try:
            await self._run(opened)
        finally:
            opened.closed.set()

    async def _run(self, opened: NodeSession) -> None:
        reason = await opened.run()
        log.info("session %d of node %s is over: %s", opened.session, opened.node, reason)
        if self._sessions.remove(opened):
            ahead = self._cluster.all_ahead()
            self._cluster.remove_node(opened.node, opened.session)
            if self._sessions.stopping:
                return  # it reconnects to the next process, with what it holds
            self._scaling.wake.set()
            at = asyncio.get_running_loop().time()
            self._broken.put_nowait(_Broken(opened.node, opened.session, at, ahead))
            await self._close(opened)

    async def _close(self, session: NodeSession) -> None:
        """Stores that the session is over: from now on another boot of this node may take over, since its
        process may have died."""
        now = self._clock()
        try:
            await self._commits.commit(
                lambda conn: store.close_session(conn, session.node, session.session, now)
            )
        except Unavailable as error:
            log.log(
                level_of(error), "the end of node %s's session could not be stored: %s", session.node, error
            )

    async def _open(self, stream: ControlStream, peer: str, token: str) -> NodeSession | None:
        if (message := await first_message(stream)) is None:
            return None
        hello = message.hello
        refusal: str | None = "the first message must be Hello"
        if hello is not None:
            hello, refusal = await self._looked_at(hello, token)
        if hello is None or refusal is not None:
            log.warning("node %s at %s is refused: %s", hello.name if hello else "?", peer, refusal)
            await _refuse(stream, refusal or "")
            return None
        if is_join_token(token):
            await self._join(hello, token, stream, message.certificate_ask)
            return None
        return await self._welcome(hello, token, stream, peer)

    async def _looked_at(self, hello: Hello, token: str) -> tuple[Hello, str | None]:
        """Returns the Hello without what must not be accepted, and why the node is refused, if it is."""
        try:
            return checked_hello(hello), await self._refusal(hello, token)
        except InvalidReport as error:
            return replace(hello, name=hello.name[:80]), str(error)

    async def _refusal(self, hello: Hello, token: str) -> str | None:
        if not accepts_protocol(hello.protocol):
            return (
                f"protocol version {hello.protocol} is not spoken here: this control plane speaks "
                f"{PROTOCOL} and the one before; update the agent"
            )
        node, now = hello.node, self._clock()
        proof = hello.credential
        return await self._commits.read(lambda conn: why_refused(conn, token, node, now, proof))

    async def _join(self, hello: Hello, token: str, stream: ControlStream, request: bytes) -> None:
        """Gives the node a credential, with which it then opens its session, and a certificate for its
        request."""
        now = self._clock()

        def add(conn: Conn) -> str:
            store.add_node(conn, hello, now)
            return join(conn, token, hello.node, now, hello.credential)

        try:
            credential = await self._commits.commit(add)
        except JoinRefused as refused:  # another node spent the token meanwhile
            await _refuse(stream, str(refused))
            return
        log.info("node %s (%s) joined", hello.node, hello.name)
        wanted = request and self._answers.certifies
        certificate = self._answers.certificate(hello.node, credential, request) if wanted else None
        await stream.send(FromControl(credential=credential, certificate=certificate))
        stream.end("the node joined")

    async def _welcome(
        self, hello: Hello, token: str, stream: ControlStream, peer: str
    ) -> NodeSession | None:
        earlier = self._sessions.by_node.get(hello.node)
        opened = await self._stored(hello, token)
        if isinstance(opened, str) and earlier is not None and await _closes(earlier):
            opened = await self._stored(hello, token)
        if isinstance(opened, str):
            await _refuse(stream, opened)
            return None
        settings = self._settings
        number, reconciled, pods, workers = opened
        assigned = AssignedToNode(hello.node, self._cluster, self._desired, reconciled.assigned)
        receive = self._reports.receive
        session = NodeSession(hello.node, number, token, stream, receive, assigned, self._answers)
        self._sessions.add(session)
        reach = allowed(reach_of(hello, peer, settings.network_namespace), settings.gateway_ways)
        self._seat(hello, session, workers, reach)
        self._reports.pods_seen(pods)
        strange = {pod.pod for pod in hello.pods} - {wanted.pod.id for wanted in pods}
        if strange:
            assigned.log_once("Hello", f"pod {min(strange)[:80]!r} is not one that control gave to this node")
        session.welcome(
            Welcome(
                number,
                settings.beat_s,
                settings.lease_s,
                reconciled.keep,
                reconciled.stop,
                reach.wants_tunnel,
                saves=True,
                yields=True,
                kept=True,
                certifies=self._answers.certifies,
            )
        )
        self._scaling.desired.send(hello.node)
        self._yields.ask_again(hello.node)
        self._changes.apply(reconciled.changed)
        self._scaling.wake.set()
        return session

    async def _stored(self, hello: Hello, token: str) -> Opened | str:
        """Opens the node's session in the store, in one transaction with all that its Hello changes there.
        A sentence where the store refuses it."""
        reported = {attempt.key for attempt in hello.attempts}
        now = self._clock()

        def open_session(conn: Conn) -> Opened | str:
            session = store.open_session(
                conn,
                node=hello.node,
                boot=hello.boot,
                name=hello.name,
                devices=hello.devices,
                facts=hello.facts,
                now=now,
                lease_s=self._settings.lease_s,
            )
            if isinstance(session, str):
                return session
            reconnect(conn, token, hello.node, now)
            found = store.reconcile(conn, node=hello.node, session=session, reported=reported, now=now)
            store.noted(conn, found.changed)
            workers = store.workers_of_node(conn, hello.node)
            return session, found, store.reconcile_pods(conn, hello.node, hello.pods), workers

        try:
            return await self._commits.commit(open_session)
        except JoinRefused as refused:  # its credential was revoked meanwhile
            return str(refused)

    def _seat(
        self,
        hello: Hello,
        opened: NodeSession,
        workers: Mapping[str, AssignedWorker],
        reach: Reach,
    ) -> None:
        """Puts the node and what it holds into the cluster state, and replaces an earlier session's."""
        session = opened.session
        old = self._cluster.nodes.get(hello.node)
        if old is not None:
            self._cluster.remove_node(hello.node, old.session)
        drained = hello.node in self._cluster.drained
        node = NodeState(
            hello.node,
            session,
            hello.devices,
            dict(hello.facts),
            drained=drained,
            reach=reach,
            jobs_ahead=hello.jobs_ahead,
            saves=hello.saves,
            yields=hello.yields,
        )
        note_samples(opened, node, hello.samples)
        self._cluster.nodes[hello.node] = node
        known, others = assigned_workers(hello.workers, workers)
        for worker in known:
            self._scaling.adopt(self._placed_worker(opened, worker))
        for worker in others:
            why = f"worker {worker.worker!r} of endpoint {worker.endpoint!r} was not assigned to it"
            opened.assigned.log_once("Hello", why[:200])
            if worker.worker not in self._cluster.workers:
                self._scaling.adopt(self._placed_worker(opened, replace(worker, endpoint="", version=0)))
        ours = [attempt for attempt in hello.attempts if opened.assigned.holds(attempt)]
        at_workers = {one.key: one.worker for one in ours if one.phase in ("running", "waiting")}
        self._cluster.settle((), at_workers, self._clock())
        for endpoint in {worker.endpoint for worker in known}:
            self._dispatch.mark(endpoint)

    def _placed_worker(self, opened: NodeSession, worker: HeldWorker) -> PlacedWorker:
        return PlacedWorker(
            worker=worker.worker,
            endpoint=worker.endpoint,
            version=worker.version,
            node=opened.node,
            session=opened.session,
            state=worker.state,
            devices=worker.devices,
            concurrency=worker.slots or 0,
            serves=worker.serves,
            reason=worker.waits_for,
            waits_for=worker.waits_for,
            cold_start=worker.cold_start,
            idle_since=self._clock(),
        )

    async def speaks(self, hello: StreamHello, token: str) -> str | None:
        """Returns why the caller of a second stream does not belong to the node's session; None if it
        does."""
        if not await self._commits.read(lambda conn: is_credential_of(conn, token, hello.node)):
            return f"this is not what node {hello.node} came in with, or it was revoked"
        session = self._sessions.by_node.get(hello.node)
        if session is None or session.session != hello.session:
            return f"node {hello.node} has no session {hello.session}"
        return None

    async def watch_broken(self) -> None:
        """Waits `broken_s` for each broken stream to come back; then puts its node's jobs back into the
        queue."""
        loop = asyncio.get_running_loop()
        while True:
            broken = await self._broken.get()
            await asyncio.sleep(max(broken.at + self._settings.broken_s - loop.time(), 0.0))
            now = self._clock()

            def requeue(conn: Conn, broken: _Broken = broken, now: float = now) -> tuple[Changed, ...]:
                why = "its connection broke"
                back = store.requeue_node(conn, broken.node, broken.session, now, why, broken.ahead)
                return store.noted(conn, back)

            try:
                self._changes.apply(await self._commits.commit(requeue))
            except Exception as error:
                log.log(
                    level_of(error), "the jobs of node %s could not be requeued yet: %s", broken.node, error
                )
                await asyncio.sleep(RETRY_S)
                # No node could come back meanwhile: that takes a commit, too.
                self._broken.put_nowait(replace(broken, at=loop.time()))


async def _refuse(stream: ControlStream, why: str) -> None:
    await stream.send(FromControl(refusal=Refusal(why)))
    stream.end("refused")


async def _closes(session: NodeSession) -> bool:
    """Returns whether a session is just ending: its agent was killed, and started again before the store had
    taken in what the agent had reported. The session of an agent that is there does not end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSING_S):
            await session.closed.wait()
    return session.closed.is_set()
