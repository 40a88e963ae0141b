"""The node's workers: starts, stops and restarts processes until they are what control desires.

The shell of `agent.process` and `agent.restarts`. A worker lives here from the Desired that names it until
its process is reaped and nobody wants it any more; in between it may go through many processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stoker.agent import attempt_log, process, redaction, restarts, usage
from stoker.agent.alarm import Alarm
from stoker.agent.metering import Metering
from stoker.agent.seams import DeviceGate, Listener, Spawner, SpawnFailed, WorkerExit
from stoker.agent.worker_life import Life, News, Secrets, Standing, health, setup_frame
from stoker.agent.worker_wear import Measure, Spawn, WearWatch
from stoker.wire.messages import AttemptKey, Device, HeldWorker, Usage, WorkerPhase, WorkerSpec, WorkerState
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What every worker needs of its surroundings. `gone` comes once for each process, after its frames.
    `spawn` runs a coroutine in the agent's task group."""

    spawner: Spawner
    devices: DeviceGate
    ladder: process.StopLadder
    device: Callable[[str], Device | None]
    report: Callable[[WorkerState | Usage], object]
    frame: Callable[[Worker, Frame], None]
    gone: Callable[[Worker, str, bool], None]
    left: Callable[[Worker], None]
    paused: Callable[[], bool]
    spawn: Spawn
    measure: Measure
    boot: str
    wall: Callable[[], float]


