"""The pod machine: what is wanted of one pod, against what the engine says of its container.

Pure: no engine, no clock. The shell (`agent.pods`) performs one command at a time and turns what comes of it
into an event; after each it looks again, so a decision is made of what is there and not of what should be.

    Looking --seen--> decided:
      Pulling   the image, unless it is here        no container, wished RUNNING
       '-> Making   container and volume             given up while it pulls when the wish changes
      Starting  started                             made, or ended and to run again
      Stopping  SIGTERM --kill_at--> Killing        runs, and is not to, or not like this
      Removing  container removed                   of another version, or TERMINATED
      Clearing  its own volume removed ──> Gone     TERMINATED, and no container
      Settled   nothing to do; looked at now and then
    each of them --done--> Looking      --failed--> Waiting, longer each time, ──> Looking

- A container that ended *by itself* is not started again: `exited` is said, until a higher `restarts` or
  version comes. One that its engine took along when it went is, as soon as the engine is back.
- Which of the two it was, and for which wish it was last started, is the Mark. It is kept on disk *before* a
  stop and *after* a start: an agent that dies between the two starts once too often and never too seldom.
- Without a spec (this agent has not heard of the pod yet, or no more) nothing is done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from stoker.agent.pod_events import (
    Absent,
    Command,
    Container,
    Course,
    Done,
    Ended,
    Event,
    Failed,
    GiveUp,
    Keep,
    Look,
    Made,
    Make,
    Mark,
    Pull,
    Remove,
    RemoveVolume,
    Report,
    Runs,
    Saw,
    Signal,
    Start,
    Tick,
    Wished,
)
from stoker.agent.restarts import back_off
from stoker.wire.messages import HeldPod, PodPhase, PodSpec, PodState

STOP_S = 10.0
"""From SIGTERM to SIGKILL."""

KILLED = 137
"""What engines say of an end by SIGKILL."""

PATIENT = 3
"""Looks at a container that was seen already may fail so often before it is said: engines are restarted."""

# ---- states -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Looking:
    pass


@dataclass(frozen=True, slots=True)
class Pulling:
    pass


@dataclass(frozen=True, slots=True)
class Making:
    pass


@dataclass(frozen=True, slots=True)
class Starting:
    """For the spec of that time: another may have come since."""

    mark: Mark


@dataclass(frozen=True, slots=True)
class Stopping:
    kill_at: float


@dataclass(frozen=True, slots=True)
class Killing:
    """SIGKILL is sent; only the end is missing."""


@dataclass(frozen=True, slots=True)
class Removing:
    pass


@dataclass(frozen=True, slots=True)
class Clearing:
    pass


@dataclass(frozen=True, slots=True)
class Waiting:
    until: float


@dataclass(frozen=True, slots=True)
class Settled:
    pass


@dataclass(frozen=True, slots=True)
class Gone:
    """For good: nothing of it is left on this node."""


Doing: TypeAlias = (
    Looking
    | Pulling
    | Making
    | Starting
    | Stopping
    | Killing
    | Removing
    | Clearing
    | Waiting
    | Settled
    | Gone
)


@dataclass(frozen=True, slots=True)
class Pod:
    """`seen` is None until the engine has told of it; `said` is the last Report."""

    name: str
    doing: Doing
    spec: PodSpec | None = None
    mark: Mark | None = None
    seen: Container | None = None
    said: PodState | None = None
    failures: int = 0


Stepped: TypeAlias = tuple[Pod, tuple[Command, ...]]


# ---- the machine --------------------------------------------------------------------------------


def begin(name: str, mark: Mark | None) -> Stepped:
    """A pod that is new to this agent's life; `mark` is what an earlier one kept."""
    return Pod(name, Looking(), mark=mark), (Look(),)


def step(pod: Pod, event: Event) -> Stepped:
    """What `event` makes of `pod`. Late news changes nothing and commands nothing."""
    match event:
        case Wished(_, spec):
            return (pod, ()) if spec == pod.spec else _wished(replace(pod, spec=spec))
        case Tick(at):
            return _ticked(pod, at)
        case Saw(at, container):
            return _saw(pod, container, at)
        case Done():
            return _done(pod)
        case Failed(at, why):
            return _failed(pod, why, at)
        case _:
            assert_never(event)


def wake_at(pod: Pod) -> float | None:
    """When the machine wants a Tick, if nothing else happens."""
    match pod.doing:
        case Waiting(until=at) | Stopping(kill_at=at):
            return at
        case _:
            return None


def watched(pod: Pod) -> bool:
    """Whether it wants a Tick now and then, to be looked at."""
    return isinstance(pod.doing, Settled | Stopping | Killing)


