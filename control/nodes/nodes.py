"""The nodes that are connected to this process: opens their sessions, commits their reports, sends them work.

    stream ── Hello ──> refused (a sentence, and the end)
              └──> session raised in the store; what the node holds is reconciled with what the store says
                   └──> reports ──> one transaction: outcomes, chunks, the next claims ──> Ack, Assigns
    stream breaks ──> 5 s to come back, then its jobs are requeued

A double run is wasted work, never a double result: the store guards outcomes by node and attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from stoker.control import store
from stoker.control.bells import Bells
from stoker.control.commit import Commits
from stoker.control.dispatch import Dispatch
from stoker.control.errors import NotFound, Unavailable
from stoker.control.floor import Floor, FloorNode, FloorWorker
from stoker.control.keys import JoinRefused, join, joined, refuses
from stoker.control.node_session import NodeSession
from stoker.control.pod import WantedPod
from stoker.control.settings import PlaneSettings
from stoker.control.staffing import Staffing
from stoker.control.store import Conn
from stoker.control.types import Changed, Claimed, JobState, Reconciled, Reported
from stoker.wire.messages import (
    PROTOCOL,
    Assign,
    AttemptKey,
    Beat,
    Cancel,
    Desired,
    FromControl,
    Hello,
    LogHello,
    Outcome,
    Refusal,
    Refused,
    Released,
    Report,
    VolumeUsed,
    Welcome,
    WorkerState,
    accepts_protocol,
)
from stoker.wire.streams import ControlStream, StreamEnded

log = logging.getLogger(__name__)

HELLO_S = 10.0
RETRY_S = 1.0
GOODBYE_S = 2.0
CLOSING_S = 5.0

Opened: TypeAlias = tuple[int, Reconciled, tuple[WantedPod, ...]]
"""A session's number, what becomes of the attempts that the node holds, and the pods that it is to have."""


@dataclass(frozen=True, slots=True)
class _Broken:
    node: str
    session: int
    at: float


@dataclass(frozen=True, slots=True)
class _Committed:
    reported: Reported
    claimed: tuple[Claimed, ...]


