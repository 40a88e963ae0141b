"""The pod machine: compares the desired state of one pod with its container, and decides the next command.

Pure: no engine, no clock. `agent.pods.pods` performs one command at a time and turns its result into an
event. After each command the container is inspected again, so decisions rest on its real state.

    state     what is done                          when
    Looking   the engine is asked                   first, and after every other state
    Pulling   the image is pulled                   no container, RUNNING wanted; given up if the wish changes
    Making    container and volume are created      after Pulling
    Starting  the container is started              it is new, or ended and is to run again
    Stopping  SIGTERM --kill_at--> Killing          it runs, and is not to, or not in this version
    Removing  the container is removed              it has another version, or TERMINATED is wanted
    Clearing  the pod's volume is removed ──> Gone  TERMINATED is wanted, and there is no container
    Settled   nothing; inspected at intervals        the container is as wanted
    Waiting   nothing, longer each time             after a failure

- A container that ended *by itself* is not started again: `exited` is reported until a higher `restarts` or
  version arrives. A container that ended because its engine stopped is started once the engine is back.
- The Mark tells the two apart, and for which version and restarts the container was last started. It is saved
  *before* a stop and *after* a start: an agent that dies in between may start a container once too often, but
  never fails to start it.
- Without a spec (control has not named the pod yet, or no longer does) nothing is done.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from stoker.agent.pods.events import (
    Absent,
    Command,
    Container,
    Course,
    Done,
    Ended,
    Event,
    Failed,
    GiveUp,
    Look,
    Made,
    Make,
    Mark,
    Pull,
    Remove,
    RemoveVolume,
    ReportPod,
    Runs,
    SaveMark,
    Seen,
    Signal,
    Start,
    Tick,
    Wished,
)
from stoker.agent.pods.states import (
    Clearing,
    Gone,
    Killing,
    Looking,
    Making,
    PodLife,
    Pulling,
    Removing,
    Settled,
    Starting,
    Stepped,
    Stopping,
    Waiting,
)
from stoker.agent.workers.lifecycle.restarts import back_off
from stoker.wire.messages import HeldPod, PodPhase, PodSpec, PodState

STOP_S = 10.0
"""From SIGTERM to SIGKILL."""

KILLED = 137
"""The exit code that engines report for an end by SIGKILL."""

FAILED_LOOKS_MAX = 3
"""How often in a row the inspection of a known container may fail before that is reported: engines are
restarted."""

# ---- the machine --------------------------------------------------------------------------------


def begin(name: str, mark: Mark | None) -> Stepped:
    """Returns a pod that this agent did not know yet; `mark` is the one that an earlier agent saved."""
    return PodLife(name, Looking(), mark=mark), (Look(),)


def step(pod: PodLife, event: Event) -> Stepped:
    """Returns the pod after `event`, and the commands. An event that comes too late changes nothing."""
    match event:
        case Wished(_, spec):
            return (pod, ()) if spec == pod.spec else _wished(replace(pod, spec=spec))
        case Tick(at):
            return _ticked(pod, at)
        case Seen(at, container):
            return _saw(pod, container, at)
        case Done():
            return _done(pod)
        case Failed(at, why):
            return _failed(pod, why, at)
        case _:
            assert_never(event)


def wake_at(pod: PodLife) -> float | None:
    """Returns when the machine needs a Tick, if nothing else happens before."""
    match pod.doing:
        case Waiting(until=at) | Stopping(kill_at=at):
            return at
        case _:
            return None


def watched(pod: PodLife) -> bool:
    """Returns whether it needs Ticks at intervals, to inspect its container."""
    return isinstance(pod.doing, Settled | Stopping | Killing)


def held(pod: PodLife) -> HeldPod | None:
    """Returns what the next Hello reports of the pod: the last report if there is one. None if this node has
    nothing of the pod, as far as is known."""
    if (last := pod.reported) is not None:
        return None if last.state == "gone" else HeldPod(pod.name, last.version, last.restarts, last.state)
    match pod.mark, pod.seen:
        case None, _:
            return None
        case mark, None:
            return HeldPod(pod.name, mark.version, mark.restarts, "failed")
        case mark, Runs():
            return HeldPod(pod.name, mark.version, mark.restarts, "running")
        case mark, _:
            return HeldPod(pod.name, mark.version, mark.restarts, "exited")


def _wished(pod: PodLife) -> Stepped:
    match pod.doing:
        case Settled() | Waiting():
            return replace(pod, doing=Looking(), failures=0), (Look(),)
        case Pulling():
            return replace(pod, doing=Looking(), failures=0), (GiveUp(), Look())
        case Gone() if pod.spec is not None and pod.spec.wish != "TERMINATED":
            return replace(pod, doing=Looking()), (Look(),)
        case _:
            return pod, ()


def _ticked(pod: PodLife, at: float) -> Stepped:
    """Looks at the container again, or kills it at its deadline. A pod that is being stopped keeps its state,
    and its deadline, while it is inspected."""
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


def _saw(pod: PodLife, container: Container, at: float) -> Stepped:
    match pod.doing:
        case Looking():
            return _decided(replace(pod, seen=container), at)
        case Stopping() | Killing() if not isinstance(container, Runs):
            return _decided(replace(pod, seen=container), at)
        case Killing():
            return pod, (Signal("SIGKILL"),)  # the last one may have been lost
        case _:
            return pod, ()


def _done(pod: PodLife) -> Stepped:
    """Begins what follows a completed command. A sent signal changes nothing: a stop is done when the
    container has ended."""
    match pod.doing:
        case Pulling() if pod.spec is not None:
            return replace(pod, doing=Making()), (Make(pod.spec),)
        case Making() | Removing():
            return replace(pod, doing=Looking(), failures=0), (Look(),)
        case Starting(mark):
            after = replace(pod, doing=Looking(), mark=mark, failures=0)
            return after, (SaveMark(mark), Look())
        case Clearing():
            return _gone(pod)
        case _:
            return pod, ()


def _failed(pod: PodLife, why: str, at: float) -> Stepped:
    failures = pod.failures + 1
    waiting = replace(pod, doing=Waiting(at + back_off(failures)), failures=failures)
    match pod.doing:
        case Stopping() | Killing():
            return pod, ()  # the next Tick looks again
        case Settled() | Waiting() | Gone():
            return pod, ()
        case Looking() if pod.seen is None and pod.mark is None and _wish(pod) == "TERMINATED":
            return _gone(pod)  # without a mark nothing was created: the mark is saved first
        case Looking() if pod.seen is not None and failures < FAILED_LOOKS_MAX:
            return waiting, ()
        case Looking() | Pulling() | Making() | Starting() if _wish(pod) in ("RUNNING", "EXITED"):
            return _with_report(waiting, "failed", why)
        case _:
            return waiting, ()


# ---- decisions ----------------------------------------------------------------------------------


def _decided(pod: PodLife, at: float) -> Stepped:
    """Decides the next command; `pod.seen` is up to date."""
    spec, seen = pod.spec, pod.seen
    if seen is None or spec is None:
        return _without_spec(pod)
    match spec.wish:
        case "TERMINATED":
            return _terminated(pod, seen, at)
        case "RUNNING" | "EXITED" if not isinstance(seen, Absent) and seen.version != spec.version:
            return _stop_or_remove(pod, seen, at)
        case "RUNNING":
            return _to_run(pod, spec, seen, at)
        case _:
            return _to_stop(pod, spec, seen, at)


def _without_spec(pod: PodLife) -> Stepped:
    """Does nothing but save and report an end by itself."""
    settled = replace(pod, doing=Settled(), failures=0)
    if isinstance(pod.seen, Ended) and _by_itself(pod.mark, pod.seen):
        mark = Mark(pod.seen.version, 0 if pod.mark is None else pod.mark.restarts, "ended")
        return _save_mark(_with_report(replace(settled, mark=mark), "exited"), pod.mark)
    return settled, ()


def _terminated(pod: PodLife, seen: Container, at: float) -> Stepped:
    if not isinstance(seen, Absent):
        return _stop_or_remove(pod, seen, at)
    return replace(pod, doing=Clearing()), (RemoveVolume(),)


def _stop_or_remove(pod: PodLife, seen: Made | Runs | Ended, at: float) -> Stepped:
    if isinstance(seen, Runs):
        return _stop(pod, at)
    return replace(pod, doing=Removing()), (Remove(),)


def _to_run(pod: PodLife, spec: PodSpec, seen: Container, at: float) -> Stepped:
    mark = pod.mark
    new_start = mark is None or mark.version != spec.version or mark.restarts < spec.restarts
    match seen:
        case Absent():
            made = Mark(spec.version, spec.restarts, "stopped")
            pulling = _with_report(replace(pod, doing=Pulling(), mark=made), "creating")
            return _then(_save_mark(pulling, mark), Pull(spec))
        case Runs() if new_start and mark is not None and mark.version == spec.version:
            return _stop(pod, at)
        case Runs():
            return _settle(pod, spec, "runs")
        case Ended() if not new_start and _by_itself(mark, seen):
            return _settle(pod, spec, "ended")
        case _:
            return _start(pod, spec)


def _by_itself(mark: Mark | None, seen: Ended) -> bool:
    course = "runs" if mark is None else mark.course
    return course == "ended" or (course == "runs" and not seen.taken)


def _settle(pod: PodLife, spec: PodSpec, course: Course) -> Stepped:
    """Settles a pod whose container runs, or has ended by itself: nothing is to be done."""
    settled = replace(pod, doing=Settled(), failures=0, mark=Mark(spec.version, spec.restarts, course))
    return _save_mark(_with_report(settled, "running" if course == "runs" else "exited"), pod.mark)


def _start(pod: PodLife, spec: PodSpec) -> Stepped:
    """Starts its container. Until that is done its mark says that it was stopped: see the module's
    docstring."""
    starting = replace(pod, doing=Starting(Mark(spec.version, spec.restarts, "runs")))
    stopped = Mark(spec.version, spec.restarts if pod.mark is None else pod.mark.restarts, "stopped")
    return _then(_save_mark((replace(starting, mark=stopped), ()), pod.mark), Start(spec))


def _to_stop(pod: PodLife, spec: PodSpec, seen: Container, at: float) -> Stepped:
    """Stops the container. One that does not exist is not created for this."""
    if isinstance(seen, Runs):
        return _stop(pod, at)
    settled = replace(pod, doing=Settled(), failures=0)
    if not isinstance(seen, Absent):
        left = isinstance(seen, Ended) and _by_itself(pod.mark, seen)
        course: Course = "released" if left or _course(pod) == "released" else "stopped"
        settled = replace(settled, mark=Mark(spec.version, spec.restarts, course))
    return _save_mark(_with_report(settled, "exited"), pod.mark)


def _stop(pod: PodLife, at: float) -> Stepped:
    """Saves the mark before the signal: an end that follows was not by itself."""
    runs = pod.seen
    assert isinstance(runs, Runs)
    was = pod.mark
    mark = Mark(runs.version, 0 if was is None else was.restarts, "stopped")
    stopping = replace(pod, doing=Stopping(at + STOP_S), mark=mark)
    return _then(_save_mark((stopping, ()), was), Signal("SIGTERM"))


def _gone(pod: PodLife) -> Stepped:
    after, report = _with_report(replace(pod, doing=Gone(), mark=None, seen=Absent(), failures=0), "gone")
    return after, (SaveMark(None), *report)


# ---- reports ------------------------------------------------------------------------------------


def _with_report(pod: PodLife, state: PodPhase, reason: str = "") -> Stepped:
    """Adds a Report, unless the last one was the same."""
    version, restarts = _answered(pod)
    found = PodState(pod.name, version, restarts, state, reason)
    match state, pod.seen:
        case "running", Runs(_, started_ms, ports):
            found = replace(found, started_ms=started_ms, ports=ports)
        case (("exited" | "failed"), Ended(code=code, log_tail=log_tail) as ended):
            found = replace(found, reason=reason or _why(pod, ended), exit_code=code, log_tail=log_tail)
    if found == pod.reported:
        return pod, ()
    return replace(pod, reported=found), (ReportPod(found),)


def _why(pod: PodLife, ended: Ended) -> str:
    if ended.taken:
        return "it ended with its engine"
    if _course(pod) != "stopped":
        return ended.why
    if ended.code == KILLED:
        return f"it did not end within {STOP_S:g} s of SIGTERM, and was killed"
    return f"it was stopped, and ended with code {ended.code}"


def _answered(pod: PodLife) -> tuple[int, int]:
    if pod.spec is not None:
        return pod.spec.version, pod.spec.restarts
    return (0, 0) if pod.mark is None else (pod.mark.version, pod.mark.restarts)


def _save_mark(stepped: Stepped, before: Mark | None) -> Stepped:
    """Adds a SaveMark after the reports, if the mark has changed."""
    pod, commands = stepped
    return (pod, commands) if pod.mark == before else (pod, (*commands, SaveMark(pod.mark)))


def _then(stepped: Stepped, *more: Command) -> Stepped:
    pod, commands = stepped
    return pod, (*commands, *more)


def _course(pod: PodLife) -> Course | None:
    return None if pod.mark is None else pod.mark.course


def _wish(pod: PodLife) -> str:
    return "" if pod.spec is None else pod.spec.wish