def held(pod: Pod) -> HeldPod | None:
    """What the next Hello says of it; None when this node has nothing of it, as far as is known. What was
    said stands until something else is."""
    if (said := pod.said) is not None:
        return None if said.state == "gone" else HeldPod(pod.name, said.version, said.restarts, said.state)
    match pod.mark, pod.seen:
        case None, _:
            return None
        case mark, None:
            return HeldPod(pod.name, mark.version, mark.restarts, "failed")
        case mark, Runs():
            return HeldPod(pod.name, mark.version, mark.restarts, "running")
        case mark, _:
            return HeldPod(pod.name, mark.version, mark.restarts, "exited")


def _wished(pod: Pod) -> Stepped:
    match pod.doing:
        case Settled() | Waiting():
            return replace(pod, doing=Looking(), failures=0), (Look(),)
        case Pulling():
            return replace(pod, doing=Looking(), failures=0), (GiveUp(), Look())
        case Gone() if pod.spec is not None and pod.spec.wish != "TERMINATED":
            return replace(pod, doing=Looking()), (Look(),)
        case _:
            return pod, ()


def _ticked(pod: Pod, at: float) -> Stepped:
    """While it is being stopped it is looked at without another state: the deadline stands."""
    match pod.doing:
        case Settled():
            return replace(pod, doing=Looking()), (Look(),)
        case Waiting(until) if at >= until:
            return replace(pod, doing=Looking()), (Look(),)
        case Stopping(kill_at) if at >= kill_at:
            return replace(pod, doing=Killing()), (Signal("SIGKILL"),)
        case Stopping() | Killing():
            return pod, (Look(),)
        case _:
            return pod, ()


def _saw(pod: Pod, container: Container, at: float) -> Stepped:
    match pod.doing:
        case Looking():
            return _decided(replace(pod, seen=container), at)
        case Stopping() | Killing() if not isinstance(container, Runs):
            return _decided(replace(pod, seen=container), at)
        case Killing():
            return pod, (Signal("SIGKILL"),)  # the last one may not have been heard
        case _:
            return pod, ()


def _done(pod: Pod) -> Stepped:
    """A stop is done when the end is seen."""
    match pod.doing:
        case Pulling() if pod.spec is not None:
            return replace(pod, doing=Making()), (Make(pod.spec),)
        case Making() | Removing():
            return replace(pod, doing=Looking(), failures=0), (Look(),)
        case Starting(mark):
            after = replace(pod, doing=Looking(), mark=mark, failures=0)
            return after, (Keep(mark), Look())
        case Clearing():
            return _gone(pod)
        case _:
            return pod, ()


def _failed(pod: Pod, why: str, at: float) -> Stepped:
    failures = pod.failures + 1
    waiting = replace(pod, doing=Waiting(at + back_off(failures)), failures=failures)
    match pod.doing:
        case Stopping() | Killing():
            return pod, ()  # it is looked at again
        case Settled() | Waiting() | Gone():
            return pod, ()
        case Looking() if pod.seen is None and pod.mark is None and _wish(pod) == "TERMINATED":
            return _gone(pod)  # a mark is kept before anything is made
        case Looking() if pod.seen is not None and failures < PATIENT:
            return waiting, ()
        case Looking() | Pulling() | Making() | Starting() if _wish(pod) in ("RUNNING", "EXITED"):
            return _said(waiting, "failed", why)
        case _:
            return waiting, ()


# ---- what is to be done -------------------------------------------------------------------------


def _decided(pod: Pod, at: float) -> Stepped:
    """`pod.seen` is fresh."""
    spec, seen = pod.spec, pod.seen
    if seen is None or spec is None:
        return _left(pod)
    match spec.wish:
        case "TERMINATED":
            return _terminated(pod, seen, at)
        case "RUNNING" | "EXITED" if not isinstance(seen, Absent) and seen.version != spec.version:
            return _get_rid(pod, seen, at)
        case "RUNNING":
            return _to_run(pod, spec, seen, at)
        case _:
            return _to_stop(pod, spec, seen, at)


def _left(pod: Pod) -> Stepped:
    """Nobody says what is wanted: only an end by itself is remembered, and said."""
    settled = replace(pod, doing=Settled(), failures=0)
    if isinstance(pod.seen, Ended) and _by_itself(pod.mark, pod.seen):
        mark = Mark(pod.seen.version, 0 if pod.mark is None else pod.mark.restarts, "ended")
        return _kept(_said(replace(settled, mark=mark), "exited"), pod.mark)
    return settled, ()


def _terminated(pod: Pod, seen: Container, at: float) -> Stepped:
    if not isinstance(seen, Absent):
        return _get_rid(pod, seen, at)
    return replace(pod, doing=Clearing()), (RemoveVolume(),)


def _get_rid(pod: Pod, seen: Made | Runs | Ended, at: float) -> Stepped:
    if isinstance(seen, Runs):
        return _stop(pod, at)
    return replace(pod, doing=Removing()), (Remove(),)


