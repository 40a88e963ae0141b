"""Commits what the connected nodes report, and brings the cluster state up to date with it.

    reports ──valid?──> cluster state ──> one transaction: outcomes, chunks, the next claims ──> Ack, Assigns
       └── not valid: logged once, and the attempt that is not the node's is stopped there

A double run is wasted work, never a double result: the store guards outcomes by node and attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import Unavailable, level_of
from stoker.control.jobs.waiters import JobChanges, JobWaiters
from stoker.control.metrics.counters import Counters
from stoker.control.nodes.session import NodeSession
from stoker.control.rules.nodes import validation
from stoker.control.rules.nodes.hello import check_facts, sampled
from stoker.control.rules.nodes.validation import InvalidReport
from stoker.control.rules.pods import WantedPod
from stoker.control.rules.types import Claimed, ReportsApplied
from stoker.control.scheduling.cluster_state import NodeState
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store import Conn
from stoker.wire.messages import (
    AttemptKey,
    Beat,
    Cancel,
    Chunk,
    DeviceSample,
    Outcome,
    Progress,
    Ref,
    Refused,
    Released,
    Report,
    Save,
    Uploading,
    Usage,
    VolumeUsed,
    WorkerState,
)
from stoker.wire.streams import StreamEnded

log = logging.getLogger(__name__)


class _Committed(Struct, frozen=True):
    reported: ReportsApplied
    claimed: tuple[Claimed, ...]
    unpaid: Sequence[str]


class NodeReports:
    """The committer of nodes' reports. `pods_seen` and `volume_used` take what nodes report of pods and
    volumes, `counters` counts."""

    def __init__(
        self,
        context: Context,
        scheduling: Scheduling,
        waiters: JobWaiters,
        changes: JobChanges,
        counters: Counters,
        pods_seen: Callable[[Sequence[WantedPod]], None],
        volume_used: Callable[[VolumeUsed], None],
    ) -> None:
        self._settings, self._commits, self._clock = context.settings, context.commits, context.clock
        self._cluster, self._dispatch = scheduling.cluster, scheduling.dispatch
        self._scaling, self._waiters, self._changes = scheduling.scaling, waiters, changes
        self._counters, self.pods_seen, self._volume_used = counters, pods_seen, volume_used

    async def receive(self, session: NodeSession, reports: Sequence[Report], beat: Beat | None) -> None:
        if session.draining:
            self._drains(session)
        try:
            if beat is not None:
                await self._beat(session, beat)
            good, rejected = validation.check_reports(reports, session.assigned)
            if good:
                freed = self._apply_to_cluster(session, good)
                try:
                    await self._commit(session, good, freed)
                except Unavailable:
                    raise
                except Exception:
                    log.exception(
                        "a batch of reports of node %s failed; trying them one by one", session.node
                    )
                    await self._commit_one_by_one(session, good)
                session.assigned.end(good)
            if rejected:
                await self._answer_rejected(session, rejected)
        except Unavailable as error:
            log.log(level_of(error), "what node %s reports could not be stored: %s", session.node, error)
            raise StreamEnded(f"{error}, and report again") from error

    def _drains(self, session: NodeSession) -> None:
        node = self._cluster.nodes.get(session.node)
        if node is not None and node.session == session.session and not node.draining:
            log.info("node %s is about to go: its workers get no more jobs", session.node)
            self._scaling.leaves(session.node)

    async def _answer_rejected(self, session: NodeSession, rejected: Sequence[tuple[Report, str]]) -> None:
        """Stops attempts that are not the node's; drops attempts that are, but whose end cannot be taken:
        they have ended, and their jobs are assigned again."""
        for report, why in rejected:
            session.assigned.log_once(type(report.body).__name__, why)
            match report.body:
                case Outcome(job=job, attempt=attempt) if (
                    AttemptKey(job, attempt) in session.assigned.attempts
                ):
                    self._cluster.release(AttemptKey(job, attempt), self._clock())
                    await self._drop(session.node, AttemptKey(job, attempt))
                case (
                    Outcome(job=job, attempt=attempt)
                    | Chunk(job=job, attempt=attempt)
                    | Save(job=job, attempt=attempt)
                    | Progress(job=job, attempt=attempt)
                    | Uploading(job=job, attempt=attempt)
                ):
                    session.cancel(
                        Cancel(job, attempt, "it was not assigned to this node, or ended long ago")
                    )

    async def _beat(self, session: NodeSession, beat: Beat) -> None:
        node = self._cluster.nodes.get(session.node)
        if node is not None and beat.samples:
            before = node.unhealthy
            note_samples(session, node, beat.samples)
            if node.unhealthy != before:
                log.warning("node %s: devices out of placement: %s", session.node, node.unhealthy or "none")
                self._scaling.avoid(session.node)
        if node is not None and beat.facts:
            self._facts(session, node, beat.facts)
        now = self._clock()
        if not await self._commits.commit(
            lambda conn: store.touch_node(conn, session.node, session.session, now)
        ):
            raise StreamEnded("a newer session of this node exists")

    def _facts(self, session: NodeSession, node: NodeState, changed: Mapping[str, str]) -> None:
        """Stores facts of the node that changed. Workers that found no place may have one now."""
        facts = {**node.facts, **changed}
        try:
            check_facts(facts)
        except InvalidReport as error:
            session.assigned.log_once("Beat", str(error))
            return
        node.facts = facts
        self._scaling.wake.set()

    async def _commit(self, session: NodeSession, reports: Sequence[Report], freed: Collection[str]) -> None:
        """Commits the reports. `freed`: the endpoints of whose workers slots became free."""
        backlog = self._dispatch.backlog
        waiting = {endpoint: backlog[endpoint] for endpoint in sorted(backlog.keys() & freed)}
        slots = self._dispatch.reserve(waiting)
        now, node, number = self._clock(), session.node, session.session

        def work(conn: Conn) -> _Committed:
            unpaid: list[str] = []
            due = [
                report
                for report in reports
                if not isinstance(report.body, Usage) or _is_paid(conn, node, report.body, unpaid)
            ]
            reported = store.apply_reports(
                conn, node=node, session=number, reports=due, now=now, prices=self._settings.price_list
            )
            if any(change.losers for change in reported.changed):
                store.noted(conn, reported.changed)
            if reported.orphans:
                store.note_orphans(conn, [artifact.key for artifact in reported.orphans])
            claimed = store.claim(conn, slots, now) if slots and not self._dispatch.closed else ()
            return _Committed(reported, claimed, unpaid)

        claimed: tuple[Claimed, ...] = ()
        try:
            done = await self._commits.commit(work)
            claimed = done.claimed
        finally:
            self._dispatch.settle(slots, claimed)
        if slots:
            self._dispatch.note_exhausted(slots, claimed, waiting)
        for endpoint in backlog.keys() & freed:
            self._dispatch.look(endpoint)
        self._changes.apply(done.reported.changed)
        if done.reported.costs or done.reported.delayed:
            self._count(session, done.reported)
        for why in done.unpaid[:1]:
            session.assigned.log_once("Usage", why)
        if done.reported.pods:
            self.pods_seen(done.reported.pods)
        for key in done.reported.chunks:
            self._waiters.changed(key.job)
        for key in done.reported.stale:
            self._waiters.changed(key.job)  # an end whose commit was uncertain woke no waiter
            session.cancel(Cancel(key.job, key.attempt, "a newer attempt has begun, or the job has ended"))

    def _count(self, session: NodeSession, reported: ReportsApplied) -> None:
        self._counters.billed(reported.costs)
        for key in reported.delayed:
            self._counters.upload_failed(session.assigned.attempts[key].own_bucket)

    async def _commit_one_by_one(self, session: NodeSession, reports: Sequence[Report]) -> None:
        for report in reports:
            try:
                await self._commit(session, [report], ())
            except Unavailable:
                raise
            except Exception:
                kind = type(report.body).__name__  # not its content, which is the caller's
                log.exception("report %d of node %s, a %s, is dropped", report.number, session.node, kind)
                await self._drop_report(session.node, report.body)

    async def _drop_report(self, node: str, body: object) -> None:
        """Drops a report that cannot be stored. The object of a chunk or a save is noted for deletion, since
        no row will name the object."""
        match body:
            case Outcome(job=job, attempt=attempt):
                await self._drop(node, AttemptKey(job, attempt))
            case Chunk(job=job, ref=Ref(key=key)) | Save(job=job, ref=Ref(key=key)):
                await self._commits.commit(lambda conn: store.release(conn, job, [key]))

    async def _drop(self, node: str, key: AttemptKey) -> None:
        """Drops an attempt whose outcome cannot be stored, since its node will not report another: the job is
        assigned again."""
        now = self._clock()
        self._changes.apply(
            await self._commits.commit(
                lambda conn: store.noted(conn, store.drop_attempt(conn, node, key, now))
            )
        )

    def _apply_to_cluster(self, session: NodeSession, reports: Sequence[Report]) -> set[str]:
        """Returns the endpoints of whose workers slots became free."""
        freed: set[str | None] = set()
        for report in reports:
            match report.body:
                case WorkerState() as state:
                    self._worker_state(session, state)
                case VolumeUsed() as used:
                    self._volume_used(used)
                case Outcome(job=job, attempt=attempt, end="completed" | "failed", execution_ms=ms):
                    freed.add(self._cluster.release(AttemptKey(job, attempt), self._clock(), ms / 1000))
                case Outcome(job=job, attempt=attempt) | Released(job=job, attempt=attempt):
                    freed.add(self._cluster.release(AttemptKey(job, attempt), self._clock()))
                case Save(job=job, attempt=attempt):
                    self._cluster.note_save(AttemptKey(job, attempt))
                case Refused(job, attempt, reason):
                    key = AttemptKey(job, attempt)
                    level = logging.DEBUG if self._cluster.lies_ahead(key) else logging.WARNING
                    log.log(level, "node %s refused job %s: %s", session.node, job, reason)
                    self._cluster.handed_back(key)
                    freed.add(self._cluster.release(key, self._clock()))
        return {endpoint for endpoint in freed if endpoint is not None}

    def _worker_state(self, session: NodeSession, state: WorkerState) -> None:
        worker = self._cluster.workers.get(state.worker)
        if worker is None or worker.session != session.session:
            return
        if state.state == "gone":
            self._cluster.remove_worker(state.worker)
            self._scaling.worker_gone(state.worker)
        elif worker.state != "stopping":
            if state.state != worker.state:
                worker.idle_since = self._clock()
            if state.state == "ready" and worker.state == "starting":
                self._counters.started(worker.endpoint, state.cold_start)
            worker.state, worker.reason = state.state, state.reason
            worker.was_ready = worker.was_ready or state.state == "ready"
            if state.state == "stopping" and worker.spec is not None:
                worker.spec = None  # it is replaced, and its agent must hear that it is not wanted again
                self._scaling.desired.send(session.node)
            worker.log_tail, worker.serves = state.log_tail, state.serves
            worker.waits_for, worker.cold_start = state.waits_for, state.cold_start
            worker.timed = worker.timed and not state.waits_for  # the next start does not fetch again
            worker.concurrency = state.slots or worker.concurrency
            self._dispatch.look(worker.endpoint)
        self._scaling.wake.set()


def note_samples(session: NodeSession, node: NodeState, samples: Iterable[DeviceSample]) -> None:
    """Keeps the samples of devices that the node has; others are rejected."""
    own, why = sampled(samples, {device.uuid for device in node.devices})
    node.note(own)
    if why is not None:
        session.assigned.log_once("Beat", why)


def _is_paid(conn: Conn, node: str, span: Usage, unpaid: list[str]) -> bool:
    """Returns whether this span of usage is billed to an account; adds to `unpaid` why not."""
    try:
        validation.paid(span, store.usage_owner(conn, node, span))
    except InvalidReport as error:
        unpaid.append(str(error))
        return False
    return True