class Worker:
    """One desired worker; the watcher of its processes. `running` are the attempts that hold its slots."""

    def __init__(self, spec: WorkerSpec, context: WorkerContext) -> None:
        self.spec = spec
        self.running: set[AttemptKey] = set()
        self.news = News()
        self._context = context
        self._standing = Standing()
        self._life: Life | None = None
        self._waits = False
        self._alarm = Alarm(self._rings)
        self._holding: set[AttemptKey] = set()
        self.secrets = Secrets(redaction.secrets_of(spec.env, spec.hidden))
        meter = usage.Meter(spec.worker, context.boot, "worker", spec.endpoint, spec.version, spec.devices)
        self._metering = Metering(meter, context.report, context.wall)

    # -- what others ask

    @property
    def name(self) -> str:
        return self.spec.worker

    @property
    def wanted(self) -> bool:
        return self._standing.wanted

    @property
    def going(self) -> str:
        """Why it was told to end at once; empty where it was not. The signal also reaches what its handlers
        started, so an error that they report now need not be their own."""
        state = None if self._life is None else self._life.state
        return state.why if isinstance(state, process.Terminating | process.Killed) else ""

    def held(self) -> HeldWorker:
        spec = self.spec
        return HeldWorker(
            spec.worker, spec.endpoint, spec.version, self.news.phase, spec.devices, self._slots()
        )

    def _slots(self) -> int | None:
        """None while no process has told."""
        life = self._life
        return life.slots if life is not None and isinstance(life.state, process.Ready) else None

    def why_not(self) -> str | None:
        """Why it cannot take an attempt now; None when it can."""
        if self._life is None or not isinstance(self._life.state, process.Ready):
            return f"worker {self.name} is {self.news.phase}"
        if len(self.running) >= self._life.slots:
            return f"worker {self.name} is busy"
        return None

    def send(self, frame: Frame) -> None:
        if self._life is not None:
            self._life.handle.send(frame)

    def listen(self) -> Listener | None:
        return None if self._life is None else self._life.handle.listen()

    def served(self) -> None:
        """It has brought a job to its end, whose slot is not free yet."""
        if self._life is not None:
            self._life.wear.job_ended()

    def occupy(self, key: AttemptKey) -> None:
        self.running.add(key)
        self._metering.jobs(len(self.running))

    def release(self, key: AttemptKey) -> None:
        self.running.discard(key)
        self._metering.jobs(len(self.running))
        self.hold(key, held=False)
        if not self.running and self._life and isinstance(self._life.state, process.Draining):
            self.tell(process.Idle(_now()))

    def hold(self, key: AttemptKey, *, held: bool) -> None:
        """Read nothing of it while an attempt has too much that waits. Its neighbours share the socket."""
        if held:
            self._holding.add(key)
        elif key in self._holding:
            self._holding.remove(key)
        else:
            return
        self.pause_or_resume()

    def pause_or_resume(self) -> None:
        if self._life is not None:
            paused = self._holding or self._context.paused()
            (self._life.handle.pause if paused else self._life.handle.resume)()

    def terminate(self, why: str) -> None:
        self.tell(process.TerminateNow(_now(), why))

    def kill(self, why: str) -> None:
        self.tell(process.KillNow(_now(), why))

    # -- what control wants

    def want(self) -> None:
        """A worker that is on its way out starts again after its exit."""
        self._standing.wanted = True
        self.tell(process.Keep(_now()))

    def unwant(self, why: str) -> None:
        """After its attempts have ended."""
        self._end(process.Drain(_now(), why, busy=bool(self.running)))

    def stop(self, why: str) -> None:
        """Without waiting for its attempts."""
        self._end(process.Stop(_now(), why))

    def _end(self, event: process.Drain | process.Stop) -> None:
        self._standing.wanted = False
        if self._life is None:
            self._alarm.set(None)
            self._announce("gone", event.why)
            self._context.left(self)
        else:
            self.tell(event)

    def discard(self) -> None:
        """The agent's own end: no timer of it rings any more, and nothing starts again."""
        self._standing.wanted = False
        self._alarm.set(None)
        self._metering.discard()
        if self._life is not None:
            self._life.wear.close()

    # -- its process

    def start_if_waiting(self) -> None:
        """Its device may be worked with now."""
        if self._waits and self._life is None and self._standing.wanted:
            self.start()

    def start(self) -> None:
        names = self.spec.devices
        self._waits = self._context.devices.closed(names)
        if self._waits:
            return
        devices = [self._context.device(name) for name in names]
        device = devices[0] if devices else None
        try:
            if None in devices:
                raise SpawnFailed(f"this node has no device {names[devices.index(None)]}")
            handle = self._context.spawner.spawn(self.spec, device, self)
            self._context.devices.started(self.name, names)
        except (SpawnFailed, OSError) as error:
            self._after_end(restarts.StartFailed(_now(), str(error)), ())
            return
        self._metering.began()
        state, commands = process.begin(_now(), self.spec.start_timeout_s)
        context = self._context
        held = [device for device in devices if device is not None]
        wear = WearWatch(self.spec, held, lambda: handle.pid, context.measure, context.spawn, self._replace)
        self._life = Life(state, handle, wear)
        if self._context.paused():
            handle.pause()
        self._perform(commands, device)
        self._alarm.set(process.wake_at(state))

    def tell(self, event: process.Event) -> None:
        """An event for the machine of the present process; nothing when there is none."""
        if self._life is None:
            return
        self._life.state, commands = process.step(self._life.state, event, self._context.ladder)
        self._perform(commands, None)
        if self._life is not None:
            self._alarm.set(process.wake_at(self._life.state))

    def _perform(self, commands: Sequence[process.Command], device: Device | None) -> None:
        assert self._life is not None
        handle = self._life.handle
        for command in commands:
            match command:
                case process.SendSetup():
                    handle.send(setup_frame(self.spec, device))
                case process.SendStop():
                    handle.send(Frame("stop"))
                case process.Terminate():
                    handle.terminate()
                case process.Kill():
                    handle.kill()
                case process.Announce(state, reason):
                    self._announce(state, reason)

    def _rings(self, at: float) -> None:
        if self._life is not None:
            self.tell(process.Tick(at))
        elif self._standing.wanted:
            self.start()

    # -- what the process says

    def on_frame(self, frame: Frame) -> None:
        try:
            match frame.kind:
                case "ready":
                    self._ready(frame)
                case "slots":
                    self._slots_are(int(frame.fields["n"]))
                case "setup_failed":
                    self.tell(process.SetupFailed(_now(), self.said(frame, "error")))
                case "retire":
                    self._retire(frame)
                case _:
                    self._context.frame(self, frame)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("worker %s broke the protocol with a %s frame: %r", self.name, frame.kind, error)
            why = f"the worker broke the frame protocol: a {frame.kind} frame has a bad {error}"
            self.tell(process.KillNow(_now(), why, planned=False))

    def _retire(self, frame: Frame) -> None:
        """A process that has had no job stays: one that always asks would be started anew without a pause."""
        assert self._life is not None
        spoiled = frame.fields.get("lost") is True
        if self.running or self._life.wear.jobs:
            self._replace(self.said(frame, "reason"), spoiled=spoiled)
        if spoiled:
            self._life.spoiled = True
            self._context.frame(self, frame)

    def said(self, frame: Frame, field: str) -> str:
        """The words of user code, as others may read them."""
        return redaction.hidden_in(str(frame.fields[field]), self.secrets)

    def _replace(self, why: str, *, spoiled: bool = False) -> None:
        """By a fresh process, once its attempts have ended."""
        self.tell(process.Retire(_now(), why, busy=bool(self.running), spoiled=spoiled))

    def _ready(self, frame: Frame) -> None:
        assert self._life is not None
        self._life.slots = self._allowed(int(frame.fields.get("concurrency", 1)))
        self.tell(process.BecameReady(_now()))
        self._context.devices.ready(self.name, self.spec.devices)
        self._metering.ready()
        self._life.wear.ready()

    def _slots_are(self, now: int) -> None:
        """What runs beyond a lower number is left to end."""
        if self._life is not None and self._life.slots != self._allowed(now):
            self._life.slots = self._allowed(now)
            if isinstance(self._life.state, process.Ready):
                self._announce("ready", self.news.reason)

    def _allowed(self, slots: int) -> int:
        return max(1, min(self.spec.concurrency, slots))

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002  # the word of the domain
        """Control hears first that the worker is not usable, then that its slots are free."""
        life = self._life
        assert life is not None
        ended, _ = process.step(life.state, process.ProcessExited(_now(), exit.reason), self._context.ladder)
        assert isinstance(ended, process.Exited)
        self._context.devices.ended(self.name, self.spec.devices)
        self._metering.ended()
        self._life = None
        self._alarm.set(None)
        life.wear.close()
        tail = attempt_log.shown(exit.log_tail, self.secrets)
        self._after_end(health(ended, life, self.running), tail, told=ended.told)
        self._context.gone(self, ended.why, ended.planned)

    def _after_end(self, event: restarts.Event, log_tail: tuple[str, ...], *, told: bool = True) -> None:
        if not self._standing.wanted:
            self._announce("gone", event.why)
            self._context.left(self)
            return
        self._standing.history, decision = restarts.decide(self._standing.history, event)
        wait = max(decision.at - _now(), 0.0)
        log.info("worker %s starts again in %.1f s: %s", self.name, wait, decision.why)
        if decision.unhealthy:
            self._announce("unhealthy", restarts.crash_words(decision.why, told, log_tail), log_tail)
        else:
            self._announce("starting", decision.why, log_tail)
        self._alarm.set(decision.at)

    def _announce(self, phase: WorkerPhase, reason: str, log_tail: tuple[str, ...] = ()) -> None:
        self.news = News(phase, reason, log_tail)
        spec = self.spec
        slots = self._slots() if phase == "ready" else None
        told = WorkerState(spec.worker, spec.endpoint, spec.version, phase, reason, log_tail, slots)
        self._context.report(told)


