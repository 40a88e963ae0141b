"""The node's attempts: takes Assigns, runs them on workers, and sees each to its acknowledged outcome.

The shell of `agent.attempt`: frames, timers, transfers and what control says go in as events; the machine's
commands are performed here. What an attempt made (output, open files) is kept here, never in the machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from stoker.agent import attempt_events as ev
from stoker.agent import outputs
from stoker.agent.alarm import Alarm
from stoker.agent.attempt import Cancelling, Ladder, Running, begin, phase, step, wake_at
from stoker.agent.handler_news import BrokenPromise, chunk_of, failure_of, file_of, took, unwanted
from stoker.agent.held_attempt import Attempt
from stoker.agent.input_fetches import Fetches
from stoker.agent.log_follow import LogFollow
from stoker.agent.piece_stream import PieceStream, Surroundings
from stoker.agent.reports import Reports
from stoker.agent.seams import Inputs, MemoryCheck, Objects, Scratch
from stoker.agent.transfers import Move, fetched, uploaded
from stoker.agent.workers import Worker
from stoker.wire.messages import (
    Assign,
    AttemptKey,
    Chunk,
    HeldAttempt,
    Progress,
    Refused,
    Released,
    Uploading,
)
from stoker.worker.frames import PIECE_MAX, Frame, FrameError, is_large_piece

log = logging.getLogger(__name__)

REMEMBERED = 4096
"""How many attempts are remembered after their end, so that an Assign sent twice is not run twice."""

CLEAN_LOOK_S, CLEAN_LOOK_MOST_S = 0.01, 0.2
"""How often a worker's memory is looked at after a job on it was stopped."""


