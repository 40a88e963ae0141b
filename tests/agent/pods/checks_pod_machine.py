"""What must hold of the pod machine. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from stoker.wire.messages import HeldPod, PodSpec, PodState

SPEC = PodSpec("p1", 1, "RUNNING", "an/image")


class Node:
    """One pod, an engine of the model's own, and what the agent keeps on disk. `up`: whether the engine
    answers."""

    def __init__(self, m: Any, mark: Any = None) -> None:
        self.m = m
        self.at = 0.0
        self.up = True
        self.container: tuple[str, int] | None = None  # made, runs, ended, taken; its version
        self.code = self.busy = 0
        self.stubborn = self.refuses = self.volume = False
        self.disk = mark
        self.reports: list[PodState] = []
        self.done: list[Any] = []
        self.spec: PodSpec | None = None
        self.begin()

    def begin(self) -> None:
        """An agent starts: what an earlier one had in memory is gone."""
        self.work: Any = None
        self.pod, commands = self.m.begin("p1", self.disk)
        self._obey(commands)

    def crash(self, *, performed: bool) -> None:
        """In the middle of a command: it was `performed`, or it was not, and its answer is never heard."""
        if performed and self.work is not None:
            self._perform(self.work)
        self.spec = None
        self.begin()

    def wish(self, **fields: Any) -> None:
        self.spec = replace(self.spec or SPEC, **fields)
        self.tell(self.m.Wished(self.at, self.spec))

    def tell(self, event: Any) -> None:
        self.pod, commands = self.m.step(self.pod, event)
        self._obey(commands)

    def _obey(self, commands: tuple[Any, ...]) -> None:
        for command in commands:
            match command:
                case self.m.SaveMark(mark):
                    self.disk = mark
                case self.m.ReportPod(state):
                    self.reports.append(state)
                    self._check_report(state)
                case self.m.Signal(name):
                    self._check_signal()
                    self.done.append(command)
                    self._signalled(name)
                case self.m.GiveUp():
                    assert isinstance(self.work, self.m.Pull)
                    self.work = None
                case _:
                    assert self.work is None or isinstance(command, self.m.Look), (self.work, command)
                    self.work = self.work or command

    def work_once(self) -> bool:
        """Performs what was commanded, and tells what comes of it."""
        work, self.work = self.work, None
        if work is None:
            return False
        if not isinstance(work, self.m.Look):
            self.done.append(work)
            self._check_work(work)
        self.tell(self._perform(work))
        return True

    def settle(self, seconds: float = 200.0) -> None:
        until = self.at + seconds
        for _ in range(1000):
            while self.work_once():
                self.busy += 1
                assert self.busy < 5000, "it never rests"
            if self.at >= until:
                return
            wake = self.m.wake_at(self.pod)
            self.at = self.at + 2.0 if wake is None else max(self.at, min(wake, self.at + 2.0))
            if self.m.watched(self.pod) or wake is not None:
                self.tell(self.m.Tick(self.at))
        raise AssertionError("it never sleeps")

    # -- the engine

    def _perform(self, work: Any) -> Any:
        m = self.m
        if not self.up:
            return m.Failed(self.at, "no engine")
        match work:
            case m.Look():
                return m.Seen(self.at, self._look())
            case m.Pull() if self.refuses:
                return m.Failed(self.at, "no such image")
            case m.Make(spec):
                if self.container is not None:
                    return m.Failed(self.at, "the name is taken")
                self.container, self.volume = ("made", spec.version), True
            case m.Start():
                if self.container is None:
                    return m.Failed(self.at, "no such container")
                self.container = ("runs", self.container[1])
            case m.Remove():
                self.container = None
            case m.RemoveVolume():
                self.volume = False
        return m.Done(self.at)

    def _look(self) -> Any:
        match self.container:
            case None:
                return self.m.Absent()
            case "made", version:
                return self.m.Made(version)
            case "runs", version:
                return self.m.Runs(version)
            case kind, version:
                return self.m.Ended(version, self.code, f"exited with code {self.code}", kind == "taken")

    def _signalled(self, name: str) -> None:
        if self.up and self.runs and not (self.stubborn and name == "SIGTERM"):
            self.ends(137 if name == "SIGKILL" else 0)

    @property
    def runs(self) -> bool:
        return self.container is not None and self.container[0] == "runs"

    def ends(self, code: int = 7) -> None:
        if self.runs:
            self.container, self.code = ("ended", self.container[1]), code

    def engine_goes(self, *, takes: bool = True) -> None:
        self.up = False
        if takes and self.runs:
            self.container, self.code = ("taken", self.container[1]), 143

    # -- what must never be

    def _check_work(self, work: Any) -> None:
        assert self.spec is not None, f"{work}: nobody wants anything"
        match work:
            case self.m.Pull() | self.m.Make() | self.m.Start():
                running = isinstance(self.pod.doing, self.m.Starting)  # its wish may have changed meanwhile
                assert self.spec.wish == "RUNNING" or running or isinstance(work, self.m.Make)
            case self.m.RemoveVolume():
                assert self.container is None

    def _check_signal(self) -> None:
        assert self.spec is not None, "nobody wants it stopped"

    def _check_report(self, state: PodState) -> None:
        if state.state == "running":
            assert self.runs or not self.up or self.container is not None
        if state.state == "gone":
            assert self.container is None
            assert not self.volume
        if self.spec is not None:
            assert (state.version, state.restarts) == (self.spec.version, self.spec.restarts)


def running(m: Any, **fields: Any) -> Node:
    node = Node(m)
    node.wish(**fields)
    node.settle(10)
    assert node.runs
    return node


def states(node: Node) -> list[str]:
    return [state.state for state in node.reports]


def kinds(node: Node) -> list[str]:
    return [type(one).__name__ for one in node.done]


# ---- examples -----------------------------------------------------------------------------------


def it_is_pulled_made_started_and_reported(m: Any) -> None:
    node = running(m)
    assert kinds(node) == ["Pull", "Make", "Start"]
    assert states(node) == ["creating", "running"]
    assert m.held(node.pod) == HeldPod("p1", 1, 0, "running")
    assert node.disk == m.Mark(1, 0, "runs")


def one_that_is_not_to_run_is_not_made(m: Any) -> None:
    node = Node(m)
    node.wish(wish="EXITED")
    node.settle(10)
    assert (node.done, states(node)) == ([], ["exited"])
    assert node.reports[0].exit_code is None


def a_stop_is_term_and_keeps_the_volume(m: Any) -> None:
    node = running(m)
    node.wish(wish="EXITED")
    node.settle(10)
    assert node.done[3:] == [m.Signal("SIGTERM")]
    assert (states(node)[-1], node.volume) == ("exited", True)
    assert node.reports[-1].reason == "it was stopped, and ended with code 0"


def what_receives_no_term_is_killed_in_ten_seconds(m: Any) -> None:
    node = running(m)
    node.stubborn = True
    began = node.at
    node.wish(wish="EXITED")
    node.work_once()
    node.work_once()
    assert m.wake_at(node.pod) == began + m.STOP_S == began + 10
    node.settle(30)
    assert node.done[3:] == [m.Signal("SIGTERM"), m.Signal("SIGKILL")]
    assert node.reports[-1].reason == "it did not end within 10 s of SIGTERM, and was killed"


def a_kill_that_nobody_received_is_sent_again(m: Any) -> None:
    node = running(m)
    node.stubborn = True
    node.wish(wish="EXITED")
    node.settle(5)
    node.engine_goes(takes=False)
    node.settle(30)
    assert node.runs
    node.up = True
    node.settle(10)
    assert not node.runs


def what_ended_by_itself_stays_so(m: Any) -> None:
    node = running(m)
    node.ends(7)
    node.settle()
    assert not node.runs
    assert (states(node), node.reports[-1].exit_code) == (["creating", "running", "exited"], 7)
    node.crash(performed=False)
    node.wish()
    node.settle()
    assert not node.runs, "nor does the next agent start it"
    assert node.reports[-1].reason == "exited with code 7"


def it_is_started_by_more_restarts(m: Any) -> None:
    node = running(m)
    node.ends()
    node.settle(10)
    node.wish(restarts=1)
    node.settle(10)
    assert node.runs
    assert (node.reports[-1].state, node.reports[-1].restarts) == ("running", 1)
    assert "Make" not in kinds(node)[3:], "the same container"


def it_is_started_by_another_wish_to_run(m: Any) -> None:
    node = running(m)
    node.ends(137)
    node.settle(10)
    node.wish(wish="EXITED")
    node.settle(10)
    assert node.reports[-1].reason == "exited with code 137", "nobody killed it"
    node.crash(performed=False)
    node.wish(wish="RUNNING")
    node.settle(10)
    assert node.runs


def a_restart_stops_and_starts_the_same_container_once(m: Any) -> None:
    node = running(m)
    node.wish(restarts=2)
    node.settle(30)
    assert kinds(node)[3:] == ["Signal", "Start"]
    assert node.disk == m.Mark(1, 2, "runs")
    node.settle(30)
    assert kinds(node)[3:] == ["Signal", "Start"]


def a_reset_makes_it_anew_and_keeps_the_volume(m: Any) -> None:
    node = running(m)
    node.wish(version=2)
    node.settle(30)
    assert kinds(node)[3:] == ["Signal", "Remove", "Pull", "Make", "Start"]
    assert node.container == ("runs", 2)


def a_reset_of_a_stopped_one_only_removes(m: Any) -> None:
    node = running(m)
    node.wish(wish="EXITED")
    node.settle(10)
    node.wish(version=2)
    node.settle(10)
    assert kinds(node)[4:] == ["Remove"]
    assert (node.reports[-1].state, node.reports[-1].version, node.volume) == ("exited", 2, True)


def a_terminated_one_leaves_nothing(m: Any) -> None:
    node = running(m)
    node.wish(wish="TERMINATED")
    node.settle(30)
    assert kinds(node)[3:] == ["Signal", "Remove", "RemoveVolume"]
    assert (node.container, node.volume, node.disk) == (None, False, None)
    assert states(node)[-1] == "gone"
    assert m.held(node.pod) is None
    node.settle(30)
    assert states(node).count("gone") == 1


def its_engine_takes_it_along_and_it_is_started_again(m: Any) -> None:
    node = running(m)
    node.engine_goes()
    node.settle(3)
    assert states(node)[-1] == "running", "an engine that is restarted is waited for"
    node.up = True
    node.settle(120)
    assert node.runs
    node.engine_goes()
    node.crash(performed=False)
    node.up = True
    node.wish()
    node.settle(30)
    assert node.runs, "with the agent"


def an_engine_that_stays_away_is_reported(m: Any) -> None:
    node = running(m)
    node.engine_goes()
    node.settle(60)
    assert (node.reports[-1].state, node.reports[-1].reason) == ("failed", "no engine")
    node.up = True
    node.settle(120)
    assert states(node)[-1] == "running"


def where_there_is_no_engine_it_is_reported_at_once(m: Any) -> None:
    for wish in ("RUNNING", "EXITED"):
        node = Node(m)
        node.up = False
        node.wish(wish=wish)
        node.settle(1)
        assert (states(node), node.reports[-1].reason) == (["failed"], "no engine")
        node.wish(wish="TERMINATED")
        node.settle(100)
        assert states(node)[-1] == "gone", "nothing was ever made"


def an_engine_that_is_away_terminates_nothing(m: Any) -> None:
    node = running(m)
    node.engine_goes(takes=False)
    node.crash(performed=False)
    node.wish(wish="TERMINATED")
    node.settle(100)
    assert "gone" not in states(node)


def what_cannot_be_pulled_is_tried_again_later_and_later(m: Any) -> None:
    node = Node(m)
    node.refuses = True
    node.wish()
    node.settle(100)
    assert 6 <= len(node.done) <= 9
    assert states(node) == ["creating", "failed", *["creating", "failed"] * (len(node.done) - 1)]
    node.refuses = False
    node.settle(100)
    assert node.runs


def a_wish_that_says_the_same_hurries_nothing(m: Any) -> None:
    node = Node(m)
    node.refuses = True
    node.wish()
    node.settle(20)
    tried = len(node.done)
    for _ in range(20):
        node.wish()
        while node.work_once():
            pass
    assert len(node.done) == tried
    node.wish(version=2)
    while node.work_once():
        pass
    assert len(node.done) == tried + 1, "another one does"


def a_pull_is_given_up_for_another_wish(m: Any) -> None:
    node = Node(m)
    node.wish()
    node.work_once()
    assert isinstance(node.work, m.Pull)
    node.wish(wish="TERMINATED")
    assert isinstance(node.work, m.Look)
    node.settle(10)
    assert states(node)[-1] == "gone"


def nobody_names_it_and_it_is_left(m: Any) -> None:
    node = running(m)
    node.crash(performed=False)
    node.settle(10)
    assert node.runs
    assert m.held(node.pod) == HeldPod("p1", 1, 0, "running")
    node.ends(7)
    node.settle(10)
    assert kinds(node) == ["Pull", "Make", "Start"]
    assert node.reports[-1] == PodState("p1", 1, 0, "exited", "exited with code 7", exit_code=7)


def what_an_agent_that_died_was_doing_is_finished(m: Any) -> None:
    for steps in range(8):
        for performed in (False, True):
            node = Node(m)
            node.wish()
            for _ in range(steps):
                node.work_once()
            node.crash(performed=performed)
            node.wish()
            node.settle(30)
            assert node.runs, (steps, performed)


def a_restart_is_finished_by_the_next_agent(m: Any) -> None:
    for steps in range(6):
        for performed in (False, True):
            node = running(m)
            node.wish(restarts=1)
            for _ in range(steps):
                if not node.work_once():
                    node.at += 2
                    node.tell(m.Tick(node.at))
            node.crash(performed=performed)
            node.wish(restarts=1)
            node.settle(30)
            assert node.runs, (steps, performed)
            assert (node.reports[-1].state, node.reports[-1].restarts) == ("running", 1)


def what_was_removed_from_outside_is_made_again(m: Any) -> None:
    node = running(m)
    node.container = None
    node.settle(30)
    assert node.runs


# ---- any life -----------------------------------------------------------------------------------

WISHES = (*["RUNNING"] * 6, *["EXITED"] * 4, "TERMINATED")
HAPPENS = (*["work"] * 8, "tick", "tick", "wish", "wish", "end", "engine", "crash", "refuse")


def walk(m: Any, choose: Any) -> None:
    """Whatever happens: once it is quiet, what is wanted is there, and what is said is so."""
    node = Node(m)
    for _ in range(60):
        happen(m, node, choose)
    node.up, node.refuses, node.stubborn = True, False, False
    ended = node.container is not None and node.container[0] == "ended"
    if node.spec is None:
        node.wish(restarts=choose((0, 1)))
    node.settle(150)
    check_quiet(m, node, ended)


def happen(m: Any, node: Node, choose: Any) -> None:
    match choose(HAPPENS):
        case "work":
            node.work_once()
        case "tick":
            wake = m.wake_at(node.pod)
            node.at = node.at + 2 if wake is None else max(node.at, wake)
            node.tell(m.Tick(node.at))
        case "wish":
            spec = node.spec or SPEC
            node.stubborn = choose((True, False))
            if spec.wish != "TERMINATED":
                wish = choose(WISHES)
                more = choose((0, 0, 0, 1)), choose((0, 0, 1))
                node.wish(wish=wish, version=spec.version + more[0], restarts=spec.restarts + more[1])
        case "end":
            node.ends(choose((0, 7, 137)))
        case "engine":
            if node.up:
                node.engine_goes(takes=choose((True, False)))
            else:
                node.up = True
        case "crash":
            spec = node.spec
            node.crash(performed=choose((True, False)))
            if spec is not None and choose((True, False)):
                node.wish(**{name: getattr(spec, name) for name in ("wish", "version", "restarts")})
        case "refuse":
            node.refuses = not node.refuses


def check_quiet(m: Any, node: Node, ended: bool) -> None:
    assert node.spec is not None
    reports = node.reports[-1]
    assert (reports.version, reports.restarts) == (node.spec.version, node.spec.restarts)
    match node.spec.wish:
        case "TERMINATED":
            assert (node.container, node.volume, node.disk, reports.state) == (None, False, None, "gone")
            assert m.held(node.pod) is None
        case "EXITED":
            assert not node.runs
            assert reports.state == "exited"
        case _ if reports.state == "exited":
            assert ended, "only an end of its own leaves it so"
            assert node.container == ("ended", node.spec.version)
        case _:
            assert (node.container, reports.state) == (("runs", node.spec.version), "running")
            assert node.disk == m.Mark(node.spec.version, node.spec.restarts, "runs")


def by_random_lives(m: Any, count: int) -> None:
    for seed in range(count):
        walk(m, Random(seed).choice)


RANDOM = [lambda m: by_random_lives(m, 60)]

MUTANTS = [
    ("no kill", "case Stopping(kill_at) if at >= kill_at:", "case Stopping(kill_at) if at < 0:"),
    ("a kill at once", "Stopping(at + STOP_S)", "Stopping(at)"),
    (
        "one kill is enough",
        '            return pod, (Signal("SIGKILL"),)  # the last',
        "            return pod, ()  # the last",
    ),
    ("what ended by itself is started", 'return course == "ended" or (', "return False and ("),
    ("what its engine took stays", ' or (course == "runs" and not seen.taken)', ' or course == "runs"'),
    ("restarts are not heard", " or mark.restarts < spec.restarts\n", "\n"),
    ("a reset is not heard", "seen.version != spec.version:", "False:"),
    ("the volume is left", "return replace(pod, doing=Clearing()), (RemoveVolume(),)", "return _gone(pod)"),
    ("the mark comes after the stop", '"stopped")\n    stopping = ', '"runs")\n    stopping = '),
    (
        "the mark comes before the start",
        "(replace(starting, mark=stopped), ())",
        "(replace(starting, mark=starting.doing.mark), ())",
    ),
    (
        "gone is said while the engine is away",
        "pod.seen is None and pod.mark is None and _wish",
        "pod.seen is None and _wish",
    ),
    ("every wish hurries", "return (pod, ()) if spec == pod.spec else _wished", "return _wished"),
    ("a pull is not given up", "(GiveUp(), Look())", "()"),
    ("an engine away is said at once", "and failures < FAILED_LOOKS_MAX", "and False"),
    ("no back-off", "Waiting(at + back_off(failures))", "Waiting(at)"),
    ("all is said again", "    if found == pod.reported:", "    if False:"),
    (
        "a stopped one is made",
        "            return _to_run(pod, spec, seen, at)\n        case _:\n            return _to_stop(",
        "            return _to_run(pod, spec, seen, at)\n        case _:\n            return _to_run(",
    ),
    (
        "its own end reads as ours",
        'course: Course = "released" if left',
        'course: Course = "stopped" if left',
    ),
]
