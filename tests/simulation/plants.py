"""Bugs to plant, each a few lines: a simulation that does not find every one of them proves nothing.

`plant(NAME)` is in force until it is undone. Most change one decision of the protocol's table into
the obvious thing that is wrong; some bring with them more of what shows it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from stoker.agent.jobs.attempts import attempt_machine, waiting
from stoker.agent.jobs.attempts.attempts import Attempts
from stoker.agent.jobs.attempts.events import HandBack, ReleaseSlot, Verdict, Yielded
from stoker.agent.jobs.attempts.running_attempt import RunningAttempt
from stoker.agent.jobs.reports import outbox
from stoker.agent.jobs.reports.reports import Reports
from stoker.agent.link.lease import Lease
from stoker.agent.node import Agent
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.agent.workers.lifecycle.worker_weights import WorkerWeights
from stoker.control import store
from stoker.control.jobs import records
from stoker.control.jobs.commands import JobCommands
from stoker.control.jobs.waiters import JobChanges, JobWaiters
from stoker.control.nodes.reports import NodeReports
from stoker.control.nodes.sessions import NodeSessions
from stoker.control.rules import attempts
from stoker.control.rules.nodes import validation
from stoker.control.rules.queueing import yielding
from stoker.control.rules.queueing.order import Place
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.types import JobView, Reconciled, Slot
from stoker.control.scheduling.cluster_state import ClusterState, NodeState
from stoker.control.scheduling.dispatch import Dispatch
from stoker.control.store.billing import usage
from stoker.control.store.database import statements as hot
from stoker.control.store.jobs import kept_chunks, orders, reports, saves, waits_again, webhook_outbox
from stoker.control.store.nodes import requeue
from stoker.testing.fake_spawner import PIECE, FakeProcess
from stoker.testing.memory_disk import MemoryDisk
from stoker.wire.messages import Ack, AttemptKey, Chunk, Span
from tests.simulation import faults

Patch = Callable[[Any, str, Any], None]
PLANTS: dict[str, Callable[[Patch], None]] = {}


def planted(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
    PLANTS[function.__name__] = function
    return function


@planted
def workers_are_given_more_than_they_reported(patch: Patch) -> None:
    """The agent goes by what the endpoint allows."""
    patch(Worker, "_allowed", lambda self, slots: self.spec.concurrency)


@planted
def a_span_reported_again_is_billed_again(patch: Patch) -> None:
    stored = usage._stored
    patch(usage, "_stored", lambda *span: stored(*span) or True)


@planted
def of_a_span_reported_again_the_first_stands(patch: Patch) -> None:
    patch(usage, "_grown", lambda *_: [])
    _often(patch, faults.a_clone_has_an_older_disk)


@planted
def a_span_that_was_sent_grows(patch: Patch) -> None:
    joined = outbox._joined
    patch(outbox, "_joined", lambda box, span: joined(replace(box, ever_sent=0), span))


@contextmanager
def plant(name: str) -> Iterator[None]:
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, attribute: str, value: Any) -> None:
        if isinstance(owner, dict):
            undo.append((owner, attribute, owner[attribute]))
            owner[attribute] = value
        else:
            undo.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, value)

    PLANTS[name](patch)
    try:
        yield
    finally:
        for owner, attribute, value in reversed(undo):
            if isinstance(owner, dict):
                owner[attribute] = value
            else:
                setattr(owner, attribute, value)


def _statement(patch: Patch, name: str, old: str, new: str) -> None:
    text = hot.STATEMENTS[name]
    assert old in text, text
    patch(hot.STATEMENTS, name, text.replace(old, new))


def _often(patch: Patch, fault: faults.Fault) -> None:
    """Half of what breaks is this: of itself, too few stories come near the bug."""
    patch(faults, "FAULTS", [fault] * len(faults.FAULTS) + faults.FAULTS)


# ---- the store ----------------------------------------------------------------------------------


@planted
def an_outcome_of_any_attempt_counts(patch: Patch) -> None:
    """Neither the validation nor the store asks whose it is: either of them alone would keep it out."""
    patch(validation, "check_reports", lambda reports, _assigned: (list(reports), []))
    _statement(patch, "finish", "attempt = :attempt AND node = :node AND ", "")


@planted
def an_end_is_not_for_ever(patch: Patch) -> None:
    text = hot.STATEMENTS["finish"]
    condition = text[text.index("AND node = :node AND ") :].split("\n")[0]
    _statement(patch, "finish", condition, "")


@planted
def a_requeue_raises_the_attempt(patch: Patch) -> None:
    real = store.requeue_node

    def raising(conn: Any, *args: Any) -> Any:
        changed = real(conn, *args)
        for one in changed:
            conn.raw.execute("UPDATE jobs SET attempt = attempt + 1 WHERE id = ?", (one.job,))
        return changed

    patch(store, "requeue_node", raising)


@planted
def a_broken_node_keeps_its_jobs(patch: Patch) -> None:
    patch(store, "requeue_node", lambda *_: ())
    patch(store, "lost_nodes", lambda *_: ({}, ()))


@planted
def what_a_hello_lacks_is_forgotten(patch: Patch) -> None:
    def keep_all(_: object, *, reported: Any, **__: object) -> Reconciled:
        return Reconciled(keep=tuple(reported))

    patch(store, "reconcile", keep_all)


@planted
def a_resent_chunk_is_appended(patch: Patch) -> None:
    real = store.apply_reports

    def appending(conn: Any, *, reports: Any, **more: Any) -> Any:
        changed = []
        for report in reports:
            body = report.body
            if isinstance(body, Chunk) and isinstance(body.n, int) and body.n < 1000:
                (n,) = conn.raw.execute(
                    "SELECT count(*) FROM chunks JOIN jobs USING (seq) WHERE id = ? AND chunks.attempt = ?",
                    (body.job, body.attempt),
                ).fetchone()
                report = replace(report, body=replace(body, n=n))  # noqa: PLW2901
            changed += real(conn, reports=[report], **more).changed
        return replace(real(conn, reports=[], **more), changed=tuple(changed))

    patch(store, "apply_reports", appending)


@planted
def an_idempotency_key_is_ignored(patch: Patch) -> None:
    real = store.submit
    patch(store, "submit", lambda conn, new, *rest: real(conn, replace(new, once=None), *rest))


@planted
def a_job_with_a_key_is_sent_before_its_commit(patch: Patch) -> None:
    accept, submit, keys = JobCommands._accept, store.submit, dict[str, Any]()

    async def hasty(self: Any, endpoint: Any, new: Any, caller: Any) -> Any:
        keys[new.id] = new.once
        return await accept(self, endpoint, replace(new, once=None), caller)

    patch(JobCommands, "_accept", hasty)
    patch(store, "submit", lambda conn, new, *rest: submit(conn, replace(new, once=keys[new.id]), *rest))
    _often(patch, faults.the_store_is_full)


@planted
def what_was_sent_and_not_stored_goes_on(patch: Patch) -> None:
    patch(JobChanges, "take_back", lambda *_: None)
    _often(patch, faults.submissions_are_not_stored)


@planted
def records_go_too_early(patch: Patch) -> None:
    real = store.expire
    patch(store, "expire", lambda conn, now, limit: real(conn, now + 30.0, limit))


@planted
def counters_count_twice(patch: Patch) -> None:
    _statement(patch, "count", "counters.value + excluded.value", "counters.value + 2 * excluded.value")


@planted
def orphans_are_not_noted(patch: Patch) -> None:
    patch(store, "noted", lambda _, changed: changed)
    patch(store, "note_orphans", lambda conn, names, not_before=0.0: None)
    _often(patch, faults.a_busy_node_falls_silent)


# ---- saves --------------------------------------------------------------------------------------


@planted
def readers_are_shown_what_no_save_covers(patch: Patch) -> None:
    _statement(patch, "chunks", "(j.held_from IS NULL OR c.n < j.held_from) AND ", "")
    _often(patch, faults.workers_die)


@planted
def what_no_save_covers_is_kept(patch: Patch) -> None:
    patch(saves, "_VOID", saves._VOID.replace("n >= :upto", "n > :upto + 100"))
    _often(patch, faults.workers_die)


@planted
def chunks_of_another_place_come_back(patch: Patch) -> None:
    """Those that are read begin at the second."""
    text = kept_chunks._VALUES.replace("ORDER BY n", "ORDER BY CASE WHEN n = :first THEN :upto ELSE n END")
    patch(kept_chunks, "_VALUES", text)
    _often(patch, faults.workers_die)


@planted
def a_save_that_was_replaced_is_left_in_the_object_store(patch: Patch) -> None:
    patch(saves, "note_orphans", lambda *_: None)


@planted
def an_attempt_that_saved_is_counted(patch: Patch) -> None:
    patch(waits_again, "has_progressed", lambda *_: False)
    patch(requeue, "has_progressed", lambda *_: False)
    _often(patch, faults.workers_die)


@planted
def a_failed_attempt_is_not_told(patch: Patch) -> None:
    patch(waits_again, "note_attempt", lambda *_: None)
    _often(patch, faults.workers_die)


@planted
def an_attempt_of_a_lost_node_is_not_told(patch: Patch) -> None:
    patch(requeue, "note_attempt", lambda *_: None)


@planted
def an_attempt_before_a_callers_retry_is_not_told(patch: Patch) -> None:
    patch(orders, "keep_last", lambda *_: None)


@planted
def moments_lie_outside_of_their_attempt(patch: Patch) -> None:
    """The clock is set back while they run."""
    patch(attempts, "_within", lambda at, *_: at)
    _often(patch, faults.the_wall_clock_jumps)


@planted
def what_yielded_is_never_taken_again(patch: Patch) -> None:
    real = waits_again.note_yield

    def far(conn: Any, seq: int, now: float) -> Place:
        found = real(conn, seq, now)
        return replace(found, since=found.since + 1e6)

    patch(waits_again, "note_yield", far)
    _often(patch, faults.a_node_is_drained_in_a_hurry)


@planted
def an_attempt_that_yields_keeps_its_place(patch: Patch) -> None:
    real = attempt_machine._answered

    def keeping(state: Any, event: Any) -> Any:
        after, commands = real(state, event)
        if isinstance(event, Yielded):
            commands = tuple(one for one in commands if not isinstance(one, ReleaseSlot))
        return after, commands

    patch(attempt_machine, "_answered", keeping)
    _often(patch, faults.a_node_is_drained_in_a_hurry)


@planted
def a_job_that_yielded_shows_what_it_made_after_its_save(patch: Patch) -> None:
    patch(saves, "_GO_ON", saves._GO_ON.replace("held_from = :upto", "held_from = NULL"))
    patch(saves, "_VOID", saves._VOID.replace("n >= :upto", "n > :upto + 100"))
    _often(patch, faults.a_node_is_drained_in_a_hurry)


@planted
def jobs_yield_to_their_equals(patch: Patch) -> None:
    real = yielding.outranks
    patch(yielding, "outranks", lambda priority, other: priority is other or real(priority, other))


@planted
def a_job_that_yielded_has_no_rest(patch: Patch) -> None:
    """It yields again and again, and so may the one for which it did."""
    patch(yielding, "AGAIN_S", 0.0)
    patch(yielding, "START_AGAIN_S", -1e6)
    _often(patch, faults.urgent_jobs_come_one_by_one)


@planted
def the_pieces_of_an_attempt_that_yields_are_billed_twice(patch: Patch) -> None:
    """With it, and with the attempt that has them from its save."""
    real = RunningAttempt.outcome

    def outcome(self: RunningAttempt, verdict: Verdict) -> Any:
        made = real(self, verdict)
        if verdict.end != "yielded":
            return made
        return replace(made, spans=(*made.spans, Span("output", PIECE, self.chunk_count, 7)))

    patch(RunningAttempt, "outcome", outcome)
    patch(reports, "_executed", lambda outcome: list(outcome.spans))
    _often(patch, faults.a_node_is_drained_in_a_hurry)


# ---- control's shells ---------------------------------------------------------------------------


@planted
def reports_are_acknowledged_before_the_commit(patch: Patch) -> None:
    real = NodeReports.receive

    async def hasty(self: Any, session: Any, reports: Any, beat: Any) -> None:
        if reports:
            session._ack = Ack(reports[-1].number, session._acked.beat)
            session._wake.set()
            await asyncio.sleep(0)
        await real(self, session, reports, beat)

    patch(NodeReports, "receive", hasty)


@planted
def an_outcome_is_acknowledged_and_dropped(patch: Patch) -> None:
    real = store.apply_reports

    def forgetful(conn: Any, *, reports: Any, **more: Any) -> Any:
        return real(conn, reports=reports[1:], **more)

    patch(store, "apply_reports", forgetful)


@planted
def a_slot_is_never_free_again(patch: Patch) -> None:
    patch(ClusterState, "release", lambda *_: None)


@planted
def a_slot_is_given_out_twice(patch: Patch) -> None:
    real = ClusterState.reserve

    def lend(self: ClusterState, endpoint: str, most: int, now: float) -> list[Slot]:
        slots = real(self, endpoint, most, now)
        for slot in slots:
            self.workers[slot.worker].reserved -= slot.free
        return slots

    patch(ClusterState, "reserve", lend)
    _often(patch, faults.the_store_is_slow)


@planted
def a_cancel_is_not_sent(patch: Patch) -> None:
    patch(NodeSessions, "cancel", lambda *_: None)


@planted
def a_wait_that_is_over_ends_nothing(patch: Patch) -> None:
    async def end_wait(self: JobCommands, endpoint: Any, job: str, _: float) -> Any:
        return await self._queries.status(endpoint, job)

    patch(JobCommands, "_end_wait", end_wait)


@planted
def nobody_rings_for_an_end(patch: Patch) -> None:
    real = JobWaiters.changed

    def changed(self: JobWaiters, job: str, ended: JobView | None = None) -> None:
        if ended is None:
            real(self, job)

    patch(JobWaiters, "changed", changed)


@planted
def nobody_rings_for_a_record_that_goes(patch: Patch) -> None:
    patch(JobWaiters, "gone", lambda *_: None)


@planted
def a_submission_is_answered_and_forgotten(patch: Patch) -> None:
    real = JobCommands._accept

    async def forgetful(self: Any, endpoint: Any, new: Any, caller: Any) -> Any:
        done = await real(self, endpoint, new, caller)
        if new.priority is Priority.LOW:
            await self._commits.commit(
                lambda conn: conn.raw.execute("DELETE FROM jobs WHERE id = ?", (new.id,))
            )
        return done

    patch(JobCommands, "_accept", forgetful)


@planted
def a_webhook_says_something_else_each_time(patch: Patch) -> None:
    real, numbers = records.webhook_body, itertools.count()
    patch(records, "webhook_body", lambda *args: real(*args)[:-1] + b',"n":%d}' % next(numbers))


@planted
def two_ends_of_a_job_are_reported_under_one_id(patch: Patch) -> None:
    patch(webhook_outbox, "delivery_id", lambda job, attempt, state, ended_at: f"msg_{job}")


@planted
def a_webhook_is_given_up_at_once(patch: Patch) -> None:
    real = store.webhook_tried
    patch(store, "webhook_tried", lambda conn, job, now, delivered: real(conn, job, now, True))


@planted
def a_worker_that_stops_holds_no_device(patch: Patch) -> None:
    real = NodeState.shares_taken

    def shares_taken(self: NodeState, holders: Any) -> dict[str, float]:
        return real(self, [one for one in holders if getattr(one, "state", "") != "stopping"])

    patch(NodeState, "shares_taken", shares_taken)


@planted
def free_slots_are_looked_at_late(patch: Patch) -> None:
    """Each job begins in the end."""
    real = Dispatch.look

    def look(self: Dispatch, endpoint: str) -> None:
        asyncio.get_running_loop().call_later(20.0, real, self, endpoint)

    patch(Dispatch, "look", look)


# ---- what waits for its worker ------------------------------------------------------------------


@planted
def what_waits_pays_for_its_neighbours_death(patch: Patch) -> None:
    real = attempt_machine._end_waiting

    def counted(end: Any) -> Any:
        if isinstance(end, HandBack):
            return attempt_machine._leave(end.at, Verdict("lost", end.why, retryable=True))
        return real(end)

    patch(attempt_machine, "_end_waiting", counted)


@planted
def the_time_of_what_waits_counts_from_its_arrival(patch: Patch) -> None:
    real = Attempts._begins

    def begins(self: Any, attempt: Any, printed: Any) -> None:
        real(self, attempt, printed)
        attempt.started = attempt.arrived

    patch(Attempts, "_begins", begins)


@planted
def a_hello_leaves_out_what_waits(patch: Patch) -> None:
    real = Attempts.held
    patch(Attempts, "held", lambda self: tuple(one for one in real(self) if one.phase != "waiting"))
    patch(Agent, "_back_off", lambda *_, **__: 0.001)  # it is back before they are handed back
    _often(patch, faults.a_link_breaks_while_jobs_wait)


@planted
def what_waits_is_kept_from_a_free_worker(patch: Patch) -> None:
    patch(waiting, "PATIENCE_S", 1e6)


@planted
def what_was_withdrawn_is_begun(patch: Patch) -> None:
    patch(FakeProcess, "_may_begin", lambda _: True)


# ---- the agent ----------------------------------------------------------------------------------


@planted
def the_lease_is_forgotten_on_reconnect(patch: Patch) -> None:
    def begin(self: Any, *_: object) -> None:
        self._lease_s = 1e9
        self._basis = 0.0
        self._beats.clear()

    patch(Lease, "begin", begin)
    _often(patch, faults.a_busy_node_falls_silent)


@planted
def a_worker_does_not_wait_for_its_weights(patch: Patch) -> None:
    patch(WorkerWeights, "here", lambda self: True)


@planted
def an_agent_ignores_the_end_of_its_lease(patch: Patch) -> None:
    patch(Attempts, "lease_lost", lambda *_: None)
    _often(patch, faults.a_busy_node_falls_silent)


@planted
def an_assign_is_run_twice(patch: Patch) -> None:
    real = Attempts.assign

    def forgetful(self: Any, assign: Any) -> None:
        self._over.clear()
        self._attempts.pop(AttemptKey(assign.job, assign.attempt), None)
        real(self, assign)

    patch(Attempts, "assign", forgetful)


@planted
def a_cancel_does_not_stop_the_work(patch: Patch) -> None:
    patch(Attempts, "cancel", lambda *_: None)
    patch(Attempts, "drop", lambda *_: None)


@planted
def a_ttl_does_not_stop_the_work(patch: Patch) -> None:
    real = Attempts.assign
    patch(Attempts, "assign", lambda self, assign: real(self, replace(assign, ttl_s=1e6)))
    patch(NodeSessions, "cancel", lambda *_: None)


@planted
def a_timeout_does_not_stop_the_work(patch: Patch) -> None:
    real = Attempts.assign
    patch(Attempts, "assign", lambda self, assign: real(self, replace(assign, execution_timeout_ms=10**9)))


@planted
def a_stuck_handler_is_not_killed(patch: Patch) -> None:
    patch(Worker, "terminate", lambda *_: None)
    patch(Worker, "kill", lambda *_: None)


@planted
def reports_are_not_sent_again(patch: Patch) -> None:
    def keeps(self: Any) -> int:
        self.wake.set()
        return 1

    patch(Reports, "reconnected", keeps)


@planted
def the_outbox_is_not_loaded(patch: Patch) -> None:
    patch(Reports, "load", lambda _: None)
    _often(patch, faults.an_agent_dies_with_results)


@planted
def the_outbox_is_not_written(patch: Patch) -> None:
    patch(MemoryDisk, "save", lambda *_: None)
    _often(patch, faults.an_agent_dies_with_results)
