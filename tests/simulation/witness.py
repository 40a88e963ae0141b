"""Who watches a story: hears every change of the store, message, run of a handler and answer, and objects.

The first thing that may not be ends the story as a `Violation`, with its sentence. What is watched:

- the store, at every commit: states move as they may, attempts count up by claims alone, an end is for ever
  (but for a caller's retry), a result never changes, and no record goes before its time;
- handlers: each attempt runs once, on a slot of its own; not past its timeout, its ttl, its node's lease; and
  not on once its job is over, as soon as its agent can know; a GPU has one worker's process at a time;
- attempts: each that was claimed is told, with its moments in order, once its job has ended;
- what is sent before its COMMIT: a job with an idempotency key never is; one whose COMMIT failed is stopped;
- what waits for its worker: it is in every Hello, pays for no neighbour's death, and its time begins with it;
- outcomes: what was acknowledged is settled in the store; what was made is delivered, or overtaken;
- webhooks: each end has a delivery of its own, from the commit that stored it on (see `receivers`);
- yields to urgent work: of lower classes only, not again within a minute; each piece is billed once;
- callers: an end that is told is one that the store has had, and only what is over is said to be gone;
- the books: see `ledger`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stoker.control.rules.attempts import MOST_ATTEMPTS, moments
from stoker.control.rules.job_states import TERMINAL, JobState
from stoker.control.rules.queueing.priorities import Priority, outranks, priority_of
from stoker.control.rules.queueing.yielding import AGAIN_S
from stoker.control.rules.types import JobView
from stoker.control.store import job_attempts
from stoker.testing.fake_spawner import PIECE
from stoker.wire.messages import (
    Assign,
    AttemptKey,
    FromAgent,
    FromControl,
    Outcome,
    Refused,
    WorkerState,
    Yield,
)
from tests.simulation.ledger import Ledger
from tests.simulation.network import Link
from tests.simulation.virtual_loop import VirtualLoop

LEASE_S = 45.0
PATIENCE_S = 2.0 + 3.0 + 1.0 + 0.5
"""The cancel ladder (cooperative, SIGTERM), the agent's look at its lease, and messages on their way."""

RECEIVES_S = 7.0
"""A connected agent has heard within this that its session, or an attempt, is not wanted any more."""

AT_ONCE_S = 2.0
LINES = 4000
_FOR_CLASS = re.compile(r"a job of class (\w+) waits")

_TRIGGERS = """
CREATE TEMP TRIGGER sim_new AFTER INSERT ON main.jobs BEGIN
    SELECT sim_note('new', NEW.seq, NEW.id, '', NEW.state, 0, NEW.attempt, NEW.expires_at, '', 0); END;
CREATE TEMP TRIGGER sim_moved AFTER UPDATE ON main.jobs
WHEN OLD.state IS NOT NEW.state OR OLD.attempt IS NOT NEW.attempt OR OLD.expires_at IS NOT NEW.expires_at
BEGIN
    SELECT sim_note('moved', NEW.seq, NEW.id, OLD.state, NEW.state, OLD.attempt, NEW.attempt, NEW.expires_at,
                    NEW.node, NEW.attempt - NEW.refused); END;
CREATE TEMP TRIGGER sim_gone AFTER DELETE ON main.jobs BEGIN
    SELECT sim_note('gone', OLD.seq, OLD.id, OLD.state, '', OLD.attempt, 0, OLD.expires_at, OLD.node, 0); END;
CREATE TEMP TRIGGER sim_result AFTER UPDATE ON main.results BEGIN
    SELECT sim_note('result', NEW.seq, '', '', '', 0, 0, 0.0, '', 0); END;
CREATE TEMP TRIGGER sim_result_new AFTER INSERT ON main.results BEGIN
    SELECT sim_note('result', NEW.seq, '', '', '', 0, 0, 0.0, '', 0); END;
CREATE TEMP TRIGGER sim_saved AFTER UPDATE ON main.saves BEGIN
    SELECT sim_note('saved', NEW.seq, '', '', '', NEW.stream_attempt, NEW.progressed, 0.0, '', 0); END;
CREATE TEMP TRIGGER sim_saved_new AFTER INSERT ON main.saves BEGIN
    SELECT sim_note('saved', NEW.seq, '', '', '', NEW.stream_attempt, NEW.progressed, 0.0, '', 0); END;
CREATE TEMP TRIGGER sim_to_tell AFTER INSERT ON main.webhooks BEGIN
    SELECT sim_note('to tell', 0, NEW.job, NEW.id, NEW.state, 0, 0, 0.0, '', 0); END;
"""


