"""What must hold of the protocol machine. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from random import Random
from typing import Any

from stoker.agent.workers.sdk_programs.bodies import Failed, Finished, PartialOutput, Progressed
from stoker.wire.messages import AttemptKey

ENDS = ("done", "failed", "returned")


def key(job: str = "j1", attempt: int = 1) -> AttemptKey:
    return AttemptKey(job, attempt)


def run(m: Any, at: float, job: str = "j1", attempt: int = 1) -> Any:
    return m.RunRequested(at, key(job, attempt), f"{job}/{attempt}".encode())


def kinds(commands: Any) -> list[str]:
    """The names of the commands; a frame by its kind."""
    return [c.frame.kind if type(c).__name__ == "SendFrame" else type(c).__name__ for c in commands]


class World:
    """One life: remembers requests and answers, and checks each step."""

    def __init__(self, m: Any, **state: Any) -> None:
        self.m = m
        self.state = m.ProtocolState(**state)
        self.at = 0.0
        self.requests = 0
        self.held: dict[int, tuple[str, float, int]] = {}  # request: kind, time, room
        self.requested: list[AttemptKey] = []
        self.handed_over: list[AttemptKey] = []
        self.over: set[AttemptKey] = set()
        self.chunks: dict[AttemptKey, int] = {}
        self.stopped = False  # no job may be handed over any more
        self.left = False
        self.signals = 0
        self.suspected: set[AttemptKey] = set()  # jobs that run, though the last poll reported none

    def happens(self, event: Any) -> Any:
        before = self.state
        newer = type(event).__name__ in ("TakeRequested", "StopsRequested")
        self.at = event.at
        self.state, commands = self.m.step(before, event)
        for command in commands:
            self.obey(command, newer)
        self.settled()
        return commands

    def obey(self, command: Any, newer: bool) -> None:
        match type(command).__name__:
            case "Terminate":
                assert not self.running(), "ended while a job ran"
                self.signals += 1
                self.stopped = self.left = True
            case "AnswerTake" | "AnswerStops" as name:
                self.answered(name, command, newer)
            case "SendFrame":
                self.on_frame(command.frame)

    def answered(self, name: str, command: Any, newer: bool) -> None:
        requested, since, room = self.held.pop(command.request)
        assert requested == name
        if not command.jobs:
            hold = self.m.TAKE_HOLD_S if name == "AnswerTake" else self.m.STOP_HOLD_S
            assert self.left or newer or self.at >= since + hold, "an empty answer at once"
        if name == "AnswerStops":
            assert all(any(job == k.job for k in self.handed_over) for job in command.jobs if job)
            return
        assert len(command.jobs) <= room
        assert not command.jobs or not self.stopped, "a job for a program that was asked to stop"
        for waiting in command.jobs:
            assert waiting.key in self.requested
            assert waiting.key not in self.over
            assert waiting.key.job not in {k.job for k in self.running()}
            self.handed_over.append(waiting.key)

    def on_frame(self, frame: Any) -> None:
        if frame.kind == "retire":
            self.stopped = True
        if "job" not in frame.fields:
            return
        mine = key(frame.job, frame.attempt)
        assert mine in self.requested
        assert mine not in self.over, f"{frame.kind} after the end"
        if frame.kind == "chunk":
            assert frame.fields["n"] == self.chunks.get(mine, 0)
            self.chunks[mine] = frame.fields["n"] + 1
        if frame.kind in ENDS:
            assert (frame.kind == "returned") <= (mine not in self.handed_over)
            self.over.add(mine)

    def running(self) -> list[AttemptKey]:
        return [one for one in self.handed_over if one not in self.over]

    def settled(self) -> None:
        """Nobody waits in vain, and nothing is lost sight of."""
        s = self.state
        known = {one.key for one in (*s.waiting, *s.open)}
        assert known == set(self.requested) - self.over
        opened = [one.key.job for one in s.open]
        assert len(opened) == len(set(opened))
        if s.phase == "serving" and s.take is not None:
            assert all(one.key.job in opened for one in s.waiting)
        assert {poll.request for poll in (s.take, s.stop) if poll} == set(self.held)
        waits = s.phase == "serving" and s.take is None and s.waiting and not s.open
        assert bool(waits) == (s.stuck_at is not None)
        assert self.m.wake_at(s) is None or self.held or waits

    # -- what happens to it

    def take(self, room: int = 1, busy: bool | None = False, many: bool = False) -> Any:
        self.requests += 1
        self.held[self.requests] = ("AnswerTake", self.at, room)
        arrived = {one.key for one in self.state.open if one.text is None}
        known = arrived <= self.suspected
        over = set(self.over)
        commands = self.happens(self.m.TakeRequested(self.at, self.requests, room, many, busy))
        if busy is False and known:
            assert arrived <= self.over, "the program runs nothing, and a job of it goes on"
        if busy is False and not known:
            assert self.over == over, "one word of the program is not enough"
            assert self.requests not in self.held, "it polls once more at once"
        if busy is not None:
            self.suspected = set() if busy else arrived
        return commands

    def stop_poll(self) -> Any:
        self.requests += 1
        self.held[self.requests] = ("AnswerStops", self.at, 0)
        return self.happens(self.m.StopsRequested(self.at, self.requests))

    def asks(self, job: str, attempt: int = 1) -> Any:
        self.requested.append(key(job, attempt))
        return self.happens(run(self.m, self.at, job, attempt))

    def handed(self, *, arrived: bool = True) -> Any:
        keys = tuple(one.key for one in self.state.open if one.text is not None)
        if not arrived:
            self.handed_over = [one for one in self.handed_over if one not in keys]
        return self.happens(self.m.Handed(self.at, 0, keys, arrived))

    def hangs_up(self, request: int) -> Any:
        self.held.pop(request)
        return self.happens(self.m.Left(self.at, request))

    def ends(self, *, terminated: bool) -> Any:
        self.stopped = True
        self.left = self.left or terminated
        return self.happens((self.m.Terminated if terminated else self.m.DrainRequested)(self.at))


def walk(m: Any, draw: Any, steps: int = 40) -> None:
    """One life of a program that behaves as it likes."""
    world = World(m)
    for number in range(steps):
        world.at += draw([0.0, 0.0, 0.3, 5.0, 31.0])
        wake = m.wake_at(world.state)
        if wake is not None and world.at >= wake:
            world.at = wake
            world.happens(m.Tick(wake))
            again = m.wake_at(world.state)
            assert again is None or again > wake, "a tick that asks for itself"
            continue
        act(world, draw, number)


def act(world: World, draw: Any, number: int) -> None:
    m, s = world.m, world.state
    jobs = [one.key.job for one in (*s.open, *s.waiting)]
    match draw(["take"] * 6 + ["run"] * 6 + ["hand"] * 4 + ["post"] * 5 + REST):
        case "take":
            room = draw([1, 1, 2, 3])
            world.take(room, busy=draw([False, True, True, True, None]), many=room > 1)
        case "run":
            fresh = draw([True, True, True, False])
            job = f"j{number}" if fresh or not jobs else draw(jobs)
            world.asks(job, attempt=number + 1)
        case "hand":
            world.handed(arrived=draw([True, True, True, False]))
        case "post":
            post = draw(
                [Finished(b"1"), Finished(None, True), Failed("bad"), PartialOutput(b"2"), Progressed(b"3")]
            )
            world.happens(m.Posted(world.at, draw([*jobs, "unknown"]), post))
        case "cancel":
            known = [one.key for one in (*s.open, *s.waiting)]
            world.happens(m.CancelRequested(world.at, draw([*known, key("unknown")])))
        case "stops":
            world.stop_poll()
        case "ping":
            world.happens(m.Pinged(world.at, frozenset(job for job in jobs if draw([True, False]))))
        case "hang up" if world.held:
            world.hangs_up(draw(list(world.held)))
        case "end":
            world.ends(terminated=draw([True, False]))


REST = ["cancel", "cancel", "stops", "stops", "ping", "hang up", "end"]


def by_random_walks(m: Any, lives: int = 100) -> None:
    for seed in range(lives):
        walk(m, Random(seed).choice)


# ---- one named example for each hazard


def serving(m: Any, *jobs: str, room: int = 1, busy: bool = False) -> World:
    """A program that has these jobs, and has taken them in."""
    world = World(m)
    world.take(room, many=room > 1)
    for job in jobs:
        world.asks(job)
        world.handed()
        if len(world.running()) < room:
            world.take(room - len(world.running()), busy=True, many=True)
    return world


def the_first_take_is_the_start(m: Any) -> None:
    world = World(m, slots=4)
    (frames,) = world.take(3, many=True)
    assert (frames.frame.kind, frames.frame.fields) == ("ready", {"concurrency": 3}), (
        "as many as it has room for"
    )
    assert m.wake_at(world.state) == m.TAKE_HOLD_S
    world.at = m.TAKE_HOLD_S
    assert kinds(world.happens(m.Tick(world.at))) == ["AnswerTake"]
    assert kinds(world.take(3, many=True)) == [], "it is ready once"


def it_never_takes_more_at_once_than_the_endpoint_allows(m: Any) -> None:
    world = World(m, slots=4)
    (frames,) = world.take(9, many=True)
    assert frames.frame.fields == {"concurrency": 4}
    assert kinds(world.take(12, many=True)) == ["AnswerTake"], "no news: it is still 4"


def what_does_not_tell_what_runs_has_the_slots_of_its_endpoint(m: Any) -> None:
    (frames,) = World(m, slots=4).take(1, busy=None)
    assert frames.frame.fields == {"concurrency": 4}


def another_room_while_nothing_runs_is_reported(m: Any) -> None:
    world = World(m, slots=4)
    world.take(2, many=True)
    for room in (3, 1):
        _, frames = world.take(room, many=True)
        assert (frames.frame.kind, frames.frame.fields) == ("slots", {"n": room})
    assert kinds(world.take(1)) == ["AnswerTake"]


def less_room_alongside_what_runs_is_no_news(m: Any) -> None:
    world = World(m, slots=4)
    world.take(3, many=True)
    world.asks("j1")
    world.handed()
    assert kinds(world.take(2, busy=True, many=True)) == []


def programs_without_batches_request_beyond_what_runs(m: Any) -> None:
    world = World(m, slots=3)
    world.take()
    answer = []
    for number in range(4):
        world.asks(f"j{number}")
        world.handed()
        answer += [c.frame.fields for c in world.take(busy=True) if type(c).__name__ == "SendFrame"]
    assert answer == [{"n": 2}, {"n": 3}], "as many as the endpoint allows"
    for number in range(4):
        world.happens(m.Posted(world.at, f"j{number}", Finished(b"1")))
    assert kinds(world.take()) == ["AnswerTake"], "idle, it asks for one as ever"


def what_asks_for_batches_reports_its_room_when_nothing_runs(m: Any) -> None:
    world = World(m, slots=4)
    world.take(2, many=True)
    world.asks("j1")
    world.handed()
    assert kinds(world.take(2, busy=True, many=True)) == [], "a result may have been dropped"
    assert kinds(world.take(1, busy=True)) == ["AnswerTake"]


def fewer_slots_are_reported_before_a_lost_job_frees_one(m: Any) -> None:
    world = World(m, slots=4)
    world.take(3, many=True)
    world.asks("j1")
    world.handed()
    world.take(2, many=True)
    assert kinds(world.take(2, many=True)) == ["slots", "failed"]


def a_job_waits_for_the_next_take(m: Any) -> None:
    world = World(m)
    world.take()
    (handed_over,) = world.asks("j1")
    assert (handed_over.jobs[0].text, handed_over.many) == (b"j1/1", False)
    assert kinds(world.handed()) == ["begun"]
    assert world.asks("j2") == ()
    assert kinds(world.happens(m.Posted(0.0, "j1", Finished(b"5")))) == ["done"]
    assert kinds(world.take()) == ["AnswerTake"]


def a_batch_brings_what_there_is_room_for(m: Any) -> None:
    world = World(m)
    world.take(3, many=True)
    world.take(3, many=True)
    world.happens(m.Tick(0.0))
    for number in range(5):
        world.asks(f"j{number}")
    assert [one.key.job for one in world.state.open] == ["j0"], "the poll was gone after the first"
    world.handed()
    (handed_over,) = world.take(2, busy=True, many=True)
    assert [one.key.job for one in handed_over.jobs] == ["j1", "j2"]
    assert handed_over.many


def an_answer_that_found_nobody_is_given_again(m: Any) -> None:
    world = World(m)
    world.take()
    world.asks("j1")
    world.asks("j2")
    assert world.handed(arrived=False) == ()
    (handed_over,) = world.take()
    assert handed_over.jobs[0].key.job == "j1", "in its old place"


def a_dropped_result_is_noticed_at_the_next_take(m: Any) -> None:
    world = serving(m, "j1")
    (again,) = world.take(busy=False)
    assert again.jobs == (), "it polls once more at once"
    (frames,) = world.take(busy=False)
    assert (frames.frame.kind, frames.frame.fields["error"]) == ("failed", m.LOST)
    assert frames.frame.fields["retryable"] is False


def a_take_that_was_sent_before_its_job_was_counted_accuses_nobody(m: Any) -> None:
    world = serving(m, "j1")
    world.take(busy=False)
    assert world.take(busy=True) == ()
    world.take(busy=False)
    assert world.take(busy=True) == (), "nor does another one, later"
    assert kinds(world.happens(m.Posted(world.at, "j1", Finished(b"1")))) == ["done"]


def a_job_that_came_after_the_uncertain_answer_is_not_lost_with_it(m: Any) -> None:
    world = serving(m, "j1", room=3)
    world.take(3, busy=False, many=True)
    world.asks("j2")
    assert kinds(world.take(3, busy=False, many=True))[0] == "failed"
    world.handed()
    world.take(3, busy=False, many=True)
    (frames,) = world.take(3, busy=False, many=True)
    assert frames.frame.job == "j2"


def a_job_on_its_way_is_not_lost(m: Any) -> None:
    world = World(m)
    world.take()
    world.asks("j1")
    assert kinds(world.take(busy=False)) == [], "whether the first answer arrived is not known yet"


def who_does_not_say_whether_it_is_busy_loses_nothing(m: Any) -> None:
    world = serving(m, "j1")
    assert world.take(busy=None) == ()


def a_stopped_job_frees_its_room(m: Any) -> None:
    world = serving(m, "j1", "j2", room=3)
    world.happens(m.CancelRequested(world.at, key("j1")))
    (answer,) = world.stop_poll()
    assert answer.jobs == ("j1",)
    assert "failed" not in kinds(world.take(1, busy=True, many=True)), "two run, one is free"
    (frames,) = (c for c in world.take(2, busy=True, many=True) if type(c).__name__ == "SendFrame")
    assert (frames.frame.job, frames.frame.fields["error"]) == ("j1", m.STOPPED)


def a_surplus_without_a_stop_accuses_nobody(m: Any) -> None:
    world = serving(m, "j1", "j2", room=3)
    assert "failed" not in kinds(world.take(2, busy=True, many=True))


def two_pings_without_a_job_that_had_arrived(m: Any) -> None:
    world = serving(m, "j1", "j2", room=3)
    assert world.happens(m.Pinged(world.at, frozenset({"j1"}))) == ()
    assert world.happens(m.Pinged(world.at, frozenset({"j1", "j2"}))) == (), "it is there again"
    assert world.happens(m.Pinged(world.at, frozenset({"j1"}))) == ()
    (frames,) = world.happens(m.Pinged(world.at, frozenset({"j1"})))
    assert (frames.frame.kind, frames.frame.job) == ("failed", "j2")


def pings_that_never_name_a_job_accuse_nobody(m: Any) -> None:
    world = serving(m, "j1", "j2", room=3)
    for named in (frozenset(), frozenset({"of another worker"})):
        for _ in range(3):
            assert world.happens(m.Pinged(world.at, named)) == ()


def pings_accuse_no_job_that_may_not_have_arrived(m: Any) -> None:
    world = serving(m, "j1")
    world.happens(m.Pinged(world.at, frozenset({"j1"})))
    for _ in range(3):
        assert world.happens(m.Pinged(world.at, frozenset())) == ()


def a_stop_is_repeated_until_it_arrives(m: Any) -> None:
    world = serving(m, "j1")
    assert world.stop_poll() == ()
    (answer,) = world.happens(m.CancelRequested(world.at, key("j1")))
    assert answer.jobs == ("j1",)
    assert world.stop_poll() == ()
    assert m.wake_at(world.state) == world.at + m.STOP_AGAIN_S
    (answer,) = world.happens(m.Tick(world.at + m.STOP_AGAIN_S))
    assert answer.jobs == ("j1",)


def what_waits_is_cancelled_here(m: Any) -> None:
    world = serving(m, "j1")
    world.asks("j2")
    (frames,) = world.happens(m.CancelRequested(world.at, key("j2")))
    assert (frames.frame.kind, frames.frame.job) == ("failed", "j2")


def drained_it_gets_no_job_and_the_signal_before_its_polls(m: Any) -> None:
    world = serving(m, "j1")
    world.stop_poll()
    assert world.ends(terminated=False) == ()
    world.asks("j2")
    assert "AnswerTake" not in kinds(world.take(busy=True))
    commands = world.happens(m.Posted(world.at, "j1", Finished(b"1")))
    assert kinds(commands) == ["done", "Terminate", "AnswerTake", "AnswerStops"]
    assert commands[3].jobs == ("",), "an answer after which a stock program does not sleep"
    assert world.take(busy=False) == ()
    assert m.wake_at(world.state) >= world.at + 0.5, "a program that ignores the signal does not spin"


def an_idle_one_leaves_at_once(m: Any) -> None:
    world = serving(m)
    assert kinds(world.ends(terminated=False)) == ["Terminate", "AnswerTake"]


def a_ladder_lets_go_of_the_polls_and_receives_the_result(m: Any) -> None:
    world = serving(m, "j1")
    world.stop_poll()
    assert kinds(world.ends(terminated=True)) == ["AnswerStops"]
    assert kinds(world.happens(m.Posted(world.at, "j1", Finished(b"1")))) == ["done"]
    assert world.signals == 0, "the signal was the ladder's"


def it_retires_before_its_slot_is_free(m: Any) -> None:
    world = serving(m, "j1")
    world.asks("j2")
    commands = world.happens(m.Posted(world.at, "j1", Finished(b"1", retire=True)))
    assert kinds(commands) == ["retire", "returned", "done", "Terminate"]
    assert commands[1].frame.job == "j2"


def its_neighbours_may_end_first(m: Any) -> None:
    world = serving(m, "j1", "j2", room=2)
    assert kinds(world.happens(m.Posted(0.0, "j1", Failed("bad", None, True)))) == ["retire", "failed"]
    assert kinds(world.happens(m.Posted(0.0, "j2", Finished(b"1", True)))) == ["done", "Terminate"]


def late_news_is_ignored(m: Any) -> None:
    world = serving(m, "j1")
    world.happens(m.Posted(0.0, "j1", Finished(b"1")))
    for post in (Finished(b"2"), Failed("bad"), Progressed(b"1"), PartialOutput(b"1")):
        assert world.happens(m.Posted(0.0, "j1", post)) == ()


def attempts_of_one_job_run_one_after_the_other(m: Any) -> None:
    world = serving(m, "j1", room=2)
    assert world.asks("j1", attempt=2) == ()
    frames, handed_over = world.happens(m.Posted(0.0, "j1", Finished(b"1")))
    assert (frames.frame.attempt, handed_over.jobs[0].key.attempt) == (1, 2)


def chunks_are_numbered_and_results_kept_apart(m: Any) -> None:
    world = serving(m, "j1")
    posts = [PartialOutput(b"1"), Progressed(b"2"), PartialOutput(b"3"), Failed("why", b"4")]
    frames = [world.happens(m.Posted(0.0, "j1", post))[0].frame for post in posts]
    assert [(f.kind, f.body) for f in frames] == [
        ("chunk", b"1"),
        ("progress", b"2"),
        ("chunk", b"3"),
        ("failed", b"4"),
    ]
    assert [frames[0].fields["n"], frames[2].fields["n"]] == [0, 1]
    world = serving(m, "j2")
    (frames,) = world.happens(m.Posted(0.0, "j2", Finished(None)))
    assert (frames.frame.body, frames.frame.fields["has_output"]) == (b"", False)


def an_unfit_program_does_not_start(m: Any) -> None:
    world = World(m)
    (frames,) = world.happens(m.Unfit(0.0, "no CUDA"))
    assert (frames.frame.kind, frames.frame.fields) == ("setup_failed", {"error": "no CUDA"})
    assert serving(m).happens(m.Unfit(0.0, "late")) == ()


def a_program_that_asks_for_nothing_is_replaced(m: Any) -> None:
    world = serving(m, "j1")
    world.happens(m.Posted(world.at, "j1", Finished(b"1")))
    world.asks("j2")
    assert m.wake_at(world.state) == m.STUCK_S
    world.asks("j3")
    world.at = m.STUCK_S - 1
    assert world.happens(m.Tick(world.at)) == ()
    world.at = m.STUCK_S
    commands = world.happens(m.Tick(world.at))
    assert kinds(commands) == ["retire", "returned", "returned", "Terminate"]
    assert [c.frame.fields["reason"] for c in commands[:3]] == [m.STUCK] * 3


def one_that_runs_a_job_or_asks_after_a_while_is_not_stuck(m: Any) -> None:
    world = serving(m, "j1")
    world.asks("j2")
    assert m.wake_at(world.state) is None, "it is busy"
    world.happens(m.Posted(world.at, "j1", Finished(b"1")))
    world.at = m.STUCK_S - 1
    assert kinds(world.take()) == ["AnswerTake"]
    world.handed()
    world.happens(m.Posted(world.at, "j2", Finished(b"1")))
    world.asks("j3")
    assert m.wake_at(world.state) == world.at + m.STUCK_S, "it is counted anew"


def who_posts_had_the_job(m: Any) -> None:
    world = World(m)
    world.take()
    world.asks("j1")
    world.happens(m.Posted(0.0, "j1", PartialOutput(b"1")))
    world.handed(arrived=False)
    assert world.take(busy=True) == (), "it is not handed over twice"


def a_poll_whose_caller_left_gets_nothing(m: Any) -> None:
    world = serving(m)
    world.hangs_up(1)
    assert world.asks("j1") == ()


EXAMPLES = [
    value
    for name, value in list(globals().items())
    if callable(value)
    and getattr(value, "__module__", "") == __name__
    and name not in ("World", "act", "by_random_walks", "key", "kinds", "run", "serving", "walk")
]
ALL = [*EXAMPLES, by_random_walks]

MUTANTS = [
    ("a poll is answered at once", "TAKE_HOLD_S = 25.0", "TAKE_HOLD_S = 0.0"),
    (
        "a drained program gets jobs",
        'if state.phase != "serving" or state.take is None:',
        "if state.take is None:",
    ),
    ("a batch is filled over", "len(jobs) < state.take.room", "len(jobs) <= state.take.room"),
    ("two attempts of a job at once", "if one.key.job not in taken and", "if"),
    ("what is on its way is lost", "if one.text is None]\n    if not event.busy", "]\n    if not event.busy"),
    (
        "one word is enough to lose a job",
        "if event.busy is False and any(one.text is None and not one.reported_idle for one in state.open):",
        "if False:",
    ),
    ("a doubt is for ever", "settled=True, reported_idle=False)", "settled=True)"),
    (
        "a doubtful poll is held",
        "_recheck(state), (*commands, AnswerTake(event.request))",
        "_recheck(state), commands",
    ),
    ("pings that name nothing accuse", "if not names_jobs:", "if False:"),
    (
        "a program is never stuck",
        "    return _retire(replace(state, stuck_at=None), STUCK)",
        "    return state, ()",
    ),
    (
        "a busy program is stuck",
        "state.take is not None or state.open or not",
        "state.take is not None or not",
    ),
    ("who asks again stays suspect", "replace(state, stuck_at=None)), ()", "state), ()"),
    (
        "nobody wakes for a stuck program",
        "times += [state.stuck_at] if state.stuck_at is not None else []",
        "",
    ),
    (
        "only batches show how many",
        "    if state.batches:\n        return state, ends\n",
        "    return state, ends\n",
    ),
    (
        "what runs counts for nothing",
        "event.room + sum(one.text is None for one in state.open)",
        "event.room",
    ),
    ("batches are added up, too", "    if state.batches:\n        return state, ends\n", ""),
    ("silence counts as idle", "if event.busy is None:", "if event.busy is ...:"),
    (
        "a surplus accuses anyone",
        "stopped = [one for one in arrived if one.stop_sent_at is not None]",
        "stopped = arrived",
    ),
    ("one surplus ends all that were stopped", "stopped[: max(surplus, 0)]", "stopped"),
    ("one ping is enough", "MISSING_MAX = 2", "MISSING_MAX = 1"),
    (
        "a ping forgives nothing",
        "0 if one.key.job in jobs else one.missing + 1",
        "one.missing + (one.key.job not in jobs)",
    ),
    ("pings accuse what may not have arrived", "if one.settled else one\n", "if True else one\n"),
    (
        "a stop is sent once",
        "one.stop_sent_at is None or at >= one.stop_sent_at + STOP_AGAIN_S",
        "one.stop_sent_at is None",
    ),
    ("a stop is repeated without a pause", "STOP_AGAIN_S = 0.5", "STOP_AGAIN_S = 0.0"),
    (
        "the polls return before the signal",
        "return state, (Terminate(), *commands)",
        "return state, (*commands, Terminate())",
    ),
    ("it leaves while a job runs", 'state.phase != "draining" or state.open:', 'state.phase != "draining":'),
    (
        "the slot is free before it retires",
        "return state, (*retired, end)",
        "return state, (end, *retired)",
    ),
    (
        "what waits is forgotten by one that retires",
        '{"reason": why})), *back)',
        '{"reason": why})),)',
    ),
    ("it retires twice", 'if not retire or state.phase not in ("starting", "serving"):', "if not retire:"),
    ("chunks have one number", "replace(one, chunks=one.chunks + 1)", "one"),
    ("who posts may get it again", "if one.text is not None:  # it has it", "if False:  # it has it"),
    ("an answer to nobody is lost", "waiting=back + state.waiting", "waiting=state.waiting"),
    ("an answer to nobody goes to the end", "waiting=back + state.waiting", "waiting=state.waiting + back"),
    ("an older poll is forgotten", "commands = (AnswerTake(state.take.request),)\n", "commands = ()\n"),
    (
        "an older stop poll is forgotten",
        "() if state.stop is None else (AnswerStops(state.stop.request),)",
        "()",
    ),
    (
        "polls are kept after SIGTERM",
        'case Terminated():\n            return _answer_polls(replace(state, phase="leaving"))',
        'case Terminated():\n            return replace(state, phase="leaving"), ()',
    ),
    ("a program that ignores SIGTERM spins", "LEAVE_HOLD_S = 1.0", "LEAVE_HOLD_S = 0.0"),
    (
        "it is ready at every take",
        'replace(state, phase="serving", reported_slots=slots)',
        "replace(state, reported_slots=slots)",
    ),
    (
        "it is ready for more than it takes",
        "if event.busy is False else state.slots",
        "if False else state.slots",
    ),
    ("a program decides over its endpoint", "slots = min(state.slots, event.room)", "slots = event.room"),
    ("another room over the endpoint's", "now = min(state.slots, state.at_once)", "now = state.at_once"),
    ("the same slots are reported again", "if now < 1 or now == state.reported_slots:", "if now < 1:"),
    (
        "the slots come after what is lost",
        '{"n": now})), *ends)',
        '{"n": now})),)[:0] + (*ends, SendFrame(Frame("slots", {"n": now})))',
    ),
    ("a lost job may be tried again for ever", "error=error, retryable=False", "error=error, retryable=True"),
    ("a missing output is null", 'has_output": output is not None', 'has_output": True'),
    (
        "a program that left gets the job",
        "return replace(state, take=None)\n    if state.stop",
        "return state\n    if state.stop",
    ),
    (
        "no alarm is set for the next stop",
        "times += [one.stop_sent_at + STOP_AGAIN_S for",
        "times += [1e9 for",
    ),
]