class Workers:
    """All workers of this node, by name."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._workers: dict[str, Worker] = {}
        self._closed = False

    def get(self, name: str) -> Worker | None:
        return self._workers.get(name)

    def on_device(self, uuid: str) -> list[Worker]:
        return [worker for worker in self._workers.values() if uuid in worker.spec.devices]

    def volumes(self) -> set[str]:
        """Those that its workers have, on their way out too."""
        return {worker.spec.volume for worker in self._workers.values()}

    def held(self) -> tuple[HeldWorker, ...]:
        return tuple(worker.held() for worker in self._workers.values())

    def __len__(self) -> int:
        return len(self._workers)

    def desire(self, specs: Iterable[WorkerSpec]) -> None:
        """Idempotent: what is named and missing starts, what is here and not named drains and stops.

        Nothing is started once `drain_all` or `stop_all` was called: the agent goes, whatever control still
        wants of it.
        """
        if self._closed:
            return
        wanted = {spec.worker: spec for spec in specs}
        for worker in list(self._workers.values()):
            if worker.name in wanted:
                if not worker.wanted:
                    worker.want()
            elif worker.wanted:
                worker.unwant("it is no longer wanted")
        for name, spec in wanted.items():
            if name not in self._workers:
                self._workers[name] = Worker(spec, self._context)
                self._workers[name].start()

    def pause_or_resume(self) -> None:
        for worker in self._workers.values():
            worker.pause_or_resume()

    def drain_all(self, why: str) -> None:
        """Idle ones end now, the others with their last attempt. Nothing starts any more."""
        self._closed = True
        for worker in list(self._workers.values()):
            worker.unwant(why)

    def stop_all(self, why: str) -> None:
        self._closed = True
        for worker in list(self._workers.values()):
            worker.stop(why)

    def forget(self, worker: Worker) -> None:
        self._workers.pop(worker.name, None)

    def discard(self) -> None:
        for worker in self._workers.values():
            worker.discard()


def _now() -> float:
    return asyncio.get_running_loop().time()