class Nodes:
    def __init__(
        self,
        settings: PlaneSettings,
        commits: Commits,
        floor: Floor,
        dispatch: Dispatch,
        staffing: Staffing,
        bells: Bells,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._commits = commits
        self._floor = floor
        self._dispatch = dispatch
        self._staffing = staffing
        self._bells = bells
        self._clock = clock
        self._sessions: dict[str, NodeSession] = {}
        self._broken: asyncio.Queue[_Broken] = asyncio.Queue()
        self._stopping = False
        self._left = asyncio.Event()
        self.webhook_due = asyncio.Event()
        self.volume_used: Callable[[VolumeUsed], None] = lambda used: None
        self.pods_seen: Callable[[Sequence[WantedPod]], None] = lambda pods: None

    # -- a session's life

    async def serve(self, stream: ControlStream, peer: str) -> None:
        """One stream, from Hello to its end."""
        try:
            opened = await self._open(stream, peer)
        except StreamEnded as ended:
            log.info("%s went before its Hello was answered: %s", peer, ended)
            return
        except Unavailable as error:
            log.error("the node at %s cannot be taken in: %s", peer, error)
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
        if self._sessions.get(opened.node) is opened:
            del self._sessions[opened.node]
            self._floor.remove_node(opened.node, opened.session)
            self._left.set()
            if self._stopping:
                return  # it comes back to the next process, with what it holds
            self._staffing.wake.set()
            self._broken.put_nowait(_Broken(opened.node, opened.session, asyncio.get_running_loop().time()))
            await self._close(opened)

    async def _close(self, session: NodeSession) -> None:
        """From now on another boot of this node may take over: its process may have died."""
        now = self._clock()
        try:
            await self._commits.commit(
                lambda conn: store.close_session(conn, session.node, session.session, now)
            )
        except Unavailable as error:
            log.error("the end of node %s's session could not be stored: %s", session.node, error)

    async def _open(self, stream: ControlStream, peer: str) -> NodeSession | None:
        try:
            async with asyncio.timeout(HELLO_S):
                hello = (await stream.receive()).hello
        except TimeoutError:
            stream.end(f"no Hello within {HELLO_S:.0f} s")
            return None
        refusal = "the first message must be Hello" if hello is None else await self._refusal(hello)
        if hello is None or refusal is not None:
            log.warning("node %s at %s is refused: %s", hello.name if hello else "?", peer, refusal)
            await stream.send(FromControl(refusal=Refusal(refusal or "")))
            stream.end("refused")
            return None
        return await self._welcome(hello, stream)

    async def _refusal(self, hello: Hello) -> str | None:
        if not accepts_protocol(hello.protocol):
            return (
                f"protocol version {hello.protocol} is not spoken here: this control plane speaks "
                f"{PROTOCOL} and the one before; update the agent"
            )
        token, node, now = hello.join_token, hello.node, self._clock()
        return await self._commits.read(lambda conn: refuses(conn, token, node, now))

    async def _welcome(self, hello: Hello, stream: ControlStream) -> NodeSession | None:
        earlier = self._sessions.get(hello.node)
        opened = await self._stored(hello)
        if isinstance(opened, str) and earlier is not None and await _closes(earlier):
            opened = await self._stored(hello)
        if isinstance(opened, str):
            await stream.send(FromControl(refusal=Refusal(opened)))
            stream.end("refused")
            return None
        number, reconciled, pods = opened
        session = NodeSession(hello.node, number, stream, self._received)
        earlier = self._sessions.get(hello.node)
        self._sessions[hello.node] = session
        if earlier is not None:
            earlier.end("a newer session took over")
        self._seat(hello, number, reconciled)
        self.pods_seen(pods)
        session.welcome(
            Welcome(number, self._settings.beat_s, self._settings.lease_s, reconciled.keep, reconciled.stop)
        )
        self._staffing.tell(hello.node)
        self.apply(reconciled.changed)
        self._staffing.wake.set()
        return session

    async def _stored(self, hello: Hello) -> Opened | str:
        """Opens the node's session in the store, in one transaction with all that its Hello changes there.
        A sentence where the store refuses it."""
        held = {attempt.key for attempt in hello.attempts}
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
            join(conn, hello.join_token, hello.node, now)
            found = store.reconcile(conn, node=hello.node, session=session, held=held, now=now)
            store.noted(conn, found.changed)
            return session, found, store.reconcile_pods(conn, hello.node, hello.pods)

        try:
            return await self._commits.commit(open_session)
        except JoinRefused as refused:  # another node spent the token meanwhile
            return str(refused)

    def _seat(self, hello: Hello, session: int, reconciled: Reconciled) -> None:
        """Puts the node and what it holds on the floor, in place of what an earlier session said."""
        old = self._floor.nodes.get(hello.node)
        if old is not None:
            self._floor.remove_node(hello.node, old.session)
        drained = hello.node in self._floor.drained
        node = FloorNode(hello.node, session, hello.devices, dict(hello.facts), drained=drained)
        node.note(hello.samples)
        self._floor.nodes[hello.node] = node
        now = self._clock()
        for held in hello.workers:
            worker = FloorWorker(
                worker=held.worker,
                endpoint=held.endpoint,
                version=held.version,
                node=hello.node,
                session=session,
                state=held.state,
                devices=held.devices,
                concurrency=held.slots or 0,
                idle_since=now,
            )
            self._staffing.adopt(worker)
        for attempt in hello.attempts:
            if attempt.phase == "running":
                self._floor.occupy(attempt.worker, attempt.key, now)
        for endpoint in {held.endpoint for held in hello.workers}:
            self._dispatch.mark(endpoint)

    # -- what a node reports

    async def _received(self, session: NodeSession, reports: Sequence[Report], beat: Beat | None) -> None:
        if session.draining:
            self._drains(session)
        try:
            if beat is not None:
                await self._beat(session, beat)
            if reports:
                self._floor_news(session, reports)
                await self._commit_all(session, reports)
        except Unavailable as error:
            log.error("what node %s reports could not be stored: %s", session.node, error)
            raise StreamEnded(f"{error}, and report again") from error

    def _drains(self, session: NodeSession) -> None:
        node = self._floor.nodes.get(session.node)
        if node is not None and node.session == session.session and not node.draining:
            log.info("node %s is about to go: its workers get no more jobs", session.node)
            self._staffing.leaves(session.node)

    async def _commit_all(self, session: NodeSession, reports: Sequence[Report]) -> None:
        try:
            await self._commit(session, reports)
        except Unavailable:
            raise
        except Exception:
            log.exception("a batch of reports of node %s failed; trying them one by one", session.node)
            await self._commit_one_by_one(session, reports)

    async def _beat(self, session: NodeSession, beat: Beat) -> None:
        node = self._floor.nodes.get(session.node)
        if node is not None and beat.samples:
            before = node.ill
            node.note(beat.samples)
            if node.ill != before:
                log.warning("node %s: devices out of placement: %s", session.node, node.ill or "none")
                self._staffing.shun(session.node)
        now = self._clock()
        if not await self._commits.commit(
            lambda conn: store.touch_node(conn, session.node, session.session, now)
        ):
            raise StreamEnded("a newer session of this node exists")

    async def _commit(self, session: NodeSession, reports: Sequence[Report]) -> None:
        freed = {endpoint for report in reports if (endpoint := self._freed(report))}
        waiting = [endpoint for endpoint in sorted(freed) if self._dispatch.may_wait(endpoint)]
        seen = {endpoint: self._dispatch.seen(endpoint) for endpoint in waiting}
        slots = self._dispatch.reserve(waiting)
        now, node, number = self._clock(), session.node, session.session

        def work(conn: Conn) -> _Committed:
            reported = store.apply_reports(
                conn, node=node, session=number, reports=reports, now=now, prices=self._settings.price_list
            )
            store.noted(conn, reported.changed)
            store.note_leftovers(conn, [artifact.key for artifact in reported.orphans])
            claimed = store.claim(conn, slots, now) if slots and not self._dispatch.closed else ()
            return _Committed(reported, claimed)

        claimed: tuple[Claimed, ...] = ()
        try:
            done = await self._commits.commit(work)
            claimed = done.claimed
        finally:
            self._dispatch.settle(slots, claimed)
        self._dispatch.note_exhausted(slots, claimed, seen)
        for endpoint in freed:
            self._dispatch.look(endpoint)
        self.apply(done.reported.changed)
        self.pods_seen(done.reported.pods)
        for key in done.reported.chunks:
            self._bells.changed(key.job)
        for key in done.reported.stale:
            self._bells.changed(key.job)  # nobody rang for an end whose commit was in doubt
            session.cancel(Cancel(key.job, key.attempt, "a newer attempt has begun, or the job has ended"))

    async def _commit_one_by_one(self, session: NodeSession, reports: Sequence[Report]) -> None:
        for report in reports:
            try:
                await self._commit(session, [report])
            except Unavailable:
                raise
            except Exception:
                kind = type(report.body).__name__  # not its content, which is the caller's
                log.exception("report %d of node %s, a %s, is dropped", report.number, session.node, kind)
                if isinstance(report.body, Outcome):
                    await self._drop(session.node, AttemptKey(report.body.job, report.body.attempt))

    async def _drop(self, node: str, key: AttemptKey) -> None:
        """Its outcome cannot be stored, and its node will not tell another: the job is given out again."""
        now = self._clock()
        self.apply(
            await self._commits.commit(
                lambda conn: store.noted(conn, store.drop_attempt(conn, node, key, now))
            )
        )

    def _freed(self, report: Report) -> str | None:
        match report.body:
            case (
                Outcome(job=job, attempt=attempt)
                | Released(job=job, attempt=attempt)
                | Refused(job=job, attempt=attempt)
            ):
                return self._floor.release(AttemptKey(job, attempt), self._clock())
            case _:
                return None

    def _floor_news(self, session: NodeSession, reports: Sequence[Report]) -> None:
        for report in reports:
            if isinstance(report.body, WorkerState):
                self._worker_news(session, report.body)
            elif isinstance(report.body, Refused):
                log.warning("node %s refused job %s: %s", session.node, report.body.job, report.body.reason)
            elif isinstance(report.body, VolumeUsed):
                self.volume_used(report.body)

    def _worker_news(self, session: NodeSession, news: WorkerState) -> None:
        worker = self._floor.workers.get(news.worker)
        if worker is None or worker.session != session.session:
            return
        if news.state == "gone":
            self._floor.remove_worker(news.worker)
        elif worker.state != "stopping":
            if news.state != worker.state:
                worker.idle_since = self._clock()
            worker.state, worker.reason = news.state, news.reason
            if news.state == "stopping" and worker.spec is not None:
                worker.spec = None  # it is replaced, and its agent must hear that it is not wanted again
                self._staffing.tell(session.node)
            worker.log_tail = news.log_tail
            worker.concurrency = news.slots or worker.concurrency
            self._dispatch.look(worker.endpoint)
        self._staffing.wake.set()

    async def speaks(self, hello: LogHello) -> str | None:
        """Why whoever speaks for a node's logs is not in its session; None when it is."""
        if not await self._commits.read(lambda conn: joined(conn, hello.join_token, hello.node)):
            return f"this is not the join token of node {hello.node}, or it was revoked"
        session = self._sessions.get(hello.node)
        if session is None or session.session != hello.session:
            return f"node {hello.node} has no session {hello.session}"
        return None

    # -- what follows from a change

    def apply(self, changed: Iterable[Changed]) -> None:
        """Rings for who waits, stops what must stop, and looks again where a job went back to the queue."""
        for change in changed:
            if change.gone:
                self._bells.gone(change.job, NotFound(f"job {change.job}: its time has passed"))
            elif change.view is not None:
                self._bells.ended(change.view)
                if change.view.webhook is not None:
                    self.webhook_due.set()
            else:
                self._bells.changed(change.job)
            if change.state is JobState.IN_QUEUE:
                self._dispatch.mark(change.endpoint)
            if change.cancel is not None:
                node, key = change.cancel
                self.cancel(node, Cancel(key.job, key.attempt, "expired" if change.gone else "cancelled"))

    def assign(self, node: str, assign: Assign) -> None:
        session = self._sessions.get(node)
        if session is not None:
            session.assign(assign)

    def cancel(self, node: str, cancel: Cancel) -> None:
        session = self._sessions.get(node)
        if session is not None:
            session.cancel(cancel)

    def desire(self, node: str, desired: Desired) -> None:
        session = self._sessions.get(node)
        if session is not None:
            session.desire(desired)

    def doubt(self, error: Exception) -> None:
        """A commit may have claimed or ended what nobody here heard of: every node says Hello again."""
        log.error("every node is asked to connect anew: %s", error)
        for session in self._sessions.values():
            session.end("what was stored is in doubt")

    def lapse(self, lost: Mapping[str, int]) -> None:
        """The store has closed these sessions. Where the wall clock was set forward, streams still stand:
        a node that is there says Hello again at once, and what is not there is no place for a job."""
        for node, number in lost.items():
            session = self._sessions.get(node)
            if session is not None and session.session == number:
                session.end("by the clock of control, no word from it for too long")

    async def stop(self) -> None:
        """Tells every agent that this process goes. Returns when their sessions are over, and soon."""
        self._stopping = True
        for session in self._sessions.values():
            session.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                while self._sessions:
                    self._left.clear()
                    await self._left.wait()

    def connected(self) -> set[str]:
        return set(self._sessions)

    async def watch_broken(self) -> None:
        """A stream that broke has `broken_s` to come back; then its jobs go back to the queue."""
        loop = asyncio.get_running_loop()
        while True:
            broken = await self._broken.get()
            await asyncio.sleep(max(broken.at + self._settings.broken_s - loop.time(), 0.0))
            now = self._clock()

            def requeue(conn: Conn, broken: _Broken = broken, now: float = now) -> tuple[Changed, ...]:
                why = "its connection broke"
                return store.noted(conn, store.requeue_node(conn, broken.node, broken.session, now, why))

            try:
                self.apply(await self._commits.commit(requeue))
            except Exception as error:
                log.error("the jobs of node %s could not be requeued yet: %s", broken.node, error)
                await asyncio.sleep(RETRY_S)
                # No node could come back meanwhile: that takes a commit, too.
                self._broken.put_nowait(replace(broken, at=loop.time()))


async def _closes(session: NodeSession) -> bool:
    """Whether it is just ending: its agent was killed, and started again before the store had taken in what
    it had reported. The session of an agent that is there does not."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSING_S):
            await session.closed.wait()
    return session.closed.is_set()
