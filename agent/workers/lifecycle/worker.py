"""The worker that control desires, through all its processes.

The shell of `agent.workers.lifecycle.process_machine` and `agent.workers.lifecycle.restarts`: performs their
commands, and turns what happens to the present process into their events.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stoker.agent import worker_frames
from stoker.agent.alarm import Alarm, loop_time
from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs import attempt_log, redaction
from stoker.agent.host.logs.tail import TailListener
from stoker.agent.host.logs.worker_log import WorkerLog
from stoker.agent.interfaces import WorkerExit
from stoker.agent.workers.lifecycle import process_machine, restarts, usage
from stoker.agent.workers.lifecycle.contents import content_of
from stoker.agent.workers.lifecycle.metering import Metering
from stoker.agent.workers.lifecycle.process_life import (
    WAITING_MOST,
    KnownSecrets,
    ProcessLife,
    begin,
    found_devices,
    may_wait,
    restart_event,
    setup_frame,
)
from stoker.agent.workers.lifecycle.reported_state import ReportedState
from stoker.agent.workers.lifecycle.worker_context import WorkerContext
from stoker.agent.workers.lifecycle.worker_source import WorkerSource
from stoker.agent.workers.lifecycle.worker_weights import WorkerWeights
from stoker.wire.messages import AttemptKey, HeldWorker, WorkerSpec
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)


class Worker:
    """The watcher of its processes. `running` are the attempts that hold its slots, `waiting` those that come
    after them, in order; `occupied_at`: when a slot was last taken. `wanted`: control desires it, so it is
    started again when its process ends. `log`: what its processes print."""

    def __init__(self, spec: WorkerSpec, context: WorkerContext[Worker]) -> None:
        self.spec = spec
        self.running: set[AttemptKey] = set()
        self.waiting: dict[AttemptKey, None] = {}
        self.occupied_at = 0.0
        self.wanted = True
        self.log = WorkerLog()
        self.secrets = KnownSecrets(redaction.secrets_of(spec.env, spec.hidden))
        self._context = context
        self._reported = ReportedState(spec, context.report)
        self._history = restarts.History()
        self._life: ProcessLife | None = None
        self._waits_for_device = False
        self._weights = WorkerWeights(spec, context.weights, self._reported, self.start)
        self.source = WorkerSource(
            spec, context.sources, context.fetch_source, self._reported, self.start, context.spawn
        )
        self._paused_by: set[AttemptKey] = set()
        self._alarm = Alarm(self._on_alarm)
        meter = usage.Meter(spec.worker, context.boot, "worker", spec.endpoint, spec.version, spec.devices)
        self._metering = Metering(meter, context.report, context.wall)

    # -- queries

    @property
    def name(self) -> str:
        return self.spec.worker

    @property
    def ending_because(self) -> str:
        """The reason why its process was sent a signal, or ""."""
        return "" if self._life is None else process_machine.signalled_because(self._life.state)

    @property
    def room_ahead(self) -> int:
        """Returns how many more runs may be sent to the worker's process before their turn."""
        return 0 if self._life is None else self._life.room_ahead

    @property
    def content(self) -> str:
        """Returns the content that its process runs, by digest; "" where that is not known."""
        return content_of(self.source.spec, "" if self._life is None else self._life.process.image_id)

    def held(self) -> HeldWorker:
        """Returns the worker's state for Hello."""
        return self._reported.held(self._life)

    @property
    def ready(self) -> bool:
        return self._life is not None and isinstance(self._life.state, process_machine.Ready)

    def redacted(self, text: str) -> str:
        """Returns the text without the worker's secrets."""
        return redaction.hidden_in(text, self.secrets)

    # -- its attempts

    def occupy(self, key: AttemptKey, at: float) -> str | None:
        """Gives the attempt a slot, or lets it wait for one. Returns why it can do neither, or None."""
        life = self._life
        if life is None or not isinstance(life.state, process_machine.Ready):
            return f"worker {self.name} is {self._reported.phase}"
        if not life.process.alive:
            return f"the process of worker {self.name} has ended"
        if len(self.running) < life.slots:
            self.running.add(key)
            self.occupied_at = at
            life.ahead.current = key
            if len(self.running) == 1:
                self._metering.step(usage.Jobs(at, 1))
        elif may_wait(self.spec) and len(self.waiting) < WAITING_MOST:
            self.waiting[key] = None
        else:
            return f"worker {self.name} is busy"
        return None

    def run(self, key: AttemptKey, frame: Frame) -> TailListener | None:
        """Sends the run frame. Returns what listens to the process from before the job on; None where there
        is no process. Raises FrameError for an input over the limit of a frame, and OSError where a large one
        cannot be passed on."""
        if (life := self._life) is None:
            return None
        listener = life.process.tail.listen()
        life.process.send(frame)
        life.known.add(key)
        if life.ahead.withdrawn:
            life.ahead.clear_after(key)
        return listener

    def run_ahead(self, key: AttemptKey, frame: Frame) -> None:
        """Sends the run frame of one that waits, while there is `room_ahead`. Raises OSError if it cannot."""
        if self._life is not None:
            self._life.run_ahead(key, frame)

    def listen(self) -> TailListener | None:
        """Returns a listener to what the process prints from now on; None where there is no process."""
        return None if self._life is None else self._life.process.tail.listen()

    def withdraw(self) -> list[AttemptKey]:
        """Withdraws and returns the runs that were sent ahead and that its process has not begun."""
        return [] if self._life is None else self._life.withdraw()

    def printed(self) -> None:
        """Notes that a job of the worker has printed."""
        if self._life is not None:
            self._life.ahead.prints = True

    def send(self, frame: Frame) -> None:
        if self._life is not None:
            self._life.process.send(frame)

    def release(self, key: AttemptKey, at: float, *, job_ended: bool = False) -> AttemptKey | None:
        """Frees the slot of the attempt, or removes it from those that wait. Returns the one that has it now,
        if one waited that the process may begin or have begun. `job_ended`: the process reported its end."""
        if key in self.waiting:
            del self.waiting[key]
            return None
        life = self._life
        if job_ended and life is not None:
            life.jobs += 1
            if life.recycling is not None:  # while it holds the slot: a process that retires begins no other
                life.recycling.job_ended()
        self.running.discard(key)
        following = next(iter(self.waiting), None)
        if following is not None and (life is None or not life.may_begin(following)):
            following = None
        if following is not None:
            del self.waiting[following]
            self.running.add(following)
            self.occupied_at = at
        if life is not None:
            life.ahead.current = following
            if life.ahead.sent or life.ahead.withdrawn:
                life.ahead.end(key)
        if not self.running:
            self._metering.step(usage.Jobs(at, 0))
        if key in self._paused_by:
            self.hold(key, paused=False)
        if not self.running and life is not None and isinstance(life.state, process_machine.Draining):
            self._step(process_machine.Idle(at))
        return following

    def hold(self, key: AttemptKey, *, paused: bool) -> None:
        """Stops reading the socket, which all attempts share, while one of them has too much that waits."""
        (self._paused_by.add if paused else self._paused_by.discard)(key)
        self.pause_or_resume()

    def pause_or_resume(self) -> None:
        if self._life is not None:
            paused = self._paused_by or self._context.paused()
            (self._life.process.pause if paused else self._life.process.resume)()

    def terminate(self, why: str) -> None:
        """Sends SIGTERM now, and SIGKILL after the time of `StopLadder`."""
        self._step(process_machine.TerminateNow(loop_time(), why))

    def kill(self, why: str) -> None:
        self._step(process_machine.KillNow(loop_time(), why))

    # -- what control desires

    def keep(self) -> None:
        """Keeps the worker that control desires again: if its process is stopping, another follows."""
        self.wanted = True
        self._step(process_machine.Keep(loop_time()))

    def drain(self, why: str) -> None:
        """Ends it after its attempts."""
        self._end(process_machine.Drain(loop_time(), why, busy=bool(self.running)))

    def stop(self, why: str) -> None:
        """Ends it without waiting for its attempts."""
        self._end(process_machine.Stop(loop_time(), why))

    def _end(self, event: process_machine.Drain | process_machine.Stop) -> None:
        self.wanted = False
        if self._life is None:
            self._alarm.set(None)
            self._reported.change(None, "gone", event.why)
            self._context.on_gone(self)
        else:
            self._step(event)

    def discard(self) -> None:
        """Stops the worker's timers when the agent ends, and starts nothing again."""
        self.wanted = False
        self._alarm.set(None)
        self._metering.discard()
        self.source.release()
        if self._life is not None:
            self._life.close()

    # -- its process

    def start_if_pending(self) -> None:
        """Starts its process if it waited for its device, which may be used now."""
        if self._waits_for_device and self._life is None and self.wanted:
            self.start()

    def start(self) -> None:
        context, names = self._context, self.spec.devices
        self._waits_for_device = context.devices.closed(names)
        if self._waits_for_device or not (self._weights.here() and self.source.here()):
            return
        try:
            devices = found_devices(names, context.find_device)
            process = context.spawner.spawn(self.source.spec, devices[0] if devices else None, self)
        except (SpawnFailed, OSError) as error:
            self._after_exit(restarts.StartFailed(loop_time(), str(error)), ())
            return
        context.devices.started(self.name, names)
        self._metering.began()
        self._life, commands = begin(self.spec, process, devices, context, self._replace)
        self.log.begin(process.tail)
        if context.paused():
            process.pause()
        try:
            self._perform(self._life, commands)
        except OSError as error:  # no descriptor is left
            why = f"its setup could not be sent: {error.strerror}"
            self._step(process_machine.KillNow(loop_time(), why, planned=False))
        self._alarm.set(process_machine.wake_at(self._life.state))

    def _step(self, event: process_machine.Event) -> None:
        """Passes an event to the machine of the present process; does nothing when there is none."""
        if (life := self._life) is None:
            return
        life.state, commands = process_machine.step(life.state, event, self._context.ladder)
        self._perform(life, commands)
        if self.waiting and (why := process_machine.why_closed(life.state)) is not None:
            self._context.on_closed(self, why)
        if self._life is not None:
            self._alarm.set(process_machine.wake_at(self._life.state))

    def _perform(self, life: ProcessLife, commands: Sequence[process_machine.Command]) -> None:
        for command in commands:
            match command:
                case process_machine.SendSetup():
                    life.process.send(setup_frame(self.source.spec, life))
                case process_machine.SendStop():
                    life.process.send(Frame("stop"))
                case process_machine.Terminate():
                    life.process.terminate()
                case process_machine.Kill():
                    life.process.kill()
                case process_machine.Announce(state, reason):
                    self._reported.change(life, state, reason)

    def _on_alarm(self, at: float) -> None:
        if self._life is not None:
            self._step(process_machine.Tick(at))
        elif self.wanted:
            self.start()

    def _replace(self, why: str, *, context_lost: bool = False) -> None:
        """Replaces the process by a fresh one, once its attempts have ended."""
        busy = bool(self.running)
        self._step(process_machine.Retire(loop_time(), why, busy=busy, context_lost=context_lost))

    # -- what the process sends

    def on_frame(self, frame: Frame) -> None:
        life = self._life
        if life is None or life.broken:
            frame.close()
            return
        program = self.spec.kind != "python"
        try:
            message = worker_frames.read(frame, program=program)
            if not program and message.key not in life.known:
                worker_frames.require_timely(message, setup_ended=life.setup_ended, known=life.known)
        except worker_frames.BrokenProtocol as broken:
            frame.close()
            self.on_broken(str(broken))
            return
        match message:
            case worker_frames.Ready():
                self._ready(life, message)
            case worker_frames.Slots(n):
                self._set_slots(life, n)
            case worker_frames.SetupFailed(error):
                life.setup_ended = True
                self._step(process_machine.SetupFailed(loop_time(), self.redacted(error)))
            case worker_frames.Retire():
                self._retire(life, message)
            case worker_frames.Unfit(reason):
                self._set_health(life, self.redacted(reason))
            case worker_frames.Fit():
                self._set_health(life, "")
            case _:
                if isinstance(message, worker_frames.Done | worker_frames.Failed | worker_frames.Returned):
                    life.known.discard(message.key)
                self._context.on_message(self, message)

    def on_broken(self, why: str) -> None:
        """Kills the process: none of its messages are believed any more, and its jobs are tried again."""
        life = self._life
        if life is not None and not life.broken:
            life.broken = True
            log.warning("worker %s broke the worker protocol and is ended: %s", self.name, why)
            why = f"broke the worker protocol ({why}) and was killed"
            self._step(process_machine.KillNow(loop_time(), why, planned=False))

    def _ready(self, life: ProcessLife, message: worker_frames.Ready) -> None:
        life.became_ready(message, self._allowed(message.concurrency), self._weights.took_s, self.redacted)
        if life.serves:
            log.info("worker %s of endpoint %s runs %s", self.name, self.spec.endpoint, life.serves)
        self._step(process_machine.BecameReady(loop_time()))
        self._context.devices.ready(self.name, self.spec.devices)
        self._metering.step(usage.Ready(loop_time()))
        if self.spec.kind == "http":  # the agent does not see its requests
            self._metering.step(usage.Jobs(loop_time(), 1))
        if life.recycling is not None:
            life.recycling.ready()

    def _set_health(self, life: ProcessLife, unfit: str) -> None:
        """Takes an http worker out of the rotation, or puts it back."""
        life.unfit = unfit
        if isinstance(life.state, process_machine.Ready):
            self._reported.change(life, "ready", "")

    def _set_slots(self, life: ProcessLife, slots: int) -> None:
        """Attempts beyond a lower number may end."""
        if life.slots != self._allowed(slots):
            life.slots = self._allowed(slots)
            if isinstance(life.state, process_machine.Ready):
                self._reported.change(life, "ready", self._reported.reason)

    def _allowed(self, slots: int) -> int:
        return max(1, min(self.spec.concurrency, slots))

    def _retire(self, life: ProcessLife, message: worker_frames.Retire) -> None:
        """Retires the process, unless it had no job: one that always retires would be started without end."""
        if self.running or life.jobs:
            self._replace(self.redacted(message.reason), context_lost=message.lost)
        if message.lost:
            life.context_lost = True
            self._context.on_message(self, message)

    # -- its end

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002  # the word of the domain
        """Reports first that the worker is not usable, then that its slots are free."""
        life, now = self._life, loop_time()
        assert life is not None
        event = process_machine.ProcessExited(now, exit.reason)
        exited, _ = process_machine.step(life.state, event, self._context.ladder)
        assert isinstance(exited, process_machine.Exited)
        self._context.devices.ended(self.name, self.spec.devices)
        self._metering.ended()
        self.log.end()
        self._life = None
        self._alarm.set(None)
        unbegun = life.withdraw()
        life.close()
        log_tail = attempt_log.last_lines(exit.log_tail, self.secrets)
        self._after_exit(restart_event(exited, life, self.running), log_tail, is_cause=exited.is_cause)
        self._context.on_exit(self, exited.why, exited.planned, unbegun)

    def _after_exit(self, event: restarts.Event, log_tail: tuple[str, ...], *, is_cause: bool = True) -> None:
        if not self.wanted:
            self._reported.change(None, "gone", event.why)
            self._context.on_gone(self)
            return
        self._history, decision = restarts.decide(self._history, event)
        wait_s = max(decision.at - loop_time(), 0.0)
        log.info("worker %s starts again in %.1f s: %s", self.name, wait_s, decision.why)
        self._reported.will_restart(decision, log_tail, is_cause=is_cause)
        self._alarm.set(decision.at)