class Attempts:
    """`spawn` runs a coroutine in the agent's task group. `moved` is set whenever one got further."""

    def __init__(
        self,
        reports: Reports,
        objects: Objects,
        scratch: Scratch,
        worker: Callable[[str], Worker | None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        ladder: Ladder,
        memory: MemoryCheck,
        inputs: Inputs,
    ) -> None:
        self._memory = memory
        self._inputs = inputs
        self._reports = reports
        self._objects = objects
        self._scratch = scratch
        self._worker = worker
        self._spawn = spawn
        self._ladder = ladder
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._over: OrderedDict[AttemptKey, None] = OrderedDict()
        self._outcomes: dict[int, AttemptKey] = {}
        self._discarded = False
        self.closed: str | None = None
        self.logs = LogFollow(self._attempts.get)
        self.moved = asyncio.Event()

    # -- what control says

    def assign(self, assign: Assign) -> None:
        """Idempotent by job and attempt."""
        key = assign.key
        if key in self._attempts or key in self._over or self._is_stale(assign):
            return
        worker = self._worker(assign.worker)
        refusal = self.closed or (
            worker.why_not() if worker is not None else f"there is no worker {assign.worker} on this node"
        )
        if refusal is None and assign.input_ref is not None and assign.grant is None:
            refusal = "the input is in an object store for which there is no grant"
        if worker is None or refusal is not None:
            self._reports.add(Refused(assign.job, assign.attempt, refusal or "", self._leaving))
            return
        self._take(key, assign, worker)

    @property
    def _leaving(self) -> bool:
        return self.closed is not None

    def _is_stale(self, assign: Assign) -> bool:
        """A newer attempt of the same job ends an older one that control has given up."""
        for other in [a for a in self._attempts.values() if a.assign.job == assign.job]:
            if other.assign.attempt > assign.attempt:
                return True
            self._tell(other, ev.Dropped(_now()))
        return False

    def _take(self, key: AttemptKey, assign: Assign, worker: Worker) -> None:
        now = _now()
        timeout_s = assign.execution_timeout_ms / 1000
        state, commands = begin(now, timeout_s, assign.ttl_s, fetch=assign.input_ref is not None)
        try:
            folder = self._scratch.make(key, assign.worker)
        except OSError as error:
            reason = f"no scratch folder could be made: {error.strerror or error}"
            self._reports.add(Refused(assign.job, assign.attempt, reason))
            return
        alarm = Alarm(lambda at: self._tell(attempt, ev.Tick(at)))
        attempt = Attempt(key, assign, worker, now, state, alarm, folder, input=assign.input)
        self._attempts[key] = attempt
        worker.occupy(key)
        self._perform(attempt, commands)
        attempt.alarm.set(wake_at(attempt.state))

    def cancel(self, key: AttemptKey, reason: str) -> None:
        self._tell_key(key, ev.Stop(_now(), ev.Verdict("cancelled", reason)))

    def drop(self, keys: Iterable[AttemptKey]) -> None:
        for key in keys:
            self._reports.drop(key)
            self._tell_key(key, ev.Dropped(_now()))

    def acked(self, number: int) -> None:
        """Outcomes are numbered upwards."""
        while self._outcomes and (first := next(iter(self._outcomes))) <= number:
            self._tell_key(self._outcomes.pop(first), ev.Acked(_now()))

    def lose(self, worker: Worker, why: str) -> None:
        """The worker's device is ill. Its attempts count as failures: one of them may have made it ill."""
        verdict = ev.Verdict("lost", why, retryable=True)
        for key in list(worker.running):
            self._tell_key(key, ev.Stop(_now(), verdict))

    def lease_lost(self) -> None:
        for attempt in list(self._attempts.values()):
            self._tell(attempt, ev.LeaseLost(_now()))

    def stop_all(self, why: str) -> None:
        """What has not ended by itself is handed back, uncounted."""
        verdict = ev.Verdict("lost", why, retryable=True, given_back=True)
        for attempt in list(self._attempts.values()):
            self._tell(attempt, ev.Stop(_now(), verdict))

    def held(self) -> tuple[HeldAttempt, ...]:
        """Running and uploading ones; those that wait for an acknowledgement are in the outbox."""
        return tuple(
            HeldAttempt(attempt.assign.job, attempt.assign.attempt, attempt.assign.worker, said)
            for attempt in self._attempts.values()
            if (said := phase(attempt.state)) in ("running", "uploading")
        )

    def discard(self) -> None:
        """The agent's own end: timers and descriptors go, and what a worker still says begins nothing."""
        self._discarded = True
        for attempt in self._attempts.values():
            attempt.alarm.set(None)
            attempt.close()

    # -- what workers say

    def gone(self, worker: Worker, why: str, planned: bool) -> None:
        words = why if planned else f"the worker died: {why}"
        for key in list(worker.running):
            if (attempt := self._attempts.get(key)) is not None:
                self._tell(attempt, ev.WorkerGone(_now(), words, planned, attempt.tail))

    def frame(self, worker: Worker, frame: Frame) -> None:
        """Raises KeyError, TypeError or ValueError when the worker broke the protocol."""
        attempt = self._attempts.get(AttemptKey(frame.job, frame.attempt))
        if attempt is None or attempt.key not in worker.running or self._discarded:
            unwanted(worker, frame)
            return
        try:
            self._heard(attempt, frame)
        except (BrokenPromise, outputs.BadOutput) as broken:
            self._tell(attempt, ev.Stop(_now(), ev.Verdict("failed", str(broken))))

    def _heard(self, attempt: Attempt, frame: Frame) -> None:
        """News of a running attempt is passed on; of one whose verdict is fixed only its end counts."""
        running = isinstance(attempt.state, Running)
        match frame.kind:
            case "done" | "failed" if self._leaves_memory(attempt):
                attempt.ended, attempt.unclean = attempt.ended or _now(), ""
                self._spawn(self._when_clean(attempt, frame), f"memory after {attempt.assign.job}")
            case "done":
                self._done(attempt, frame)
            case "failed" if running and (why := attempt.worker.going):
                self._tell(attempt, ev.WorkerGone(_now(), why, True, attempt.tail))
            case "failed":
                attempt.ended = attempt.ended or _now()
                attempt.worker.served()
                if running:
                    attempt.keep_beside_error(frame)
                error, retryable = failure_of(frame, attempt.worker.secrets)
                again = retryable or attempt.beside_others
                self._tell(attempt, ev.HandlerFailed(_now(), error, again, attempt.tail))
            case "retire":
                self._spoiled(attempt, attempt.worker.said(frame, "reason"))
            case "begun":
                self._begun(attempt)
            case "returned":
                why = attempt.worker.said(frame, "reason")
                self._tell(attempt, ev.WorkerGone(_now(), why, True, attempt.tail))
            case "progress" | "chunk" | "file" | "fetch" if running:
                self._news(attempt, frame)
            case "progress" | "chunk" | "file" | "fetch":
                unwanted(attempt.worker, frame)
            case unknown:
                raise ValueError(f"unknown kind {unknown!r}")

    def _spoiled(self, attempt: Attempt, why: str) -> None:
        """The device context of the worker is lost. Its other attempts are given back uncounted. This one saw
        the error first, but need not have caused it: it may be tried again unless it was alone."""
        for key in attempt.worker.running - {attempt.key}:
            if (other := self._attempts.get(key)) is not None:
                attempt.beside_others = True
                self._tell(other, ev.WorkerGone(_now(), why, True, other.tail))

    def _begun(self, attempt: Attempt) -> None:
        """The time limit starts anew. Only the agent's own side of a protocol worker may say so."""
        if isinstance(attempt.state, Running) and attempt.worker.spec.kind == "protocol":
            attempt.started = _now()
            self._tell(attempt, ev.Begun(attempt.started))

    def _news(self, attempt: Attempt, frame: Frame) -> None:
        match frame.kind:
            case "progress":
                self._progress(attempt, frame)
            case "chunk":
                self._chunk(attempt, frame)
            case "file":
                self._file(attempt, frame)
            case "fetch":
                self._fetch_input(attempt, frame)

    def _progress(self, attempt: Attempt, frame: Frame) -> None:
        if len(frame.body) > PIECE_MAX:
            log.warning("a progress value of %d bytes is left out; the limit is 1 MB", len(frame.body))
            return
        self._reports.add(Progress(attempt.assign.job, attempt.assign.attempt, frame.body))

    def _chunk(self, attempt: Attempt, frame: Frame) -> None:
        large, grant = is_large_piece(frame), attempt.assign.grant
        try:
            check = partial(self._scratch.check, attempt.key)
            n, body = chunk_of(frame, storable=grant is not None, check=check)
        except (BrokenPromise, outputs.BadOutput):
            unwanted(attempt.worker, frame)
            raise
        if large and attempt.stream is None:
            assert grant is not None
            attempt.stream = PieceStream(attempt.key, grant, self._around(attempt))
        if attempt.stream is not None:
            attempt.stream.add(n, body, large=large)
        elif isinstance(body, bytes):
            self._reports.add(Chunk(attempt.assign.job, attempt.assign.attempt, n, body))

    def _around(self, attempt: Attempt) -> Surroundings:
        return Surroundings(
            objects=self._objects,
            spawn=self._spawn,
            report=self._reports.add,
            took=lambda n: attempt.worker.send(took(attempt.key, n)),
            hold=lambda held: attempt.worker.hold(attempt.key, held=held),
            event=lambda event: self._tell(attempt, event),
        )

    def _fetch_input(self, attempt: Attempt, frame: Frame) -> None:
        if attempt.fetches is None:
            send, private = attempt.worker.send, attempt.assign.private_inputs
            own = attempt.assign.grant
            attempt.fetches = Fetches(attempt.key, self._inputs, self._spawn, send, private=private, own=own)
        attempt.fetches.begin(frame)

    def _file(self, attempt: Attempt, frame: Frame) -> None:
        files = attempt.parcel.files
        file = file_of(frame, len(files), lambda fd: self._scratch.check(attempt.key, fd))
        if file.n in files:
            files[file.n].close()
        files[file.n] = file

    def _done(self, attempt: Attempt, frame: Frame) -> None:
        attempt.ended = attempt.ended or _now()
        attempt.worker.served()
        upload = False
        if isinstance(attempt.state, Running):
            try:
                upload = attempt.collect(frame)
            except (BrokenPromise, outputs.BadOutput) as error:
                self._tell(attempt, ev.HandlerFailed(_now(), str(error), False, attempt.tail))
                return
        self._tell(attempt, ev.Done(_now(), upload, attempt.tail))

    # -- what a stopped job leaves behind

    def _leaves_memory(self, attempt: Attempt) -> bool:
        """Whether the end of a stopped job waits for a look at its worker's memory. Asked once."""
        worker = attempt.worker
        first = isinstance(attempt.state, Cancelling) and attempt.unclean is None
        return first and self._memory.checks(worker, worker.spec.devices)

    async def _when_clean(self, attempt: Attempt, frame: Frame) -> None:
        """The ladder goes on meanwhile: a worker whose memory is not back in time counts as not stopped."""
        wait = CLEAN_LOOK_S
        while isinstance(attempt.state, Cancelling):
            devices = attempt.worker.spec.devices
            attempt.unclean = await self._memory.unclean(attempt.worker.name, devices)
            if not attempt.unclean:
                attempt.worker.on_frame(frame)
                return
            await asyncio.sleep(wait)
            wait = min(2 * wait, CLEAN_LOOK_MOST_S)

    # -- the machine

    def _tell_key(self, key: AttemptKey, event: ev.Event) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            self._tell(attempt, event)

    def _tell(self, attempt: Attempt, event: ev.Event) -> None:
        attempt.state, commands = step(attempt.state, event, self._ladder)
        if commands:
            self._perform(attempt, commands)
        attempt.alarm.set(wake_at(attempt.state))
        if attempt.stream is not None and not isinstance(attempt.state, Running):
            attempt.stream.unheard()
        if attempt.fetches is not None and not isinstance(attempt.state, Running):
            attempt.fetches.stop()

    def _perform(self, attempt: Attempt, commands: Iterable[ev.Command]) -> None:
        assign = attempt.assign
        for command in commands:
            match command:
                case ev.SendRun():
                    self._run(attempt)
                case ev.Fetch():
                    self._transfer(attempt, fetched, f"fetch {assign.job}")
                case ev.Upload():
                    self._reports.save()
                    self._transfer(attempt, uploaded, f"upload {assign.job}")
                case ev.StopTransfer():
                    if attempt.transfer is not None:
                        attempt.transfer.cancel()
                    if attempt.stream is not None:
                        attempt.stream.abandon()
                case ev.SayUploading():
                    self._reports.add(Released(assign.job, assign.attempt))
                    self._reports.add(Uploading(assign.job, assign.attempt))
                case ev.SayReleased():
                    self._reports.add(Released(assign.job, assign.attempt))
                case ev.Report(verdict):
                    self._report(attempt, verdict)
                case ev.Forget(reports):
                    self._forget(attempt, reports)
                case _:
                    self._command_worker(attempt, command)
        self.moved.set()

    def _command_worker(self, attempt: Attempt, command: ev.Command) -> None:
        match command:
            case ev.SendCancel(reason):
                fields = {"job": attempt.assign.job, "attempt": attempt.assign.attempt, "reason": reason}
                attempt.worker.send(Frame("cancel", fields))
            case ev.TerminateWorker(why):
                attempt.worker.terminate(attempt.unclean or why)
            case ev.KillWorker(why):
                attempt.worker.kill(why)
            case ev.LeaveWorker():
                self.logs.leaves(attempt)
                attempt.leave(_now())
                self._scratch.remove(attempt.key)
                attempt.worker.release(attempt.key)

    def _run(self, attempt: Attempt) -> None:
        attempt.begin(_now())
        self.logs.begun(attempt)
        fields = {
            "job": attempt.assign.job,
            "attempt": attempt.assign.attempt,
            "scratch": attempt.scratch,
            **attempt.more,
        }
        try:
            attempt.worker.send(Frame("run", fields, attempt.input or b"null"))
        except FrameError as error:
            self._tell(attempt, ev.HandlerFailed(_now(), f"the input is too large: {error}", retryable=False))
        attempt.input = None

    def _report(self, attempt: Attempt, verdict: ev.Verdict) -> None:
        assign = attempt.assign
        attempt.close()
        if verdict.given_back:
            number = self._reports.add(
                Refused(assign.job, assign.attempt, verdict.error or "", self._leaving)
            )
        else:
            number = self._reports.add(attempt.outcome(verdict))
        self._outcomes[number] = attempt.key

    def _forget(self, attempt: Attempt, reports: bool) -> None:
        attempt.close()
        del self._attempts[attempt.key]
        self._over[attempt.key] = None
        if len(self._over) > REMEMBERED:
            self._over.popitem(last=False)
        if reports:
            self._reports.drop(attempt.key)

    def _transfer(self, attempt: Attempt, move: Move, name: str) -> None:
        async def moving() -> None:
            self._tell(attempt, await move(attempt, self._objects))

        attempt.transfer = self._spawn(moving(), name)


def _now() -> float:
    return asyncio.get_running_loop().time()