class Violation(AssertionError):
    """Something that may never be."""


@dataclass(frozen=True)
class End:
    """A terminal episode, as it was committed."""

    state: str
    attempt: int
    output: bytes | None
    ref: str | None
    error: str | None


@dataclass
class Tale:
    """One job in the store."""

    id: str
    seq: int
    request: int
    expires_at: float
    state: str = "IN_QUEUE"
    attempt: int = 0
    times_assigned: int = 0
    ends: list[End] = field(default_factory=list)
    gone: bool = False
    over_since: float | None = None
    reopened: int = 0
    may_reopen: int = 0
    over_at: dict[int, float] = field(default_factory=dict)
    """By attempt: when the store wanted it no more."""
    saved_in: int = 0
    """The attempt that its chunks are numbered by since it has saved; 0: it has not."""
    progressed: set[int] = field(default_factory=set)
    """Attempts that have saved something new."""
    shown: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Chunks that a reader was shown, by their attempt and number."""


@dataclass
class HostWatch:
    lease_until: float | None = None
    link: Link | None = None
    connected_since: float = 0.0
    """Since then control and the agent hear each other."""


class Witness:
    def __init__(
        self, loop: VirtualLoop, clock: Callable[[], float], latest: Callable[[], float], conn: Any
    ) -> None:
        """`latest`: the latest time by which something may be done now."""
        self.loop = loop
        self.latest = latest
        self.conn, self.raw = conn, conn.raw
        self.ledger = Ledger(conn.raw, clock, self.fail)
        self.lines: deque[str] = deque(maxlen=LINES)
        self.tracing = False
        self.tales: dict[str, Tale] = {}
        self.by_seq: dict[int, Tale] = {}
        self.unstored: dict[str, float] = {}
        """Jobs whose COMMIT failed, or never came, and since when that is known."""
        self.keyed: set[int] = set()
        """Requests that have an idempotency key."""
        self.jobs_of: dict[int, list[str]] = {}
        self.running: dict[AttemptKey, tuple[str, float]] = {}
        self.ever_ran: set[AttemptKey] = set()
        self.limits: dict[AttemptKey, tuple[float, float, float]] = {}
        self.hosts: dict[str, HostWatch] = {}
        self.unacked: dict[int, list[tuple[int, Outcome]]] = {}
        self.beats: dict[int, dict[int, float]] = {}
        self.slots: dict[str, int] = {}
        self.fell: dict[str, int] = {}  # by worker: the report in which it last told fewer slots
        self.assigned: dict[AttemptKey, tuple[str, int]] = {}  # its worker, and what was acknowledged by then
        self.acked: dict[int, int] = {}  # by link
        self.made: dict[AttemptKey, str] = {}
        """Attempts whose completed outcome an agent has sent, and which agent has it."""
        self.began_at: dict[AttemptKey, float] = {}
        self.waited: set[AttemptKey] = set()
        """Attempts that waited for a worker when its process died."""
        self.poisoned: set[str] = set()
        self.poisoned_reports: set[AttemptKey] = set()
        self.uncertain: set[str] = set()
        self.deliveries: dict[str, tuple[str, int]] = {}
        """By the id of each webhook: its job, and which of that job's ends it tells."""
        self.ended = dict.fromkeys(map(str, TERMINAL), 0)
        self.retried = 0
        self._pending: list[tuple[Any, ...]] = []
        self.raw.create_function("sim_note", 10, self._noted)
        self.raw.executescript(_TRIGGERS)

    # -- words

    def note(self, message: str, *parts: Any) -> None:
        if self.tracing:
            self.lines.append(f"{self.loop.time():9.3f}  " + message.format(*parts))

    def fail(self, message: str) -> None:
        if self.loop.failure is None:
            self.loop.failure = Violation(f"{message} (at {self.loop.time():.3f} s)")

    # -- the store

    def _noted(self, *change: Any) -> None:
        self._pending.append(change)

    def settled(self, counts: bool) -> None:
        """After each commit, before anybody is told."""
        changes, self._pending = self._pending, []
        if not counts:
            self.unstored |= {change[2]: self.loop.time() for change in changes if change[0] == "new"}
            return
        for kind, seq, job, before, now, old, new, expires_at, node, times_assigned in changes:
            match kind:
                case "new":
                    self._new(seq, job, expires_at)
                case "moved":
                    self._moved(self.tales[job], before, now, old, new, expires_at, node, times_assigned)
                case "gone":
                    self._gone(self.tales[job])
                case "to tell":
                    self._to_deliver(self.tales[job], before, now)
                case "saved":
                    self._saved(self.by_seq[seq], old, new)
                case "result" if seq in self.by_seq:
                    self._result_changed(self.by_seq[seq])

    def _new(self, seq: int, job: str, expires_at: float) -> None:
        body, key = self.raw.execute("SELECT body, ref_key FROM inputs WHERE seq = ?", (seq,)).fetchone()
        job_input = json.loads(self.read_object(key) if body is None else body)
        tale = Tale(job, seq, job_input["request"], expires_at)
        self.tales[job] = self.by_seq[seq] = tale
        self.jobs_of.setdefault(tale.request, []).append(job)
        self.note("{} is new, request {}", job, tale.request)

    def read_object(self, key: str) -> bytes:
        raise NotImplementedError

    def _moved(
        self,
        tale: Tale,
        before: str,
        now: str,
        old: int,
        new: int,
        expires_at: float,
        node: str,
        times_assigned: int,
    ) -> None:
        self.note("{} {} -> {}, attempt {} -> {}, node {}", tale.id, before, now, old, new, node)
        tale.expires_at = expires_at
        claimed = before == "IN_QUEUE" and now == "IN_PROGRESS" and new == old + 1
        if new != old and not claimed:
            self.fail(f"{tale.id} went from attempt {old} to {new} as it went from {before} to {now}")
        if claimed:
            tale.over_at[old] = self.loop.time()
            self.retried += times_assigned > 1
        tale.state, tale.attempt, tale.times_assigned = now, new, times_assigned
        if now == before:
            return
        if before in TERMINAL:
            self._reopened(tale, before, now)
        if now in TERMINAL:
            self._ended(tale)

    def _reopened(self, tale: Tale, before: str, now: str) -> None:
        if now != "IN_QUEUE" or before not in ("FAILED", "TIMED_OUT") or tale.reopened >= tale.may_reopen:
            self.fail(f"{tale.id} had ended as {before} and is now {now}, and nobody asked for that")
        tale.reopened += 1
        tale.over_since = None
        tale.saved_in = 0

    def _ended(self, tale: Tale) -> None:
        tale.over_at[tale.attempt] = tale.over_since = self.loop.time()
        end = self._read_end(tale)
        tale.ends.append(end)
        self._check_attempts(tale)
        self.ended[tale.state] += 1
        if end.state == "COMPLETED":
            output = self._output(end)
            if (output["request"], output["attempt"]) != (tale.request, tale.attempt):
                self.fail(f"{tale.id} (request {tale.request}) ended in attempt {tale.attempt} with {output}")
            if "made" in output and tale.id not in self.poisoned:
                self._check_stream(tale, output["made"])
                self._check_pieces(tale, len(output["made"]))
        if "gave up after" in (end.error or "") and tale.attempt in tale.progressed:
            self.fail(f"{tale.id} was given up in attempt {tale.attempt}, which had saved something new")

    def _check_attempts(self, tale: Tale) -> None:
        whose = self.raw.execute("SELECT account, endpoint FROM jobs WHERE seq = ?", (tale.seq,)).fetchone()
        found = job_attempts(self.conn, *whose, tale.id, 0.0)
        told = () if found is None else found.attempts
        first = told[0].attempt if len(told) >= MOST_ATTEMPTS else 1
        if [one.attempt for one in told] != list(range(first, tale.attempt + 1)):
            self.fail(f"{tale.id} ended in attempt {tale.attempt}, and these are told: {told}")
        if (tale.state == "COMPLETED") != (bool(told) and told[-1].cause == "completed"):
            self.fail(f"{tale.id} ended as {tale.state}, and these are told: {told}")
        for one in told:
            at = moments(one)
            first, last = at.started or at.assigned, at.ended or 0.0
            inside = all(first <= moment <= last for moment in (at.chunk, at.uploading) if moment is not None)
            if not one.cause or not inside or not at.assigned <= first <= last:
                self.fail(f"{tale.id} ended as {tale.state}, and this is told of attempt {one}: {at}")

    def _saved(self, tale: Tale, stream: int, progressed: int) -> None:
        self.note("{} has saved in attempt {}", tale.id, tale.attempt)
        tale.progressed.add(progressed)
        if tale.saved_in not in (0, stream) and not self._begins_anew(tale):
            self.fail(f"{tale.id} saves for the stream of {stream}, and had one of {tale.saved_in}")
        tale.saved_in = stream

    def _begins_anew(self, tale: Tale) -> bool:
        """Returns whether control said so: the save was made by another kind of device, as that of the host
        of which a clone has the jobs. Its reason is with an attempt of the stream that had the save, or with
        a later one; the job's own may be that of an attempt which was handed back since."""
        reasons = self.raw.execute(
            "SELECT reason FROM attempts WHERE seq = ? AND attempt >= ?", (tale.seq, tale.saved_in)
        )
        return any("its save was made by" in (reason or "") for (reason,) in reasons)

    def _check_stream(self, tale: Tale, made: list[Any]) -> None:
        """What the handler knows to have made, through all attempts, is what was stored; and what readers
        were shown."""
        rows = self.raw.execute(
            "SELECT chunks.attempt, n, value FROM chunks JOIN jobs USING (seq) "
            "WHERE seq = ? AND chunks.attempt = COALESCE(stream_attempt, jobs.attempt) ORDER BY n",
            (tale.seq,),
        ).fetchall()
        if [json.loads(value) for _, _, value in rows] != made:
            self.fail(f"{tale.id} has made {made}; its stream is {rows}")
        for stream, n, value in rows:
            if (shown := tale.shown.get((stream, n), value)) != value:
                self.fail(f"a reader of {tale.id} was shown {shown!r} as chunk {n}, which is {value!r}")

    def _check_pieces(self, tale: Tale, made: int) -> None:
        """What was made is billed once, whichever attempts made it."""
        (billed,) = self.raw.execute(
            "SELECT SUM(quantity) FROM spans WHERE job = ? AND unit = ?", (tale.id, PIECE)
        ).fetchone()
        if (billed or 0) != made:
            self.fail(f"{tale.id} has made {made} pieces, and {billed} are billed")

    def _output(self, end: End) -> Any:
        return json.loads(self.read_object(end.ref) if end.ref else end.output or b"null")

    def _read_end(self, tale: Tale) -> End:
        row = self.raw.execute(
            "SELECT output, ref_key, error FROM results WHERE seq = ?", (tale.seq,)
        ).fetchone()
        output, ref, error = row or (None, None, None)
        return End(tale.state, tale.attempt, output, ref, error)

    def _result_changed(self, tale: Tale) -> None:
        if tale.state in TERMINAL and tale.ends and self._read_end(tale) != tale.ends[-1]:
            self.fail(f"the result of {tale.id} changed after its end: {tale.ends[-1]}")

    def _to_deliver(self, tale: Tale, delivery: str, state: str) -> None:
        """A receiver drops what comes under an id that it has seen: no two ends may share one."""
        last = tale.id, len(tale.ends) - 1
        if delivery in self.deliveries:
            self.fail(f"webhook {delivery} is of {last}, and was of {self.deliveries[delivery]} before")
        if last in self.deliveries.values() or tale.state != state:
            self.fail(f"webhook {delivery} is of {tale.id} as {state}, which it is not: {tale.ends}")
        self.deliveries[delivery] = last

    def _gone(self, tale: Tale) -> None:
        self.note("{} is deleted", tale.id)
        tale.gone = True
        tale.over_since = self.loop.time() if tale.over_since is None else tale.over_since
        tale.over_at.setdefault(tale.attempt, self.loop.time())
        if tale.expires_at > self.latest():
            self.fail(f"{tale.id} was deleted {tale.expires_at - self.latest():.1f} s before its time")

    # -- handlers

    def began(self, host: str, key: AttemptKey, others: int, slots: int) -> None:
        self.note("{} runs {} attempt {}", host, key.job, key.attempt)
        if key in self.ever_ran:
            self.fail(f"{key} was run a second time, by {host}")
        if others >= slots:
            self.fail(f"{host} gave {key} to a worker that had {others} of {slots} jobs")
        self.ever_ran.add(key)
        self.began_at[key] = self.loop.time()
        self.running[key] = (host, self.loop.time())

    def started(self, host: str, worker: str, others: list[str], lacks: list[str]) -> None:
        if others:
            self.fail(f"{host} started {worker} on a GPU that {', '.join(others)} had not left")
        if lacks:
            self.fail(f"{host} started {worker} without the weights {', '.join(lacks)}")

    def died_beside(self, waiting: list[AttemptKey]) -> None:
        self.waited.update(waiting)

    def held_by(self, host: str) -> set[AttemptKey]:
        raise NotImplementedError

    def left(self, host: str, key: AttemptKey) -> None:
        self.note("{} ends the run of {} attempt {}", host, key.job, key.attempt)
        self.check_run(key)
        self.running.pop(key, None)

    def check_run(self, key: AttemptKey) -> None:
        """What is true of a run until now; asked at its end, and of those that do not end, at the story's."""
        if key not in self.running:
            return
        host, since = self.running[key]
        now = self.loop.time()
        watch = self.hosts[host]
        taken, timeout_s, ttl_s = self.limits[key]
        if now > since + timeout_s + PATIENCE_S:
            self.fail(f"{key} ran for {now - since:.1f} s on {host}; its timeout is {timeout_s:g} s")
        if now > taken + ttl_s + PATIENCE_S:
            self.fail(f"{key} ran on {host} until {now - taken - ttl_s:.1f} s after its ttl had passed")
        self._check_lease(host, key)
        tale = self.tales.get(key.job)
        over = self.unstored.get(key.job) if tale is None else tale.over_at.get(key.attempt)
        connected = watch.link is not None and watch.link.alive
        if (
            over is not None
            and connected
            and now > max(over, watch.connected_since) + PATIENCE_S + RECEIVES_S
        ):
            self.fail(f"{key} ran on {host} for {now - over:.1f} s after the store wanted it no more")

    def _check_lease(self, host: str, key: AttemptKey) -> None:
        until = self.hosts[host].lease_until
        if until is not None and self.loop.time() > until + PATIENCE_S:
            late = self.loop.time() - until
            self.fail(f"{key} still ran on {host} {late:.1f} s after the lease was over")

    def check_leases(self, host: str) -> None:
        for key, (where, _) in list(self.running.items()):
            if where == host:
                self._check_lease(host, key)

    # -- messages

    def sent_up(self, link: Link, message: FromAgent) -> None:
        beats = self.beats.setdefault(link.number, {})
        if message.hello is not None:
            beats[0] = self.loop.time()
            if lacking := self.held_by(link.host) - {one.key for one in message.hello.attempts}:
                self.fail(f"the Hello of {link.host} lacks {lacking}")
        if message.beat is not None:
            beats.setdefault(message.beat.number, self.loop.time())
        for report in message.reports:
            self.ledger.sent(link, report)
            if isinstance(report.body, WorkerState):
                self._slots_are(report.number, report.body)
            if isinstance(report.body, Refused) and "is busy" in report.body.reason:
                self._check_refusal(link, report.body)
            if isinstance(report.body, Outcome):
                outcome = report.body
                reported = (outcome.job, outcome.attempt, outcome.end, outcome.error)
                self.note("{} reports {} attempt {}: {} {}", link.host, *reported)
                self.unacked.setdefault(link.number, []).append((report.number, outcome))
                self._check_waiting(link.host, outcome)
                if outcome.end == "completed":
                    self.made.setdefault(AttemptKey(outcome.job, outcome.attempt), link.host)

    def _check_waiting(self, host: str, outcome: Outcome) -> None:
        key = AttemptKey(outcome.job, outcome.attempt)
        if outcome.end == "lost" and key in self.waited:
            self.fail(f"{key} waited for a worker of {host} that died, and counts as {outcome.error}")
        if outcome.end == "completed" and key in self.began_at and key in self.limits:
            waited = self.began_at[key] - self.limits[key][0]
            if waited * 1000 > outcome.wait_ms + 2:
                self.fail(
                    f"{key} waited {waited:.3f} s on {host}, and is told to have waited {outcome.wait_ms} ms"
                )

    def _slots_are(self, number: int, news: WorkerState) -> None:
        if news.slots is not None:
            if news.slots < self.slots.get(news.worker, 0):
                self.fell[news.worker] = number
            self.slots[news.worker] = news.slots

    def _check_refusal(self, link: Link, refused: Refused) -> None:
        """A worker that takes fewer at once may be given one too many, until control has heard of it."""
        worker, acked = self.assigned[AttemptKey(refused.job, refused.attempt)]
        if self.fell.get(worker, 0) <= acked:
            self.fail(f"{link.host} was given more than it has room for: {refused}")

    def sent_down(self, link: Link, message: FromControl) -> None:
        acked = self.acked.get(link.number, 0)
        for asked in message.yields:
            self._asked_to_yield(asked)
        for assign in message.assigns:
            self.assigned[AttemptKey(assign.job, assign.attempt)] = assign.worker, acked
            if assign.job not in self.tales:
                self._sent_early(assign)
        if message.ack is not None:
            self.acked[link.number] = message.ack.report
            self._acknowledged(link, message.ack.report)
            self.ledger.acknowledged(link.number, message.ack.report, bool(self.poisoned))

    def _asked_to_yield(self, asked: Yield) -> None:
        """A job yields to higher classes alone, and then has its rest."""
        if (waiting := _FOR_CLASS.search(asked.reason)) is None:
            return
        self.note("{} is asked to yield: {}", asked.job, asked.reason)
        row = self.raw.execute("SELECT low, urgent, yielded_at FROM jobs WHERE id = ?", (asked.job,))
        low, urgent, yielded_at = row.fetchone() or (0, 0, None)
        own = priority_of(low=low == 1, urgent=urgent == 1)
        if not outranks(Priority(waiting[1]), own):
            self.fail(f"{asked.job} is of class {own}, and is asked to yield: {asked.reason}")
        if yielded_at is not None and self.latest() - yielded_at < AGAIN_S:
            self.fail(f"{asked.job} is asked to yield {self.latest() - yielded_at:.1f} s after it has")

    def _sent_early(self, assign: Assign) -> None:
        body = assign.input if assign.input_ref is None else self.read_object(assign.input_ref.key)
        if (number := json.loads(body or b"null")["request"]) in self.keyed:
            self.fail(
                f"{assign.job} of request {number} has an idempotency key, and was sent before its COMMIT"
            )

    def _acknowledged(self, link: Link, number: int) -> None:
        waiting = self.unacked.get(link.number, [])
        for outcome in [outcome for sent, outcome in waiting if sent <= number]:
            self._settled(AttemptKey(outcome.job, outcome.attempt))
        if waiting:
            self.unacked[link.number] = [one for one in waiting if one[0] > number]

    def _settled(self, key: AttemptKey) -> None:
        """An acknowledged outcome is in the store, or came too late to count."""
        if key in self.poisoned_reports:
            return
        row = self.raw.execute(
            "SELECT state, node FROM jobs "
            "WHERE id = ? AND attempt = ? AND state IN ('IN_QUEUE', 'IN_PROGRESS')",
            (key.job, key.attempt),
        ).fetchone()
        if row is not None and row[1] is not None:
            self.fail(f"the outcome of {key} was acknowledged, and the store still waits for it: {row}")

    def was_sent(self, link: Link, message: FromControl) -> None:
        """A message reaches the agent."""
        watch, beats = self.hosts[link.host], self.beats.get(link.number, {})
        if message.welcome is not None:
            self.check_leases(link.host)
            watch.lease_until = beats.get(0, 0.0) + LEASE_S
            watch.link, watch.connected_since = link, self.loop.time()
        if message.ack is not None and message.ack.beat in beats:
            self.check_leases(link.host)
            renewed = beats[message.ack.beat] + LEASE_S
            watch.lease_until = max(watch.lease_until or 0.0, renewed)
        for assign in message.assigns:
            key = AttemptKey(assign.job, assign.attempt)
            limits = (self.loop.time(), assign.execution_timeout_ms / 1000, assign.ttl_s)
            self.limits.setdefault(key, limits)

    def unwell(self, host: str, seconds: float = 0.0) -> None:
        """Something keeps control and this agent from hearing each other until now, or for so long yet."""
        watch = self.hosts[host]
        watch.connected_since = max(watch.connected_since, self.loop.time() + seconds)

    def was_poisoned(self, body: Any) -> None:
        self.note("poisoned: {} of {} attempt {}", type(body).__name__, body.job, body.attempt)
        self.poisoned.add(body.job)
        if isinstance(body, Outcome):
            self.poisoned_reports.add(AttemptKey(body.job, body.attempt))

    # -- agents that die

    def lost_with(self, host: str, kept: set[AttemptKey]) -> None:
        """An agent died: what it had made and not on its disk need not arrive."""
        self.ledger.lost_with(host)
        for key in [key for key, where in self.made.items() if where == host and key not in kept]:
            del self.made[key]
        for key in [key for key, (where, _) in self.running.items() if where == host]:
            self.left(host, key)

    # -- what callers are told

    def caller_received(self, job: str, view: JobView) -> None:
        tale = self.tales[job]
        if not view.ended:
            if view.attempt > tale.attempt:
                self.fail(f"a caller was told of attempt {view.attempt} of {job}, which has {tale.attempt}")
            return
        for end in tale.ends:
            if (end.state, end.error) == (view.state, view.error) and self._same(end, view):
                return
        self.fail(
            f"a caller was told {view.state} {view.output!r} {view.error!r} of {job}: it had {tale.ends}"
        )

    def _same(self, end: End, view: JobView) -> bool:
        if end.state != "COMPLETED" or view.output is None:
            return True
        reported = json.loads(view.output)
        had = {"request": self.by_id_request(view.id), "attempt": end.attempt}
        return {name: reported.get(name) for name in had} == had

    def by_id_request(self, job: str) -> int:
        return self.tales[job].request

    def was_told_gone(self, job: str) -> None:
        tale = self.tales[job]
        if not tale.gone and tale.expires_at > self.latest():
            self.fail(
                f"a caller was told that {job} is gone, {tale.expires_at - self.latest():.1f} s too early"
            )

    def answered(self, job: str, began: float, smooth_since: float) -> None:
        """Who waits for an end hears of it at once, or as soon as control answers at all."""
        over = self.tales[job].over_since
        if over is None or smooth_since > began:
            return
        late = self.loop.time() - max(over, began)
        if late > AT_ONCE_S:
            self.fail(f"{job} was over for {late:.1f} s before who waited for it was told")

    # -- at the end

    def check_made(self) -> None:
        """A result that was made is the caller's, unless a newer attempt began or the job had ended."""
        for key, host in self.made.items():
            tale = self.tales.get(key.job)
            if tale is None:
                continue  # it was not stored, and its caller knows
            if tale.gone or key in self.poisoned_reports or tale.attempt > key.attempt:
                continue
            if tale.state not in TERMINAL:
                self.fail(f"{key} was completed on {host}, and its job is still {tale.state}")

    def counts(self) -> dict[str, int]:
        return {
            "completed": self.ended["COMPLETED"],
            "failed": self.ended["FAILED"] + self.ended["TIMED_OUT"],
            "cancelled": self.ended["CANCELLED"],
        }


def is_over(state: str) -> bool:
    return JobState(state) in TERMINAL
