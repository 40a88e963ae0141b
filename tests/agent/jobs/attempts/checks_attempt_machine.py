"""What must hold of the attempt machine. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from random import Random
from typing import Any

from stoker.agent.jobs.attempts import events as ev

LOSER = ev.Verdict("cancelled", "cancelled")
TIMEOUT_S, TTL_S = 5.0, 60.0
AT_THE_WORKER = ("Fetching", "Running", "Cancelling", "Terminating")


def name(state: Any) -> str:
    return type(state).__name__


def kinds(commands: Any) -> list[str]:
    return [type(command).__name__ for command in commands]


GOES_ON = {
    "Waiting": [ev.Next, ev.RoomAhead, ev.RoomAhead],
    "Fetching": [ev.Fetched],
    "Running": [
        lambda at: ev.Done(at, upload=True),
        lambda at: ev.Done(at, upload=True, backlog="moving"),
        lambda at: ev.HandlerFailed(at, "bad", retryable=False, backlog="moving"),
        ev.Tick,
    ],
    "Flushing": [lambda at: ev.ChunkFailed(at, "down", retryable=True), ev.LeaseLost, ev.ChunksUploaded],
    "Cancelling": [ev.Tick],
    "Terminating": [ev.Tick, lambda at: ev.WorkerGone(at, "killed", planned=True)],
    "Reporting": [ev.Tick, ev.Acked],
    "Uploading": [lambda at: ev.UploadFailed(at, "down", retryable=True), ev.Tick, ev.LeaseLost],
}


def events_at(at: float, draw: Any, state: Any, machine: Any, *, ahead: bool = False) -> Any:
    """Any event, with ticks biased to the moment that the machine asked for. `ahead`: its run was sent ahead,
    and its worker may not have begun it."""
    if ahead and not draw(range(4)):
        return ev.Withdrawn(at)
    wake = machine.wake_at(state)
    if draw(range(3)):
        # mostly what moves a life on: endings are many, and would leave little of it
        choices = GOES_ON.get(name(state), ())
        if choices:
            return draw([make(wake if wake is not None and wake > at else at) for make in choices])
    choices = [
        ev.RoomAhead(at),
        ev.Next(at),
        ev.HandBack(at, "the one before takes long"),
        ev.Fetched(at),
        ev.FetchFailed(at, "gone"),
        ev.Begun(at),
        ev.Done(at, upload=False),
        ev.Done(at, upload=True),
        ev.Done(at, upload=False, backlog="stuck"),
        ev.ChunksUploaded(at),
        ev.ChunkFailed(at, "down", retryable=True),
        ev.ChunkFailed(at, "never", retryable=False),
        ev.HandlerFailed(at, "bad", retryable=False),
        ev.HandlerFailed(at, "bad", retryable=True),
        ev.AskedToYield(at, "the node leaves"),
        ev.Yielded(at, "the node leaves"),
        ev.Yielded(at, "the node leaves", backlog="moving"),
        ev.Stop(at, LOSER),
        ev.LeaseLost(at),
        ev.Dropped(at),
        ev.WorkerGone(at, "died", planned=False),
        ev.WorkerGone(at, "killed", planned=True),
        ev.WorkerGone(at, "died", planned=False, backlog="moving"),
        ev.Uploaded(at),
        ev.UploadFailed(at, "down", retryable=True),
        ev.UploadFailed(at, "never", retryable=False),
        ev.Acked(at),
        ev.Tick(at),
    ]
    ticks = [ev.Tick(wake)] * 8 if wake is not None and wake >= at else []
    return draw(choices + ticks)


def walk(machine: Any, draw: Any, steps: int = 25) -> None:
    """One life, with the invariants checked after each step."""
    fetch, waits = draw([True, False, False]), draw([True, False])
    state, commands = machine.begin(0.0, TIMEOUT_S, TTL_S, fetch=fetch, waits=waits)
    reported = Observed()
    reported.note(name(state), name(state), None, commands)
    at, dead = 0.0, 0
    for _ in range(steps):
        dead += name(state) == "Over"
        if dead > 2:
            return
        at += draw([0.0, 0.1, 1.0])
        event = events_at(at, draw, state, machine, ahead=reported.ahead)
        at = event.at
        before = state
        state, commands = machine.step(state, event)
        reported.note(name(before), name(state), event, commands)
        reported.check(state, machine)
        wake = machine.wake_at(state)
        if isinstance(event, ev.Tick) and wake is not None:
            # a tick never asks for the same moment again: the shell would spin
            assert wake > at or state != before or wake > event.at, (before, event, state)


class Observed:
    """What the outside was told in one life."""

    def __init__(self) -> None:
        self.reports: list[ev.Verdict] = []
        self.left = self.runs = self.begun = self.forgets = self.cancels = 0
        self.ahead = False
        self.ladder: list[str] = []
        self.verdict_fixed: Any = None

    def note(self, before: str, after: str, event: Any, commands: Any) -> None:
        self.lies(event, commands)
        for command in commands:
            match command:
                case ev.SendCancel():
                    self.cancels += 1
                    self.ladder.append("cancel")
                case ev.TerminateWorker():
                    self.ladder.append("term")
                case ev.ReleaseSlot():
                    self.left += 1
                case ev.ReportOutcome(verdict):
                    self.reports.append(verdict)
                case ev.Forget():
                    self.forgets += 1
        if before == "Waiting":
            waited(after, event, commands, ahead=self.ahead)
        if before == "Terminating" and after != "Terminating":
            assert isinstance(event, ev.WorkerGone), "after SIGTERM only the worker's exit ends an attempt"
        if before == after == "Over":
            assert not commands

    def lies(self, event: Any, commands: Any) -> None:
        """Where its run is."""
        if isinstance(event, ev.Withdrawn):
            self.ahead, self.runs = False, self.runs - 1
        for command in commands:
            self.runs += isinstance(command, ev.SendRun | ev.SendAhead)
            self.ahead = self.ahead or isinstance(command, ev.SendAhead)
            if isinstance(command, ev.Begin | ev.SendRun):
                self.begun = 1

    def check(self, state: Any, machine: Any) -> None:
        assert len(self.reports) <= 1, "the first end wins"
        assert self.runs <= 1, "it lies in one place"
        assert self.begun or name(state) not in ("Running", "Cancelling", "Terminating", "Uploading")
        assert self.forgets <= 1
        assert self.ladder == ["cancel", "term"][: len(self.ladder)], "no rung is left out"
        at_worker, waits = name(state) in AT_THE_WORKER, name(state) == "Waiting"
        assert self.left == (0 if at_worker or waits else 1), "it leaves its worker exactly once"
        assert (machine.phase(state) == "waiting") == waits
        assert (machine.phase(state) == "running") == at_worker
        if name(state) == "Reporting":
            assert self.reports == [state.verdict], "what is reported is what was decided"
        verdict = getattr(state, "verdict", None)
        if name(state) == "Flushing":
            assert verdict is not None
            assert not verdict.given_back, "what runs again is told again"
            verdict = None if verdict == ev.COMPLETED else verdict  # it may still fail to arrive
        if self.verdict_fixed is not None and verdict is not None:
            assert verdict == self.verdict_fixed, "a verdict, once fixed, stays"
        self.verdict_fixed = verdict or self.verdict_fixed
        if name(state) == "Over":
            assert self.forgets == 1
            assert machine.wake_at(state) is None


def waited(after: str, event: Any, commands: Any, *, ahead: bool) -> None:
    """What must hold of each step of one that waits for its worker."""
    begins = after in AT_THE_WORKER
    assert begins == isinstance(event, ev.Next), "it begins when the one before has left, and not before"
    if not begins:
        assert not {"SendCancel", "TerminateWorker", "SendRun"} & set(kinds(commands)), "no ladder"
    if after == "Reporting":
        assert not ahead or isinstance(event, ev.WorkerGone), "its worker might run it yet"
        (verdict,) = (command.verdict for command in commands if isinstance(command, ev.ReportOutcome))
        assert verdict.end != "lost" or verdict.given_back, "it never counts as failed"


def by_random_walks(machine: Any, lives: int = 400) -> None:
    for seed in range(lives):
        walk(machine, Random(seed).choice)


# ---- one named example for each hazard


def a_timeout_cancels_and_then_terminates(m: Any) -> None:
    state, commands = m.begin(10.0, TIMEOUT_S, TTL_S, fetch=False)
    assert (state, commands) == (m.Running(10.0, 15.0, 70.0), (ev.SendRun(),))
    assert m.wake_at(state) == 15.0
    assert m.step(state, ev.Tick(14.9)) == (state, ())
    state, commands = m.step(state, ev.Tick(15.0))
    assert kinds(commands) == ["SendCancel"]
    assert m.wake_at(state) == 17.0
    state, commands = m.step(state, ev.Tick(17.0))
    assert kinds(commands) == ["TerminateWorker"]
    assert m.wake_at(state) is None, "the process machine counts the time to SIGKILL"
    state, commands = m.step(state, ev.WorkerGone(20.1, "killed", planned=True))
    assert kinds(commands) == ["ReleaseSlot", "ReportOutcome"]
    assert commands[1].verdict.end == "timed_out"
    assert "5 s" in commands[1].verdict.error
    assert not commands[1].verdict.given_back


def patience_can_be_chosen(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    state, _ = m.step(state, ev.Tick(5.0), 0.5)
    assert m.wake_at(state) == 5.5


def late_done_changes_nothing(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    state, _ = m.step(state, ev.Tick(5.0))
    state, commands = m.step(state, ev.Done(5.1, upload=True))
    assert [c.verdict.end for c in commands if isinstance(c, ev.ReportOutcome)] == ["timed_out"]


def done_while_terminating_waits_for_the_exit(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    state, _ = m.step(state, ev.Stop(1.0, LOSER))
    state, _ = m.step(state, ev.Tick(3.0))
    assert m.step(state, ev.Done(3.1, upload=False)) == (state, ())


def ttl_stops_what_runs(m: Any) -> None:
    state, _ = m.begin(0.0, 100.0, 50.0, fetch=False)
    assert m.wake_at(state) == 50.0
    state, commands = m.step(state, ev.Tick(50.0))
    assert kinds(commands) == ["SendCancel"]
    assert "ttl" in state.verdict.error


def what_it_waited_at_its_worker_is_not_its_time(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    assert m.step(state, ev.Begun(4.0)) == (m.Running(4.0, 9.0, 60.0), ())
    state, _ = m.step(state, ev.Stop(1.0, LOSER))
    assert m.step(state, ev.Begun(2.0)) == (state, ()), "no longer once it is being stopped"


def lease_spares_what_has_left_its_worker(m: Any) -> None:
    running, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    stopping, commands = m.step(running, ev.LeaseLost(1.0))
    assert kinds(commands) == ["SendCancel"]
    assert (stopping.verdict.end, stopping.verdict.retryable) == ("lost", True)
    uploading, _ = m.step(running, ev.Done(1.0, upload=True))
    assert m.step(uploading, ev.LeaseLost(2.0)) == (uploading, ())
    reporting, _ = m.step(running, ev.Done(1.0, upload=False))
    assert m.step(reporting, ev.LeaseLost(2.0)) == (reporting, ())


def uploading_outlives_the_timeout_and_ends_at_the_ttl(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    state, commands = m.step(state, ev.Done(4.0, upload=True))
    assert kinds(commands) == ["ReleaseSlot", "ReportUploading", "Upload"]
    assert m.wake_at(state) == TTL_S
    assert m.step(state, ev.Tick(6.0)) == (state, ())
    assert m.step(state, ev.WorkerGone(6.0, "died", planned=False)) == (state, ())
    state, commands = m.step(state, ev.Tick(TTL_S))
    assert kinds(commands) == ["StopTransfer", "ReportOutcome"]
    assert commands[1].verdict.end == "failed"


def uploads_back_off(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, 1e6, fetch=False)
    state, _ = m.step(state, ev.Done(0.0, upload=True))
    at, waits = 0.0, []
    for _ in range(9):
        reported, commands = m.step(state, ev.UploadFailed(at, "down", retryable=True))
        assert kinds(commands) == ([] if waits else ["ReportDelay"]), "the same reason is told once"
        state = reported
        wake = m.wake_at(state)
        waits.append(wake - at)
        at = wake
        state, commands = m.step(state, ev.Tick(at))
        assert kinds(commands) == ["Upload"]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    state, commands = m.step(state, ev.Uploaded(at))
    assert kinds(commands) == ["ReportOutcome"]
    assert commands[0].verdict.end == "completed"


def each_reason_for_a_delay_is_reported_at_once(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, 1e6, fetch=False)
    state, _ = m.step(state, ev.Done(0.0, upload=True))
    reported = []
    for why in ("no such host", "no such host", "it is full"):
        state, commands = m.step(state, ev.UploadFailed(1.0, why, retryable=True))
        reported.append(commands)
    assert reported == [(ev.ReportDelay("no such host"),), (), (ev.ReportDelay("it is full"),)]


def a_refused_upload_fails_for_good(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    state, _ = m.step(state, ev.Done(1.0, upload=True))
    state, commands = m.step(state, ev.UploadFailed(2.0, "wrong key", retryable=False))
    verdict = commands[-1].verdict
    assert (verdict.end, verdict.error, verdict.retryable) == ("failed", "wrong key", False)


def a_death_is_lost_and_a_neighbours_kill_is_handed_back(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    _, commands = m.step(state, ev.WorkerGone(1.0, "segfault", planned=False))
    lost = commands[-1].verdict
    assert (lost.end, lost.retryable, lost.given_back, lost.error) == ("lost", True, False, "segfault")
    _, commands = m.step(state, ev.WorkerGone(1.0, "killed", planned=True))
    assert commands[-1].verdict.given_back


def dropped_work_is_stopped_and_not_reported(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    state, commands = m.step(state, ev.Dropped(1.0))
    assert kinds(commands) == ["SendCancel"]
    state, commands = m.step(state, ev.HandlerFailed(1.5, "cancelled", retryable=False))
    # its reports go first: the one that frees the slot must not go with them
    assert kinds(commands) == ["ReleaseSlot", "Forget", "ReportReleased"]
    assert commands[1].reports
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    state, _ = m.step(state, ev.Stop(1.0, LOSER))
    state, _ = m.step(state, ev.Dropped(1.1))
    _, commands = m.step(state, ev.WorkerGone(1.2, "died", planned=False))
    assert "ReportOutcome" not in kinds(commands)


def an_input_that_is_fetched_holds_the_slot_and_not_the_clock(m: Any) -> None:
    state, commands = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=True)
    assert kinds(commands) == ["Fetch"]
    assert m.phase(state) == "running"
    assert m.wake_at(state) == TTL_S
    state, commands = m.step(state, ev.Fetched(20.0))
    assert (state, kinds(commands)) == (m.Running(20.0, 25.0, TTL_S), ["SendRun"])
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=True)
    _, commands = m.step(state, ev.Stop(1.0, LOSER))
    assert kinds(commands) == ["StopTransfer", "ReleaseSlot", "ReportOutcome"]


def with_chunks(m: Any, event: Any, verdict: Any = None) -> Any:
    """A running attempt to which this happened; with `verdict` it had been stopped before."""
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    if verdict is not None:
        state, _ = m.step(state, ev.Stop(0.5, verdict))
    return m.step(state, event)


def a_success_waits_for_its_chunks_without_slot_and_clock(m: Any) -> None:
    state, commands = with_chunks(m, ev.Done(1.0, upload=False, backlog="stuck"))
    assert kinds(commands) == ["ReleaseSlot", "ReportUploading"]
    assert (m.phase(state), m.wake_at(state)) == ("uploading", TTL_S)
    state, commands = m.step(state, ev.ChunkFailed(2.0, "down", retryable=True))
    assert commands == (ev.ReportDelay("down"),)
    for news in (ev.ChunkFailed(3.0, "down", retryable=True), ev.Tick(6.0), ev.LeaseLost(7.0)):
        state, commands = m.step(state, news)
        assert commands == ()
    after, commands = m.step(state, ev.ChunksUploaded(8.0))
    assert commands == (ev.ReportOutcome(ev.COMPLETED),)
    assert m.phase(after) == "reporting"
    _, commands = m.step(state, ev.Tick(TTL_S))
    assert kinds(commands) == ["StopTransfer", "ReportOutcome"]
    assert commands[1].verdict.end == "failed"
    assert commands[1].verdict.error.endswith("ttl: down")


def a_result_goes_after_the_chunks(m: Any) -> None:
    state, commands = with_chunks(m, ev.Done(1.0, upload=True, backlog="moving"))
    assert "Upload" not in kinds(commands)
    state, commands = m.step(state, ev.ChunksUploaded(2.0))
    assert (name(state), kinds(commands), m.wake_at(state)) == ("Uploading", ["Upload"], TTL_S)


def another_end_waits_a_moment_for_chunks_that_are_on_their_way(m: Any) -> None:
    stopped = {"verdict": LOSER}
    ends = [
        with_chunks(m, ev.HandlerFailed(1.0, "bad", retryable=False, backlog="moving")),
        with_chunks(m, ev.WorkerGone(1.0, "segfault", planned=False, backlog="moving")),
        with_chunks(m, ev.HandlerFailed(1.0, "cancelled", retryable=False, backlog="moving"), **stopped),
        with_chunks(m, ev.Done(1.0, upload=True, backlog="moving"), **stopped),
        with_chunks(m, ev.WorkerGone(1.0, "killed", planned=True, backlog="moving"), **stopped),
    ]
    for state, commands in ends:
        assert kinds(commands) == ["ReleaseSlot", "ReportReleased"]
        assert m.wake_at(state) == 1.0 + m.FLUSH_S
        verdict = state.verdict
        for last in (ev.ChunkFailed(1.5, "down", retryable=True), ev.Tick(1.0 + m.FLUSH_S)):
            assert m.step(state, last)[1] == (ev.StopTransfer(), ev.ReportOutcome(verdict))
        assert m.step(state, ev.ChunksUploaded(1.5))[1] == (ev.ReportOutcome(verdict),)
        shutdown = ev.Stop(1.5, ev.Verdict("lost", "shutdown", given_back=True))
        assert m.step(state, shutdown)[1][-1] == ev.ReportOutcome(verdict)


def one_that_yields_waits_for_its_save(m: Any) -> None:
    state, commands = with_chunks(m, ev.Yielded(1.0, "the node leaves", backlog="stuck"))
    verdict = ev.Verdict("yielded", "the node leaves", retryable=True)
    assert (name(state), state.verdict, m.wake_at(state)) == ("Flushing", verdict, TTL_S)
    state, commands = m.step(state, ev.ChunkFailed(9.0, "down", retryable=True))
    assert (name(state), kinds(commands)) == ("Flushing", ["ReportDelay"])
    assert m.step(state, ev.ChunksUploaded(99.0))[1] == (ev.ReportOutcome(verdict),)
    shutdown = ev.Stop(99.0, ev.Verdict("lost", "shutdown", given_back=True))
    assert m.step(state, shutdown)[1][-1] == ev.ReportOutcome(verdict)


def a_request_to_yield_reaches_the_handler_and_hands_back_what_has_not_begun(m: Any) -> None:
    ask = ev.AskedToYield(1.0, "the node leaves")
    running, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    assert m.step(running, ask) == (running, (ev.SendYield("the node leaves"),))
    back = ev.Verdict("lost", "the node leaves", retryable=True, given_back=True, at_once=True)
    fetching, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=True)
    waiting, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False, waits=True)
    for state in (fetching, waiting):
        assert m.step(state, ask)[1][-1] == ev.ReportOutcome(back)
    cancelled, _ = m.step(running, ev.Stop(2.0, LOSER))
    assert m.step(cancelled, ask) == (cancelled, ())
    assert m.step(cancelled, ev.Yielded(3.0, ""))[1][-1] == ev.ReportOutcome(LOSER)


def no_end_but_success_waits_for_a_store_that_is_down(m: Any) -> None:
    state, commands = with_chunks(m, ev.HandlerFailed(1.0, "bad", retryable=False, backlog="stuck"))
    assert (name(state), kinds(commands)) == ("Reporting", ["ReleaseSlot", "ReportOutcome"])
    state, commands = with_chunks(m, ev.WorkerGone(1.0, "killed", planned=True, backlog="moving"))
    assert name(state) == "Reporting", "handed back: it runs again from its start"


def a_chunk_that_never_arrives_fails_the_attempt(m: Any) -> None:
    state, commands = with_chunks(m, ev.ChunkFailed(1.0, "no such bucket", retryable=False))
    assert kinds(commands) == ["SendCancel"]
    assert state.verdict == ev.Verdict("failed", "no such bucket")
    state, _ = with_chunks(m, ev.Done(1.0, upload=False, backlog="moving"))
    _, commands = m.step(state, ev.ChunkFailed(1.0, "no such bucket", retryable=False))
    assert commands[-1] == ev.ReportOutcome(ev.Verdict("failed", "no such bucket"))


def a_cancel_ends_the_waiting_for_chunks(m: Any) -> None:
    state, _ = with_chunks(m, ev.Done(1.0, upload=True, backlog="stuck"))
    _, commands = m.step(state, ev.Stop(2.0, LOSER))
    assert commands == (ev.StopTransfer(), ev.ReportOutcome(LOSER))
    _, commands = m.step(state, ev.Dropped(2.0))
    assert kinds(commands) == ["StopTransfer", "Forget", "ReportReleased"]


def waiting(m: Any, *events: Any, fetch: bool = False) -> Any:
    state, commands = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=fetch, waits=True)
    assert (commands, m.phase(state), m.wake_at(state)) == ((), "waiting", TTL_S)
    for event in events:
        state, commands = m.step(state, event)
    return state, commands


def one_that_waits_begins_with_its_turn(m: Any) -> None:
    """Its time counts from then, wherever its run lay."""
    running = m.Running(20.0, 25.0, TTL_S)
    assert waiting(m, ev.Next(20.0)) == (running, (ev.SendRun(),))
    assert waiting(m, ev.RoomAhead(1.0))[1] == (ev.SendAhead(),)
    assert waiting(m, ev.RoomAhead(1.0), ev.Next(20.0)) == (running, (ev.Begin(),))
    assert waiting(m, ev.RoomAhead(1.0), ev.Withdrawn(2.0), ev.Next(20.0)) == (running, (ev.SendRun(),))
    assert waiting(m, ev.Next(20.0), fetch=True) == (m.Fetching(TTL_S, TIMEOUT_S), (ev.Fetch(),))
    assert waiting(m, ev.RoomAhead(1.0), fetch=True)[1] == (), "its input is not there"


def one_that_waits_ends_without_a_ladder(m: Any) -> None:
    late = ev.Tick(TTL_S)
    for end in (ev.Stop(1.0, LOSER), ev.HandBack(1.0, "long"), ev.LeaseLost(1.0), late):
        _, commands = waiting(m, end)
        assert kinds(commands) == ["ReleaseSlot", "ReportOutcome"]
        state, commands = waiting(m, ev.RoomAhead(0.5), end)
        assert kinds(commands) == ["Withdraw"], "it may be running"
        assert m.step(state, ev.Withdrawn(end.at))[1] == waiting(m, end)[1]
    assert waiting(m, late)[1][1].verdict.end == "timed_out"
    assert waiting(m, ev.Stop(1.0, LOSER))[1][1].verdict == LOSER
    assert kinds(waiting(m, ev.Dropped(1.0))[1]) == ["ReleaseSlot", "Forget", "ReportReleased"]


def what_is_handed_back_is_given_out_at_once_and_never_counted(m: Any) -> None:
    for end in (
        ev.HandBack(1.0, "long"),
        ev.WorkerGone(1.0, "segfault", planned=False),
        ev.WorkerGone(1.0, "drained", planned=True),
    ):
        verdict = waiting(m, end)[1][1].verdict
        assert (verdict.given_back, verdict.at_once) == (True, True)
    assert waiting(m, ev.LeaseLost(1.0))[1][1].verdict.given_back


def what_its_worker_has_begun_ends_as_any_that_runs(m: Any) -> None:
    """It is not known before the end of the one before it."""
    state, _ = waiting(m, ev.RoomAhead(0.5), ev.HandBack(1.0, "long"))
    assert m.step(state, ev.Next(1.1)) == (m.Running(1.1, 6.1, TTL_S), (ev.Begin(),))
    state, commands = waiting(m, ev.RoomAhead(0.5), ev.HandBack(1.0, "long"), ev.Stop(1.0, LOSER))
    assert kinds(commands) == ["Withdraw"]
    for later in (ev.HandBack(1.05, "long"), ev.Tick(TTL_S), ev.LeaseLost(1.05)):
        assert m.step(state, later) == (state, ()), "the first end wins"
    state, commands = m.step(state, ev.Next(1.1))
    assert (state, kinds(commands)) == (m.Cancelling(3.1, LOSER), ["Begin", "SendCancel"])


def what_comes_back_from_its_worker_after_all_is_sent_again_or_over(m: Any) -> None:
    state, _ = waiting(m, ev.RoomAhead(0.5), ev.Next(1.0))
    assert m.step(state, ev.Withdrawn(1.1)) == (state, (ev.SendRun(),))
    state, _ = m.step(state, ev.Stop(1.1, LOSER))
    assert kinds(m.step(state, ev.Withdrawn(1.2))[1]) == ["ReleaseSlot", "ReportOutcome"]


def an_outcome_is_kept_until_it_is_acknowledged(m: Any) -> None:
    state, _ = m.begin(0.0, TIMEOUT_S, TTL_S, fetch=False)
    state, commands = m.step(state, ev.HandlerFailed(1.0, "bad", retryable=True))
    assert commands[-1].verdict == ev.Verdict("failed", "bad", retryable=True)
    assert m.phase(state) == "reporting"
    for late in (ev.Stop(2.0, LOSER), ev.Tick(1e9), ev.WorkerGone(2.0, "x", planned=False)):
        assert m.step(state, late) == (state, ())
    state, commands = m.step(state, ev.Acked(3.0))
    assert commands == (ev.Forget(),)
    assert m.phase(state) is None


RANDOM = [lambda machine: by_random_walks(machine, 60)]

MUTANTS = [
    (
        "the second pays for the first",
        "return _end_waiting(HandBack(event.at, why))",
        'return _end_waiting(Stop(event.at, Verdict("lost", why, retryable=True)))',
    ),
    (
        "its clock starts at its arrival",
        "Running(at, at + state.timeout_s, state.ttl_at)\n    if not",
        "Running(0.0, state.timeout_s, state.ttl_at)\n    if not",
    ),
    (
        "what lies in the socket is forgotten",
        "    if not state.sent:\n        return _end_waiting",
        "    if True:\n        return _end_waiting",
    ),
    (
        "a cancel comes too late",
        "stopping, commands = _running(",
        "stopping, commands = running, ()\n    _running(",
    ),
    (
        "it is sent twice",
        "    if not state.sent:\n        return running",
        "    if True:\n        return running",
    ),
    (
        "it is sent before its input is here",
        "RoomAhead() if not (state.sent or state.fetch)",
        "RoomAhead() if not state.sent",
    ),
    (
        "nothing begins what came back",
        "return state, (SendRun(),)\n        case Running():",
        "return state, ()\n        case Running():",
    ),
    (
        "an end waits for what is withdrawn",
        "case Cancelling(), Withdrawn(at):",
        "case Cancelling(), Fetched(at):",
    ),
    ("why it is delayed is never told", "return () if error == before else", "return () if error else"),
    ("waiting is its time", "at + state.deadline - state.started", "state.deadline"),
    ("a timeout that never fires", "at >= min(state.deadline, state.ttl_at)", "at >= state.ttl_at"),
    ("ttl does not stop the work", "return min(deadline, ttl_at)", "return deadline"),
    ("no signal follows the cancel", "(TerminateWorker(why),)", "()"),
    (
        "the last end wins",
        "HandlerFailed(at, backlog=backlog)):\n            return _leave(at, state.verdict, backlog)",
        "HandlerFailed(at, backlog=backlog)):\n            return _leave(at, COMPLETED, backlog)",
    ),
    ("an answer ends it after SIGTERM", "case Cancelling(), (Done(at", "case _, (Done(at"),
    (
        "the lease stops uploads",
        "        case Stop(_, verdict):\n            return _end_upload(verdict)",
        "        case LeaseLost():\n            return _end_upload(_LEASE)\n"
        "        case Stop(_, verdict):\n            return _end_upload(verdict)",
    ),
    (
        "the result overtakes the chunks",
        "COMPLETED, upload), (ReleaseSlot(), ReportUploading())\n",
        "COMPLETED, upload), (ReleaseSlot(), ReportUploading(), Upload())\n",
    ),
    (
        "what yields leaves its save behind",
        "case Yielded(_, why, backlog) if backlog:",
        "case Yielded(_, why, _) if not why:",
    ),
    ("the handler never hears of it", "return state, (SendYield(why),)", "return state, ()"),
    ("a store that is down loses the save", "retryable=True) if waits:", "retryable=True) if completed:"),
    ("chunks hold a verdict back for ever", "Flushing(at + FLUSH_S, verdict)", "Flushing(1e9, verdict)"),
    ("a store that is down holds a verdict back", 'if backlog == "moving" and not', "if backlog and not"),
    ("what is handed back is told first", " and not verdict.given_back", ""),
    (
        "chunks hold the slot",
        "Flushing(at + FLUSH_S, verdict), (ReleaseSlot(), ReportReleased())",
        "Flushing(at + FLUSH_S, verdict), (ReleaseSlot(),)",
    ),
    (
        "a success forgets what waits",
        "case Done(_, upload, backlog) if backlog:",
        'case Done(_, upload, backlog) if "":',
    ),
    (
        "the first failure of the store ends a success",
        "case ChunkFailed(_, error, retryable=True) if waits:",
        "case ChunkFailed(_, error, retryable=True) if not waits:",
    ),
    (
        "the result is not uploaded after chunks",
        "case ChunksUploaded() if state.upload:",
        'case ChunksUploaded() if "":',
    ),
    (
        "chunks that are refused are forgotten",
        "case ChunkFailed(at, error, retryable=False):",
        "case ChunkFailed(at, error, retryable=None):",
    ),
    (
        "a shutdown takes a verdict back",
        "_end_upload(verdict if completed else state.verdict)",
        "_end_upload(verdict)",
    ),
    ("a neighbour's kill counts", "given_back=planned", "given_back=False"),
    ("dropped is reported", "return replace(state, verdict=None), ()", "return state, ()"),
    ("uploads are hammered", "2.0 ** min(failures, 16)", "1"),
    (
        "the slot is released before its reports are dropped",
        "(Forget(reports=True), ReportReleased())",
        "(ReportReleased(), Forget(reports=True))",
    ),
    (
        "fetching counts as executing",
        "return Running(at, at + state.timeout_s, state.ttl_at)",
        "return Running(at, state.timeout_s, state.ttl_at)",
    ),
    (
        "an ack is not waited for",
        "return Reporting(verdict), (ReleaseSlot(), ReportOutcome(verdict))",
        "return Over(), (ReleaseSlot(), ReportOutcome(verdict), Forget())",
    ),
    (
        "a cancel needs no patience",
        "return Cancelling(at + cancel_s, verdict)",
        "return Cancelling(at, verdict)",
    ),
]