def _to_run(pod: Pod, spec: PodSpec, seen: Container, at: float) -> Stepped:
    mark = pod.mark
    asked = mark is None or mark.version != spec.version or mark.restarts < spec.restarts
    match seen:
        case Absent():
            made = Mark(spec.version, spec.restarts, "stopped")
            pulling, said = _said(replace(pod, doing=Pulling(), mark=made), "creating")
            return _then(_kept((pulling, said), mark), Pull(spec))
        case Runs() if asked and mark is not None and mark.version == spec.version:
            return _stop(pod, at)
        case Runs():
            return _run(pod, spec)
        case Ended() if not asked and _by_itself(mark, seen):
            return _ended(pod, spec)
        case _:
            return _start(pod, spec)


def _by_itself(mark: Mark | None, seen: Ended) -> bool:
    course = "runs" if mark is None else mark.course
    return course == "ended" or (course == "runs" and not seen.taken)


def _run(pod: Pod, spec: PodSpec) -> Stepped:
    """It runs as it should, whoever started it."""
    mark = Mark(spec.version, spec.restarts, "runs")
    settled = replace(pod, doing=Settled(), failures=0)
    return _kept(_said(replace(settled, mark=mark), "running"), pod.mark)


def _ended(pod: Pod, spec: PodSpec) -> Stepped:
    mark = Mark(spec.version, spec.restarts, "ended")
    settled = replace(pod, doing=Settled(), failures=0)
    return _kept(_said(replace(settled, mark=mark), "exited"), pod.mark)


def _start(pod: Pod, spec: PodSpec) -> Stepped:
    """Its mark says that it was stopped, until it has been started: see above."""
    starting = replace(pod, doing=Starting(Mark(spec.version, spec.restarts, "runs")))
    stopped = Mark(spec.version, spec.restarts if pod.mark is None else pod.mark.restarts, "stopped")
    return _then(_kept((replace(starting, mark=stopped), ()), pod.mark), Start(spec))


def _to_stop(pod: Pod, spec: PodSpec, seen: Container, at: float) -> Stepped:
    """What was never made is not made for this."""
    if isinstance(seen, Runs):
        return _stop(pod, at)
    settled = replace(pod, doing=Settled(), failures=0)
    if not isinstance(seen, Absent):
        left = isinstance(seen, Ended) and _by_itself(pod.mark, seen)
        course: Course = "released" if left or _course(pod) == "released" else "stopped"
        settled = replace(settled, mark=Mark(spec.version, spec.restarts, course))
    return _kept(_said(settled, "exited"), pod.mark)


def _stop(pod: Pod, at: float) -> Stepped:
    """The mark comes first: an end that was commanded is none of its own."""
    runs = pod.seen
    assert isinstance(runs, Runs)
    was = pod.mark
    mark = Mark(runs.version, 0 if was is None else was.restarts, "stopped")
    stopping = replace(pod, doing=Stopping(at + STOP_S), mark=mark)
    return _then(_kept((stopping, ()), was), Signal("SIGTERM"))


def _gone(pod: Pod) -> Stepped:
    after, said = _said(replace(pod, doing=Gone(), mark=None, seen=Absent(), failures=0), "gone")
    return after, (Keep(None), *said)


# ---- what is said -------------------------------------------------------------------------------


def _said(pod: Pod, state: PodPhase, reason: str = "") -> Stepped:
    """With a Report, unless it would say again what was said."""
    version, restarts = _answered(pod)
    found = PodState(pod.name, version, restarts, state, reason)
    match state, pod.seen:
        case "running", Runs(_, started_ms, ports):
            found = replace(found, started_ms=started_ms, ports=ports)
        case (("exited" | "failed"), Ended(code=code, log_tail=log_tail) as ended):
            found = replace(found, reason=reason or _why(pod, ended), exit_code=code, log_tail=log_tail)
    if found == pod.said:
        return pod, ()
    return replace(pod, said=found), (Report(found),)


def _why(pod: Pod, ended: Ended) -> str:
    if ended.taken:
        return "it ended with its engine"
    if _course(pod) != "stopped":
        return ended.why
    if ended.code == KILLED:
        return f"it did not end within {STOP_S:g} s of SIGTERM, and was killed"
    return f"it was stopped, and ended with code {ended.code}"


def _answered(pod: Pod) -> tuple[int, int]:
    if pod.spec is not None:
        return pod.spec.version, pod.spec.restarts
    return (0, 0) if pod.mark is None else (pod.mark.version, pod.mark.restarts)


def _kept(stepped: Stepped, before: Mark | None) -> Stepped:
    """With a Keep behind the reports, where the mark is another than before."""
    pod, commands = stepped
    return (pod, commands) if pod.mark == before else (pod, (*commands, Keep(pod.mark)))


def _then(stepped: Stepped, *more: Command) -> Stepped:
    pod, commands = stepped
    return pod, (*commands, *more)


def _course(pod: Pod) -> Course | None:
    return None if pod.mark is None else pod.mark.course


def _wish(pod: Pod) -> str:
    return "" if pod.spec is None else pod.spec.wish
