"""The node's attempts: takes Assigns, runs them on workers, and sees each to its acknowledged outcome.

The shell of `agent.jobs.attempts.attempt_machine`: messages, timers, transfers and what control sends go in
as events, and the machine's commands are performed here. The payloads and open files of an attempt are kept
here, never in the machine.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from stoker.agent import worker_frames
from stoker.agent.alarm import Alarm
from stoker.agent.host.devices.watch import DeviceWatch
from stoker.agent.host.logs.tail import Line, TailListener
from stoker.agent.jobs.attempts import events as ev
from stoker.agent.jobs.attempts.attempt_context import AttemptContext
from stoker.agent.jobs.attempts.attempt_machine import begin, phase, step, wake_at
from stoker.agent.jobs.attempts.log_follow import LogFollow
from stoker.agent.jobs.attempts.memory_after_stop import MemoryAfterStop
from stoker.agent.jobs.attempts.running_attempt import RunningAttempt
from stoker.agent.jobs.attempts.save_pace import is_of_use
from stoker.agent.jobs.attempts.states import Cancelling, Running
from stoker.agent.jobs.attempts.transfers import Move, fetched, uploaded
from stoker.agent.jobs.attempts.updates import Updates
from stoker.agent.jobs.attempts.waiting import WaitingAttempts
from stoker.agent.jobs.attempts.worker_events import HandlerViolation, discard
from stoker.agent.jobs.uploads import outputs
from stoker.agent.jobs.uploads.payloads import OUTPUT_MAX
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.wire.messages import Assign, AttemptKey, HeldAttempt, Refused, Released, Uploading
from stoker.worker.frames import Frame, FrameError

REMEMBERED = 4096
"""How many attempts are remembered after their end, so that an Assign that is sent twice is run once."""


class Attempts:
    """The attempts on this node. `workers` are the node's, by name. `moved` is set whenever an attempt
    changes. `upload_failures` are counted from the agent's start on."""

    def __init__(
        self,
        context: AttemptContext,
        workers: Mapping[str, Worker],
        memory: DeviceWatch[Worker],
        cancel_s: float,
    ) -> None:
        self._attempts: dict[AttemptKey, RunningAttempt] = {}
        self._reports, self._objects, self._scratch = context.reports, context.objects, context.scratch
        self._kept, self._spawn, self._workers = context.kept, context.spawn, workers
        self._memory = MemoryAfterStop(self._attempts, memory, context.spawn, self.on_message)
        self._cancel_s = cancel_s
        self._time = asyncio.get_running_loop().time
        self._updates = Updates(context, self._step)
        self._waiting = WaitingAttempts(self._attempts, self._step, self._prepare)
        self._over: OrderedDict[AttemptKey, None] = OrderedDict()
        self._outcomes: dict[int, AttemptKey] = {}
        self._discarded = False
        self.upload_failures = 0
        self.closed: str | None = None
        self.control_takes_yields = False
        self.logs = LogFollow(self._attempts, workers)
        self.moved = asyncio.Event()

    # -- what control sends

    def assign(self, assign: Assign) -> None:
        """Takes an attempt. Idempotent by job and attempt. A newer attempt of a job ends an older one, which
        control has given up."""
        key = AttemptKey(assign.job, assign.attempt)
        if key in self._attempts or key in self._over:
            return
        for other in [one for one in self._attempts.values() if one.assign.job == assign.job]:
            if other.assign.attempt > assign.attempt:
                return
            self._step(other, ev.Dropped(self._time()))
        now, worker = self._time(), self._workers.get(assign.worker)
        if self.closed is not None or worker is None:
            self._refuse(assign, self.closed or f"there is no worker {assign.worker} on this node")
            return
        stored = assign.input_ref is not None or (assign.saved is not None and assign.saved.ref is not None)
        if stored and assign.grant is None:
            self._refuse(assign, "the input, or the save, is in an object store for which there is no grant")
            return
        if (why := worker.occupy(key, now)) is not None:
            self._refuse(assign, why, at_once=not worker.ready)  # control received its state
            return
        named = assign.saved is not None and assign.saved.content != ""
        fetch = stored or named or assign.files_grant is not None
        waits, timeout_s = key in worker.waiting, assign.execution_timeout_ms / 1000
        state, commands = begin(now, timeout_s, assign.ttl_s, fetch=fetch, waits=waits)
        alarm = Alarm(lambda at: self._step(attempt, ev.Tick(at)))
        attempt = RunningAttempt(key, assign, worker, now, state, alarm, input=assign.input)
        if assign.saved is not None:
            attempt.chunk_count = attempt.saved_upto = assign.saved.upto
            attempt.gives_kept = self._kept.given
        if not waits and (why := self._prepare(attempt)):
            worker.release(key, now)
            self._refuse(assign, why)
            return
        self._attempts[key] = attempt
        self._perform(attempt, commands)
        attempt.alarm.set(wake_at(attempt.state))
        if waits:
            self._waiting.add(worker)

    def _prepare(self, attempt: RunningAttempt) -> str:
        """Makes its scratch folder; returns why there is none."""
        try:
            attempt.scratch = attempt.scratch or self._scratch.prepare(attempt.key, attempt.assign.worker)
        except OSError as error:
            return f"no scratch folder could be made: {error.strerror or error}"
        return ""

    def _refuse(self, assign: Assign, why: str, *, at_once: bool = False) -> int:
        at_once = at_once or self.closed is not None
        return self._reports.add(Refused(assign.job, assign.attempt, why, at_once))

    def hand_back(self, worker: Worker, why: str) -> None:
        """Hands back the attempts that wait for this worker: none is to wait for it any more."""
        self._waiting.hand_back(worker, why)

    def cancel(self, key: AttemptKey, reason: str) -> None:
        self._step_if_here(key, ev.Stop(self._time(), ev.Verdict("cancelled", reason)))

    def ask_to_yield(self, key: AttemptKey, why: str) -> None:
        """Asks the attempt to give up its place: at once if its handler has not begun, else at its next
        save."""
        self._step_if_here(key, ev.AskedToYield(self._time(), why))

    def ask_all_to_yield(self, why: str) -> None:
        """Asks all attempts, if control knows such an end."""
        for key in reversed(list(self._attempts) if self.control_takes_yields else []):
            self.ask_to_yield(key, why)

    def drop(self, keys: Iterable[AttemptKey]) -> None:
        for key in keys:
            self._reports.drop(key)
            self._step_if_here(key, ev.Dropped(self._time()))

    def acked(self, number: int) -> None:
        """Reports up to `number` are acknowledged. Outcomes are numbered upwards."""
        while self._outcomes and (first := next(iter(self._outcomes))) <= number:
            self._step_if_here(self._outcomes.pop(first), ev.Acked(self._time()))

    def lose(self, worker: Worker, why: str) -> None:
        """Ends the attempts of a worker whose device is unhealthy. They count as failures: one of them may be
        the cause."""
        verdict = ev.Verdict("lost", why, retryable=True)
        self.hand_back(worker, why)
        for key in list(worker.running):
            self._step_if_here(key, ev.Stop(self._time(), verdict))

    def lease_lost(self) -> None:
        for attempt in reversed(list(self._attempts.values())):  # none gets a slot that becomes free
            self._step(attempt, ev.LeaseLost(self._time()))

    def stop_all(self, why: str) -> None:
        """Gives the attempts that still run back to control; they are not counted."""
        verdict = ev.Verdict("lost", why, retryable=True, given_back=True)
        for attempt in reversed(list(self._attempts.values())):
            self._step(attempt, ev.Stop(self._time(), verdict))

    def held(self) -> tuple[HeldAttempt, ...]:
        """Returns the attempts that wait, run or upload; those that wait for an acknowledgement are in the
        outbox."""
        return tuple(
            HeldAttempt(attempt.assign.job, attempt.assign.attempt, attempt.assign.worker, now)
            for attempt in self._attempts.values()
            if (now := phase(attempt.state)) in ("waiting", "running", "uploading")
        )

    def holds_exit(self) -> bool:
        """Returns whether the agent's end should wait for an attempt: one that only uploads to a caller's own
        bucket depends on somebody else's server."""
        return any(
            (now := phase(attempt.state)) in ("waiting", "running")
            or (now == "uploading" and attempt.assign.files_grant is None)
            for attempt in self._attempts.values()
        )

    def discard(self) -> None:
        """Discards all attempts when the agent ends: stops timers, closes files, and ignores what workers
        still send."""
        self._discarded = True
        self._waiting.discard()
        for attempt in self._attempts.values():
            attempt.alarm.set(None)
            attempt.close()

    # -- what workers send

    def on_exit(self, worker: Worker, why: str, planned: bool, unbegun: Sequence[AttemptKey] = ()) -> None:
        """Ends a worker's attempts after its process was reaped, or cannot be in time. It had not begun those
        in `unbegun`."""
        reason = why if planned else f"the worker died: {why}"
        for key in [*worker.waiting, *worker.running]:
            if (attempt := self._attempts.get(key)) is not None:
                self._worker_gone(attempt, reason, planned=planned or key in unbegun)

    def on_message(self, worker: Worker, message: worker_frames.JobMessage | worker_frames.Retire) -> None:
        """Handles a worker's message. When an attempt's verdict is fixed, only the end of the attempt
        counts."""
        attempt = None if message.key is None else self._attempts.get(message.key)
        if attempt is None or attempt.key not in worker.running or self._discarded:
            discard(worker, message)
            if attempt is not None and attempt.key in worker.waiting:
                worker.on_broken(f"it spoke of job {attempt.assign.job} before its turn")
            return
        stopped = isinstance(attempt.state, Cancelling)
        try:
            match message:
                case worker_frames.Done() | worker_frames.Failed() if (
                    stopped and self._memory.must_be_measured(attempt)
                ):
                    self._memory.delay_end(attempt, message)
                case worker_frames.Failed(yielded=False) if (
                    isinstance(attempt.state, Running) and worker.ending_because
                ):
                    self._worker_gone(attempt, worker.ending_because)
                case worker_frames.Done() | worker_frames.Failed():
                    self._job_ended(attempt, message)
                case worker_frames.Retire():
                    self._context_lost(attempt, worker.redacted(message.reason))
                case worker_frames.Begun():
                    self._begun(attempt)
                case worker_frames.Returned():
                    self._worker_gone(attempt, worker.redacted(message.reason))
                case _ if isinstance(attempt.state, Running):
                    self._updates.take(attempt, message)
                case _:
                    discard(worker, message)
        except (HandlerViolation, outputs.BadOutput) as violation:
            self._step(attempt, ev.Stop(self._time(), ev.Verdict("failed", str(violation))))
        except worker_frames.BrokenProtocol as broken:
            worker.on_broken(str(broken))

    def _worker_gone(self, attempt: RunningAttempt, why: str, *, planned: bool = True) -> None:
        backlog = "" if attempt.stream is None else attempt.stream.backlog
        self._step(attempt, ev.WorkerGone(self._time(), why, planned, backlog))

    def _job_ended(self, attempt: RunningAttempt, end: worker_frames.Done | worker_frames.Failed) -> None:
        now, running = self._time(), isinstance(attempt.state, Running)
        backlog = "" if attempt.stream is None else attempt.stream.backlog
        event: ev.Event = ev.Done(now, False, backlog)
        if isinstance(end, worker_frames.Failed) and end.yielded:
            if attempt.asked_to_yield is None:
                raise worker_frames.BrokenProtocol(
                    f"it yielded job {attempt.assign.job}, and was not asked to"
                )
            event = ev.Yielded(now, attempt.asked_to_yield, backlog)
        elif isinstance(end, worker_frames.Failed):
            if running and end.body and len(end.body) <= OUTPUT_MAX:
                attempt.output_with_error = end.body
            retryable = end.retryable or attempt.ran_with_others
            event = ev.HandlerFailed(now, attempt.worker.redacted(end.error), retryable, backlog)
        elif running:
            try:
                event = ev.Done(now, attempt.collect(end), backlog)
            except (HandlerViolation, outputs.BadOutput) as error:
                event = ev.HandlerFailed(now, str(error), False, backlog)
        attempt.ended = attempt.ended or now
        self._step(attempt, event)

    def _context_lost(self, attempt: RunningAttempt, why: str) -> None:
        """Ends the attempts of a worker that lost its device's context. Its other attempts are given back
        uncounted. This one saw the error first, but need not have caused it: it may be tried again unless it
        was alone."""
        for key in attempt.worker.running - {attempt.key}:
            if (other := self._attempts.get(key)) is not None:
                attempt.ran_with_others = True
                self._worker_gone(other, why)

    def _begun(self, attempt: RunningAttempt) -> None:
        """Starts the time limit now that the worker has begun the attempt."""
        if isinstance(attempt.state, Running):
            attempt.started = self._time()
            self._step(attempt, ev.Begun(attempt.started))

    # -- the machine

    def _step_if_here(self, key: AttemptKey, event: ev.Event) -> None:
        if (attempt := self._attempts.get(key)) is not None:
            self._step(attempt, event)

    def _step(self, attempt: RunningAttempt, event: ev.Event) -> None:
        if isinstance(event, ev.UploadFailed | ev.ChunkFailed):
            self.upload_failures += 1
        attempt.state, commands = step(attempt.state, event, self._cancel_s)
        if attempt.paced is not None and not isinstance(attempt.state, Running):
            attempt.paced.end(of_use=is_of_use(attempt.state, keeps_case=attempt.assign.keeps_case))
        if commands:
            self._perform(attempt, commands)
        attempt.alarm.set(wake_at(attempt.state))
        if attempt.stream is not None and not isinstance(attempt.state, Running):
            attempt.stream.verdict_fixed()
        if not isinstance(attempt.state, Running):
            attempt.stop_requests()

    def _perform(self, attempt: RunningAttempt, commands: Iterable[ev.Command]) -> None:
        worker = attempt.worker
        for command in commands:
            match command:
                case ev.SendRun():
                    self._run(attempt)
                case ev.SendCancel() | ev.SendYield():
                    self._tell_handler(attempt, command)
                case ev.TerminateWorker(why):
                    worker.terminate(attempt.unclean or why)
                case ev.ReleaseSlot():
                    self._release(attempt)
                case ev.ReportOutcome(verdict):
                    attempt.close()
                    if verdict.given_back:
                        reported = self._refuse(attempt.assign, verdict.error or "", at_once=verdict.at_once)
                    else:
                        reported = self._reports.add(attempt.outcome(verdict))
                    self._outcomes[reported] = attempt.key
                case ev.Forget(reports):
                    self._forget(attempt, reports=reports)
                case ev.SendAhead() | ev.Begin() | ev.Withdraw():
                    self._perform_ahead(attempt, command)
                case _:
                    self._perform_transfer(attempt, command)
        self.moved.set()

    def _tell_handler(self, attempt: RunningAttempt, command: ev.SendCancel | ev.SendYield) -> None:
        fields = {"job": attempt.key.job, "attempt": attempt.key.attempt, "reason": command.reason}
        if isinstance(command, ev.SendCancel):
            attempt.worker.send(Frame("cancel", fields))
            self.hand_back(attempt.worker, "the job before it is being stopped")
        elif attempt.asked_to_yield is None:
            attempt.worker.send(Frame("yield", fields))
            attempt.asked_to_yield = command.reason

    def _perform_ahead(self, attempt: RunningAttempt, command: ev.SendAhead | ev.Begin | ev.Withdraw) -> None:
        worker = attempt.worker
        match command:
            case ev.SendAhead():
                try:
                    worker.run_ahead(attempt.key, attempt.run_frame(ahead=True))
                except OSError:  # no descriptor is left: it is sent in its turn
                    self._step(attempt, ev.Withdrawn(self._time()))
            case ev.Begin():
                self._begins(attempt, attempt.printed or worker.listen())
            case ev.Withdraw():
                self._waiting.withdraw(worker)

    def _perform_transfer(self, attempt: RunningAttempt, command: ev.Command) -> None:
        job, number = attempt.assign.job, attempt.assign.attempt
        match command:
            case ev.Fetch():
                self._transfer(attempt, fetched, f"fetch {job}")
            case ev.Upload():
                self._reports.save()
                self._transfer(attempt, uploaded, f"upload {job}")
            case ev.StopTransfer():
                if attempt.transfer is not None:
                    attempt.transfer.cancel()
                if attempt.stream is not None:
                    attempt.stream.abandon()
            case ev.ReportUploading():
                self._reports.add(Released(job, number))
                self._reports.add(Uploading(job, number, ""))
            case ev.ReportDelay(why):
                self._reports.add(Uploading(job, number, why))
            case ev.ReportReleased():
                self._reports.add(Released(job, number))

    def _run(self, attempt: RunningAttempt) -> None:
        assign, worker = attempt.assign, attempt.worker
        for grant in (assign.grant, assign.files_grant):
            if grant is not None and grant.access_secret:
                worker.secrets.add(grant.access_secret)
        try:
            self._begins(attempt, worker.run(attempt.key, attempt.run_frame()))
        except FrameError as error:
            self._step(
                attempt, ev.HandlerFailed(self._time(), f"the input is too large: {error}", retryable=False)
            )
        except OSError as error:  # no descriptor, or no memory, is left for a large input
            self._worker_gone(attempt, f"its input could not be sent: {error.strerror}")
        attempt.input = attempt.saved = None

    def _begins(self, attempt: RunningAttempt, printed: TailListener | None) -> None:
        attempt.started, attempt.printed = self._time(), printed
        if attempt.key in self.logs.wanted:
            self.logs.begin(attempt)

    def _release(self, attempt: RunningAttempt) -> None:
        if attempt.key in self.logs.followed:
            self.logs.end(attempt.key)
        now, worker, printed = self._time(), attempt.worker, attempt.printed
        job_ended = attempt.ended is not None
        attempt.ended, attempt.input, attempt.printed = attempt.ended or now, None, None
        lines: Sequence[Line] = ()
        if printed is not None:
            first, lines = printed.after(0, whole=False)
        if lines:
            attempt.keep_log(first, lines)
            worker.printed()
            self._waiting.withdraw(worker)
        self._scratch.remove(attempt.key)
        if (key := worker.release(attempt.key, now, job_ended=job_ended)) is not None:
            if lines and self._attempts[key].sent_ahead:  # they cannot be attributed: it had begun
                self._attempts[key].printed = printed
            self._waiting.next(key)

    def _transfer(self, attempt: RunningAttempt, move: Move, name: str) -> None:
        async def moving() -> None:
            self._step(attempt, await move(attempt, self._objects))

        attempt.transfer = self._spawn(moving(), name)

    def _forget(self, attempt: RunningAttempt, *, reports: bool) -> None:
        attempt.close()
        del self._attempts[attempt.key]
        self._over[attempt.key] = None
        if len(self._over) > REMEMBERED:
            self._over.popitem(last=False)
        if reports:
            self._reports.drop(attempt.key)
