"""What `stoker up` decides about its children: stories first, then any order of events."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from stoker.cli.up import events as ev
from stoker.cli.up import states
from stoker.cli.up import supervisor as sv
from stoker.cli.up.events import (
    AllReady,
    BecameReady,
    Begin,
    Exited,
    Finish,
    Kill,
    KillSuccessor,
    Print,
    Promote,
    RestartRequested,
    Start,
    StartSuccessor,
    StopRequested,
    SuccessorExited,
    SuccessorWaits,
    Terminate,
    Tick,
)
from stoker.cli.up.states import (
    BackingOff,
    Gone,
    Running,
)
from stoker.cli.up.supervisor import (
    step,
    supervise,
    wake_at,
)
from tests.profiles import examples

NAMES = ("objects", "control", "agent")


def play(state: states.SupervisorState, *events: ev.Event) -> tuple[states.SupervisorState, list[ev.Command]]:
    output: list[ev.Command] = []
    for event in events:
        state, commands = step(state, event)
        output += commands
    return state, output


def deeds(commands: list[ev.Command]) -> list[ev.Command]:
    return [command for command in commands if not isinstance(command, Print)]


def all_running() -> states.SupervisorState:
    events = [Begin(0.0), *(BecameReady(1.0, name) for name in NAMES)]
    return play(supervise(*NAMES), *events)[0]


def test_each_child_starts_once_those_before_it_are_ready() -> None:
    state, commands = play(supervise(*NAMES), Begin(0.0))
    assert commands == [Start("objects")]
    state, commands = play(state, BecameReady(1.0, "objects"))
    assert commands == [Start("control")]
    state, commands = play(state, BecameReady(2.0, "control"), BecameReady(3.0, "agent"))
    assert commands == [Start("agent"), AllReady()]
    assert wake_at(state) is None


def test_one_stop_ends_them_from_the_last_to_the_first() -> None:
    state, commands = play(all_running(), StopRequested(10.0))
    assert commands == [Terminate("agent")]
    state, commands = play(state, Exited(11.0, "agent", "0"))
    assert commands == [Terminate("control")]
    state, commands = play(state, Exited(12.0, "control", "0"), Exited(13.0, "objects", "0"))
    assert commands == [Terminate("objects"), Finish(0)]


def test_a_second_stop_kills_what_is_left() -> None:
    state, _ = play(all_running(), StopRequested(10.0), Exited(11.0, "agent", "0"))
    state, commands = play(state, StopRequested(12.0))
    assert commands == [Kill("control"), Kill("objects")]
    state, commands = play(state, Exited(12.0, "objects", "-9"), Exited(12.0, "control", "-9"))
    assert commands == [Finish(130)]


def test_a_child_that_will_not_stop_is_killed() -> None:
    state, _ = play(all_running(), StopRequested(10.0))
    due = wake_at(state)
    assert due == 10.0 + sv.STOP_PATIENCE_S
    state, commands = play(state, Tick(due - 0.1))
    assert commands == []
    state, commands = play(state, Tick(due))
    assert deeds(commands) == [Kill("agent")]
    assert wake_at(state) is None


def test_a_child_that_ends_before_it_was_ready_ends_everything() -> None:
    state, _ = play(supervise(*NAMES), Begin(0.0), BecameReady(1.0, "objects"))
    state, commands = play(state, Exited(2.0, "control", "port 8000 is in use"))
    assert commands == [Print("control did not start: port 8000 is in use"), Terminate("objects")]
    state, commands = play(state, Exited(3.0, "objects", "0"))
    assert commands == [Finish(1)]


def test_a_child_that_dies_starts_again_after_a_pause_and_the_others_stay() -> None:
    state, commands = play(all_running(), Exited(10.0, "control", "killed by SIGKILL"))
    assert deeds(commands) == []
    assert commands == [
        Print("control ended unexpectedly: killed by SIGKILL; it starts again in 0.5 s"),
    ]
    state, commands = play(state, Tick(10.5))
    assert commands == [Start("control")]
    state, commands = play(state, BecameReady(11.0, "control"))
    assert commands == [AllReady()]


def test_the_pause_doubles_and_after_a_calm_minute_there_is_none() -> None:
    state = all_running()
    pauses = []
    at = 10.0
    for _ in range(8):
        state, _ = play(state, Exited(at, "agent", "1"))
        due = wake_at(state)
        assert due is not None
        pauses.append(due - at)
        state, _ = play(state, Tick(due), BecameReady(due, "agent"))
        at = due + 1
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    state, commands = play(state, Exited(at + sv.CALM_S, "agent", "1"))
    assert commands == [Print("agent ended unexpectedly: 1; it starts again at once"), Start("agent")]
    state, _ = play(state, BecameReady(at + sv.CALM_S + 1, "agent"), Exited(at + sv.CALM_S + 2, "agent", "1"))
    assert wake_at(state) == at + sv.CALM_S + 2.5


def test_the_first_dead_child_is_started_before_those_after_it() -> None:
    state, _ = play(all_running(), Exited(10.0, "agent", "1"), Exited(10.1, "objects", "1"))
    state, commands = play(state, Tick(10.5))
    assert commands == []  # the agent's pause is over, and its objects are not there yet
    state, commands = play(state, Tick(10.6))
    assert commands == [Start("objects")]
    state, commands = play(state, BecameReady(11.0, "objects"))
    assert commands == [Start("agent")]


def test_a_child_that_hangs_at_its_start_is_killed_once() -> None:
    state, _ = play(supervise(*NAMES), Begin(0.0))
    state, commands = play(state, Tick(sv.START_PATIENCE_S), Tick(sv.START_PATIENCE_S + 1))
    assert deeds(commands) == [Kill("objects")]


def test_a_stop_during_a_pause_does_not_start_the_child_again() -> None:
    state, _ = play(all_running(), Exited(10.0, "agent", "1"), StopRequested(10.1))
    state, commands = play(state, Tick(10.5), Exited(11.0, "control", "0"), Exited(11.0, "objects", "0"))
    assert commands == [Terminate("objects"), Finish(0)]


def test_news_of_readiness_after_a_stop_starts_nothing() -> None:
    state, _ = play(supervise(*NAMES), Begin(0.0), BecameReady(1.0, "objects"), StopRequested(1.5))
    state, commands = play(state, BecameReady(1.6, "control"))
    assert commands == []


RELIEVED = RestartRequested(10.0, "control"), RestartRequested(10.1, "control")
HANDS_OVER = *RELIEVED, SuccessorWaits(12.0, "control")


def test_a_restart_ends_one_child_once_its_successor_is_loaded() -> None:
    state, commands = play(all_running(), *RELIEVED)
    assert commands == [StartSuccessor("control")]
    state, commands = play(state, SuccessorWaits(12.0, "control"))
    assert commands == [Terminate("control")]
    assert wake_at(state) == 12.0 + sv.STOP_PATIENCE_S
    state, commands = play(state, Exited(13.0, "control", "exit status 0"))
    assert commands == [Promote("control")], "without a pause, and no unexpected end is reported"
    assert play(state, BecameReady(14.0, "control"))[1] == [AllReady()]


def test_a_successor_that_is_ready_before_the_end_of_the_first_runs_at_that_end() -> None:
    """What it waited for is freed by the first process, and not by its end."""
    state, commands = play(all_running(), *HANDS_OVER, BecameReady(12.5, "control"))
    assert deeds(commands) == [StartSuccessor("control"), Terminate("control")]
    assert play(state, Exited(13.0, "control", "exit status 0"))[1] == [Promote("control"), AllReady()]


def test_a_successor_that_does_not_start_changes_nothing() -> None:
    state, commands = play(all_running(), *RELIEVED, SuccessorExited(11.0, "control", "exit status 1"))
    assert commands[-1] == Print("the next control did not start: exit status 1; the one before it goes on")
    assert state == all_running()
    late = RELIEVED[0].at + sv.START_PATIENCE_S
    state, commands = play(all_running(), *RELIEVED, Tick(late), Tick(late + 1))
    assert deeds(commands) == [StartSuccessor("control"), KillSuccessor("control")]
    assert play(state, SuccessorExited(late + 2, "control", "killed"))[0] == all_running()


def test_a_successor_takes_over_from_a_child_that_dies_meanwhile() -> None:
    state, commands = play(all_running(), *RELIEVED, Exited(11.0, "control", "killed by SIGKILL"))
    assert commands[1:] == [
        Print("control ended unexpectedly: killed by SIGKILL; its successor takes over"),
        Promote("control"),
    ]
    assert play(state, BecameReady(12.0, "control"))[1] == [AllReady()]


def test_a_successor_that_dies_after_the_signal_is_replaced_by_a_start() -> None:
    state, _ = play(all_running(), *HANDS_OVER, SuccessorExited(12.5, "control", "killed"))
    assert play(state, Exited(13.0, "control", "exit status 0"))[1] == [Start("control")]


def test_a_child_that_does_not_end_for_its_restart_is_killed_and_its_successor_takes_over() -> None:
    late = 12.0 + sv.STOP_PATIENCE_S
    state, commands = play(all_running(), *HANDS_OVER, Tick(late))
    assert deeds(commands) == [StartSuccessor("control"), Terminate("control"), Kill("control")]
    assert play(state, Tick(late + 1), Exited(late + 1, "control", "killed"))[1] == [Promote("control")]


def test_a_child_that_starts_is_restarted_without_a_successor() -> None:
    state, _ = play(all_running(), Exited(10.0, "control", "1"), Tick(10.5))
    state, commands = play(state, RestartRequested(11.0, "control"))
    assert commands == [Terminate("control")]
    assert play(state, Exited(12.0, "control", "exit status 0"))[1] == [Start("control")]


def test_a_restart_cuts_a_pause_short() -> None:
    state, _ = play(all_running(), Exited(10.0, "control", "a bad file"))
    assert play(state, RestartRequested(10.1, "control"))[1] == [Start("control")]


def test_a_stop_during_a_restart_signals_no_child_twice() -> None:
    state, commands = play(all_running(), *HANDS_OVER, StopRequested(12.1))
    assert deeds(commands)[1:] == [Terminate("control"), KillSuccessor("control"), Terminate("agent")]
    state, commands = play(state, Exited(11.0, "agent", "stopped"))
    assert deeds(commands) == [], "it was stopped already"
    assert deeds(play(state, Exited(12.0, "control", "stopped"))[1]) == [Terminate("objects")]


def test_a_stop_ends_a_successor_that_loads() -> None:
    state, commands = play(all_running(), *RELIEVED, StopRequested(10.2))
    assert deeds(commands)[1:] == [KillSuccessor("control"), Terminate("agent")]
    assert play(state, SuccessorExited(10.3, "control", "killed"))[1] == []


def test_a_stop_before_anything_runs_finishes_at_once() -> None:
    assert play(supervise(*NAMES), StopRequested(0.0))[1] == [Finish(0)]


# ---- any order of events

Choice = tuple[str, str, float]
CHOICES = st.lists(
    st.tuples(
        st.sampled_from(["tick", "ready", "exit", "stop", "restart", "next waits", "next exits"]),
        st.sampled_from(NAMES),
        st.floats(0, 40),
    ),
    max_size=40,
)


class World:
    """Performs the commands as a shell would, and checks each against what is alive."""

    def __init__(self) -> None:
        self.state, self.at, self.finished = supervise(*NAMES), 0.0, 0
        self.alive: set[str] = set()
        self.successors: set[str] = set()
        self.feed(Begin(0.0))

    def feed(self, event: ev.Event) -> None:
        if isinstance(event, Exited):
            self.alive.discard(event.child)
        if isinstance(event, SuccessorExited):
            self.successors.discard(event.child)
        self.at = event.at
        self.state, commands = step(self.state, event)
        for command in commands:
            self.perform(command)
        assert {child.name for child in self.state.children if child.alive} == self.alive

    def perform(self, command: ev.Command) -> None:
        match command:
            case Start(name):
                assert name not in self.alive, "started while alive"
                before = self.state.children[: NAMES.index(name)]
                assert all(child.serves for child in before)
                self.alive.add(name)
            case StartSuccessor(name):
                assert name in self.alive - self.successors, "beside nothing, or twice"
                self.successors.add(name)
            case Promote(name):
                self.successors.remove(name)
                assert name not in self.alive, "promoted beside a living process"
                self.alive.add(name)
            case KillSuccessor(name):
                assert name in self.successors
            case Terminate(name) | Kill(name):
                assert name in self.alive, "signalled while dead"
            case Finish(_):
                self.finished += 1
                assert not self.alive, "finished and left something running"
            case _:
                pass

    def choose(self, choice: Choice) -> ev.Event:
        """Only what can happen; anything else becomes the tick that is due."""
        what, name, gap = choice
        child = next(child for child in self.state.children if child.name == name)
        if what == "ready" and isinstance(child.phase, states.Starting | states.HandingOver):
            return BecameReady(self.at, name)
        if what == "restart":
            return RestartRequested(self.at, name)
        if what == "next waits" and name in self.successors:
            return SuccessorWaits(self.at, name)
        if what == "next exits" and name in self.successors:
            return SuccessorExited(self.at + gap, name, "x")
        if what == "exit" and child.alive:
            return Exited(self.at + gap, name, "x")
        if what == "stop":
            return StopRequested(self.at)
        return Tick(max(self.at, wake_at(self.state) or 0.0))

    def end(self) -> None:
        """A stop, and then an exit for each signal."""
        if not self.finished:
            self.feed(StopRequested(self.at))
        while not self.finished:
            stopping = [c.name for c in self.state.children if isinstance(c.phase, states.Stopping)]
            assert stopping, "nothing is stopping and it is not finished"
            self.feed(Exited(self.at, stopping[0], "0"))


@settings(max_examples=examples(300), deadline=None)
@given(CHOICES)
def test_whatever_happens_nothing_is_left_and_nothing_runs_twice(choices: list[Choice]) -> None:
    world = World()
    for choice in choices:
        if world.finished:
            break
        world.feed(world.choose(choice))
    world.end()
    assert world.finished == 1
    assert all(isinstance(child.phase, Gone) for child in world.state.children)


def test_a_pause_is_never_longer_than_its_limit() -> None:
    child = states.Child("agent", Running(tries=5000, since=0.0), was_ready=True)
    state, _ = step(states.SupervisorState((child,)), Exited(1.0, "agent", "x"))
    phase = state.children[0].phase
    assert isinstance(phase, BackingOff)
    assert phase.until == 1.0 + sv.LONGEST_BACKOFF_S
