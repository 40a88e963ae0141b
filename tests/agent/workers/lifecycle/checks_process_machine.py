"""What must hold of the process machine. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from random import Random
from typing import Any


def name(state: Any) -> str:
    return type(state).__name__


def kinds(commands: Any) -> list[str]:
    return [type(command).__name__ for command in commands]


def event(m: Any, state: Any, at: float, draw: Any) -> Any:
    wake = m.wake_at(state)
    goes_on = {
        "Starting": [m.BecameReady(at)],
        "Ready": [
            m.Drain(at, "unwanted", busy=True),
            m.Drain(at, "unwanted", busy=False),
            m.Retire(at, "after 9 jobs", busy=True),
            m.Idle(at),
        ],
        "Draining": [
            m.Keep(at),
            m.Idle(at),
            m.Tick(at),
            m.Retire(at, "spoiled", busy=True, context_lost=True),
        ],
        "Killed": [m.ProcessExited(at, "killed"), m.Tick(at)],
    }
    if draw(range(3)) and name(state) in goes_on:
        # mostly what moves a life on: endings are many, and would leave little of it
        return draw(goes_on[name(state)])
    choices = [
        m.BecameReady(at),
        m.BecameReady(at),
        m.SetupFailed(at, "no weights"),
        m.Drain(at, "unwanted", busy=True),
        m.Drain(at, "unwanted", busy=False),
        m.Retire(at, "after 9 jobs", busy=True),
        m.Retire(at, "after 9 jobs", busy=False),
        m.Retire(at, "its context is lost", busy=True, context_lost=True),
        m.Keep(at),
        m.Idle(at),
        m.Stop(at, "shutdown"),
        m.TerminateNow(at, "stuck"),
        m.KillNow(at, "stuck"),
        m.KillNow(at, "bad frame", planned=False),
        m.Tick(at),
    ]
    if draw(range(10)) == 0:
        choices = [m.ProcessExited(at, "exited")]
    ticks = [m.Tick(wake)] * 6 if wake is not None and wake >= at else []
    return draw(choices + ticks)


RANK = {"Starting": 0, "Ready": 1, "Draining": 1, "Stopping": 2, "Terminating": 3, "Killed": 4, "Exited": 5}
SAYS = {"Starting": "starting", "Ready": "ready", "Exited": "gone"}


def walk(m: Any, draw: Any, steps: int = 25) -> None:
    state, _ = m.begin(0.0, 60.0)
    at, dead, reported, signals = 0.0, 0, "starting", []
    for _ in range(steps):
        dead += name(state) == "Exited"
        if dead > 2:
            return
        at += draw([0.0, 0.5, 5.0])
        happened = event(m, state, at, draw)
        at = happened.at
        before, (state, commands) = state, m.step(state, happened)
        for command in commands:
            if name(command) == "Announce":
                assert command.state != reported, "nothing is announced twice"
                reported = command.state
            elif name(command) in ("Terminate", "Kill"):
                signals.append(name(command))
        assert RANK[name(state)] >= RANK[name(before)] or name(before) == "Draining", "a life goes one way"
        assert signals in ([], ["Terminate"], ["Kill"], ["Terminate", "Kill"]), "each signal once, in order"
        assert ("Kill" in signals) == (name(state) == "Killed") or name(state) == "Exited"
        if name(state) in ("Ready", "Draining"):
            assert reported == SAYS.get(name(state), "stopping")
        if name(before) == "Draining" and before.for_good:
            assert name(state) != "Ready", "what retires serves no more"
            assert name(state) != "Stopping" or not before.context_lost or name(happened) == "Stop"
        if hasattr(before, "planned") and hasattr(state, "planned"):
            assert (before.why, before.planned) == (state.why, state.planned), "the first reason stays"
        if isinstance(happened, m.Tick):
            wake = m.wake_at(state)
            assert wake is None or wake > at or state != before, "a tick never asks for the same moment again"


def by_random_walks(m: Any, lives: int = 400) -> None:
    for seed in range(lives):
        walk(m, Random(seed).choice)


def ready(m: Any) -> Any:
    state, _ = m.begin(0.0, 60.0)
    return m.step(state, m.BecameReady(1.0))[0]


def starts(m: Any) -> None:
    state, commands = m.begin(5.0, 60.0)
    assert (state, kinds(commands)) == (m.Starting(65.0, 5.0), ["SendSetup"])
    state, commands = m.step(state, m.BecameReady(7.0))
    assert (state, commands) == (m.Ready(7.0), (m.Announce("ready"),))
    assert m.wake_at(state) is None


def a_start_has_a_deadline(m: Any) -> None:
    state, _ = m.begin(0.0, 60.0)
    assert m.step(state, m.Tick(59.9)) == (state, ())
    assert m.wake_at(state) == 60.0
    state, commands = m.step(state, m.Tick(60.0))
    assert kinds(commands) == ["Kill"]
    state, _ = m.step(state, m.ProcessExited(60.1, "killed by SIGKILL"))
    assert state == m.Exited(60.1, "the worker was not ready within 60 s", planned=False)


def a_failed_setup_says_why(m: Any) -> None:
    state, _ = m.begin(0.0, 60.0)
    state, commands = m.step(state, m.SetupFailed(1.0, "KeyError: 'weights'"))
    assert kinds(commands) == ["SendStop"]
    state, _ = m.step(state, m.ProcessExited(1.1, "exited with status 1"))
    assert state == m.Exited(1.1, "KeyError: 'weights'", planned=False)


def an_early_exit_says_so(m: Any) -> None:
    state, _ = m.begin(0.0, 60.0)
    state, _ = m.step(state, m.ProcessExited(1.0, "exited with status 3"))
    assert (state.planned, state.ready_for) == (False, None)
    assert "exited with status 3" in state.why


def a_death_in_service_reports_how_long_it_served(m: Any) -> None:
    state, commands = m.step(ready(m), m.ProcessExited(9.0, "killed by SIGSEGV"))
    died = m.Exited(9.0, "killed by SIGSEGV", planned=False, ready_for=8.0, is_cause=False)
    assert (state, commands) == (died, ())


def an_idle_worker_stops_politely_then_by_force(m: Any) -> None:
    state, commands = m.step(ready(m), m.Drain(10.0, "unwanted", busy=False))
    assert kinds(commands) == ["SendStop", "Announce"]
    assert m.wake_at(state) == 13.0
    assert m.step(state, m.Tick(12.9)) == (state, ())
    state, commands = m.step(state, m.Tick(13.0))
    assert kinds(commands) == ["Terminate"]
    assert m.wake_at(state) == 16.0
    state, commands = m.step(state, m.Tick(16.0))
    assert kinds(commands) == ["Kill"]
    assert m.step(state, m.Tick(99.0)) == (state, ())
    state, _ = m.step(state, m.ProcessExited(16.1, "killed"))
    assert state == m.Exited(16.1, "unwanted", planned=True)


def a_busy_worker_drains_first(m: Any) -> None:
    state, commands = m.step(ready(m), m.Drain(10.0, "unwanted", busy=True))
    assert commands == (m.Announce("stopping", "unwanted"),)
    assert m.wake_at(state) is None
    kept, commands = m.step(state, m.Keep(11.0))
    assert (kept, commands) == (m.Ready(1.0), (m.Announce("ready"),))
    stopping, commands = m.step(state, m.Idle(12.0))
    assert kinds(commands) == ["SendStop"]
    assert m.wake_at(stopping) == 15.0


def what_retires_is_not_kept(m: Any) -> None:
    state, commands = m.step(ready(m), m.Retire(10.0, "after 9 jobs", busy=True))
    assert commands == (m.Announce("stopping", "after 9 jobs"),)
    assert m.step(state, m.Keep(11.0)) == (state, ()), "a wanted worker gets another process"
    stopping, commands = m.step(state, m.Idle(12.0))
    assert (kinds(commands), m.wake_at(stopping)) == (["SendStop"], 15.0)
    state, _ = m.step(stopping, m.ProcessExited(12.1, "exited"))
    assert state == m.Exited(12.1, "after 9 jobs", planned=True)


def an_idle_worker_retires_at_once(m: Any) -> None:
    state, commands = m.step(ready(m), m.Retire(10.0, "it has grown", busy=False))
    assert (name(state), kinds(commands)) == ("Stopping", ["SendStop", "Announce"])


def what_drains_may_retire_as_well(m: Any) -> None:
    state, _ = m.step(ready(m), m.Drain(10.0, "unwanted", busy=True))
    state, commands = m.step(state, m.Retire(11.0, "after 9 jobs", busy=True))
    assert commands == (), "it was announced"
    assert m.step(state, m.Keep(12.0)) == (state, ())


def a_spoiled_process_is_not_called(m: Any) -> None:
    state, commands = m.step(ready(m), m.Retire(10.0, "its context is lost", busy=True, context_lost=True))
    assert kinds(commands) == ["Announce"], "the job that broke it is about to say so"
    state, commands = m.step(state, m.Idle(10.1))
    assert (kinds(commands), m.wake_at(state)) == (["Terminate"], 13.1)
    state, _ = m.step(state, m.ProcessExited(10.2, "killed by SIGTERM"))
    assert state == m.Exited(10.2, "its context is lost", planned=True)


def an_exit_without_a_cause_says_so(m: Any) -> None:
    state, _ = m.step(m.begin(0.0, 60.0)[0], m.ProcessExited(1.0, "exited with status 3"))
    assert not state.is_cause
    assert not m.step(ready(m), m.ProcessExited(9.0, "killed by SIGSEGV"))[0].is_cause
    failed, _ = m.step(m.begin(0.0, 60.0)[0], m.SetupFailed(1.0, "no weights"))
    assert m.step(failed, m.ProcessExited(1.1, "exited with status 1"))[0].is_cause


def idle_means_nothing_to_a_worker_that_is_wanted(m: Any) -> None:
    assert m.step(ready(m), m.Idle(2.0)) == (ready(m), ())


def an_attempts_ladder_takes_the_worker_with_it(m: Any) -> None:
    state, commands = m.step(ready(m), m.TerminateNow(10.0, "a job did not stop"))
    assert kinds(commands) == ["Terminate", "Announce"]
    again, commands = m.step(state, m.TerminateNow(11.0, "another"))
    assert (again, commands) == (state, ())
    state, commands = m.step(state, m.KillNow(12.0, "a job did not stop"))
    assert kinds(commands) == ["Kill"]
    assert m.step(state, m.KillNow(12.5, "again")) == (state, ())
    state, _ = m.step(state, m.ProcessExited(12.6, "killed"))
    assert state == m.Exited(12.6, "a job did not stop", planned=True)


def a_broken_protocol_is_the_workers_fault(m: Any) -> None:
    state, commands = m.step(ready(m), m.KillNow(2.0, "bad frame", planned=False))
    assert kinds(commands) == ["Kill", "Announce"]
    state, _ = m.step(state, m.ProcessExited(2.1, "killed"))
    assert not state.planned


RANDOM = [lambda m: by_random_walks(m, 60)]

MUTANTS = [
    (
        "no start deadline",
        "case Tick(at) if at >= state.deadline:",
        "case Tick(at) if at > state.deadline + 1e9:",
    ),
    (
        "a failed setup was planned",
        "return Stopping(at + ladder.stop_s, error, planned=False)",
        "return Stopping(at + ladder.stop_s, error)",
    ),
    ("a drain does not wait", "            if busy:", "            if False:"),
    (
        "a retired one is kept",
        "isinstance(state, Draining) and not state.for_good",
        "isinstance(state, Draining)",
    ),
    ("retiring does not wait", "    if event.busy:", "    if False:"),
    (
        "what drains cannot retire",
        "going = replace(was, for_good=True",
        "going = replace(was, for_good=was is not state",
    ),
    ("a spoiled one is asked", "    if state.context_lost:", "    if False:"),
    (
        "every end tells its cause",
        "ready_for=event.at - since, is_cause=False)",
        "ready_for=event.at - since)",
    ),
    (
        "SIGTERM at once",
        "return Stopping(at + ladder.stop_s, why), (SendStop(), Announce",
        "return Stopping(at, why), (SendStop(), Announce",
    ),
    (
        "never by force",
        "return Killed(why, planned), (Kill(),)",
        "return Terminating(at + 9, why, planned), ()",
    ),
    ("the last reason wins", "            return first, was_planned\n", "            return why, planned\n"),
    ("killed twice", "        case Killed(), _:\n            return state, ()\n", ""),
    ("announced again", "if isinstance(state, Starting | Ready) else ()", ""),
    (
        "a death was planned",
        "return Exited(event.at, event.reason, planned=False, ready_for",
        "return Exited(event.at, event.reason, planned=True, ready_for",
    ),
    (
        "a kept worker is as good as new",
        "return Ready(state.since), (Announce",
        "return Ready(event.at), (Announce",
    ),
]
