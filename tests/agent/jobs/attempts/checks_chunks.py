"""What must hold of the chunks of a stream on their way. Each check takes the module, as for mutants."""

from __future__ import annotations

from random import Random
from typing import Any

MB = 1_000_000
SMALL, LARGE = 10, 3 * MB


def kinds(commands: Any) -> list[str]:
    return [type(command).__name__ for command in commands]


def numbers(commands: Any, kind: str) -> list[int]:
    found = [command for command in commands if type(command).__name__ == kind]
    return [command.n if kind in ("Taken", "DropSave") else command.chunk.n for command in found]


def produce(m: Any, state: Any, n: int, size: int, *, save: bool = False) -> Any:
    return m.step(state, m.Produced(0.0, m.QueuedChunk(n, size, size > MB, save)))


def filled(m: Any, *sizes: int) -> Any:
    state = m.ChunkQueue()
    for n, size in enumerate(sizes):
        state, _ = produce(m, state, n, size)
    return state


def walk(machine: Any, draw: Any, steps: int = 60) -> None:
    """One stream, with what its two ends see: told is a prefix of what was produced, in its order, without
    saves that newer ones replaced."""
    state = machine.ChunkQueue()
    produced: list[Any] = []
    reported: list[int] = []
    dropped: list[int] = []
    untaken: set[int] = set()
    moving: int | None = None
    at, ended = 0.0, False
    for _ in range(steps):
        at += draw([0.0, 0.1, 1.0])
        wake = machine.wake_at(state)
        choices = ["produce"] * 3 if not untaken and not ended else ["wait"]
        choices += ["moved", "moved", "down"] if moving is not None else []
        choices += ["tick"] * 3 if wake is not None else []
        choices += ["never"] if moving is not None and draw(range(20)) == 0 else []
        what = draw(choices)
        event: Any
        match what:
            case "produce":
                size = draw([SMALL, 900_000, LARGE, 20 * MB])
                save = draw([True, False])
                event = machine.Produced(at, machine.QueuedChunk(len(produced), size, size > MB, save))
                produced.append(event.chunk)
                untaken |= {event.chunk.n} if size > MB else set()
            case "moved":
                event, moving = machine.Uploaded(at), None
            case "down" | "never":
                event, moving = machine.UploadFailed(at, what == "down"), None
                ended |= what == "never"
            case _:
                at = max(at, wake) if what == "tick" and wake is not None else at
                event = machine.Tick(at)
        state, commands = machine.step(state, event)
        reported += numbers(commands, "ReportChunk")
        dropped += numbers(commands, "DropSave")
        for n in numbers(commands, "Upload"):
            assert moving is None, "one at a time"
            moving = n
        untaken -= set(numbers(commands, "Taken"))
        check(state, machine, produced, reported, untaken, moving)
        check_saves(state, produced, reported, dropped)


def check_saves(state: Any, produced: Any, reported: Any, dropped: Any) -> None:
    """Only a save is dropped, and only for a newer one that waits or was reported."""
    assert all(produced[n].save for n in dropped)
    assert sum(one.save for one in state.waiting[1:]) <= 1
    newest = max((one.n for one in state.waiting if one.save), default=-1)
    newest = max([newest, *(n for n in reported if produced[n].save)])
    assert all(n < newest for n in dropped) or not state.waiting
    known = {*reported, *dropped, *(one.n for one in state.waiting)}
    assert known == set(range(len(produced))) or not state.waiting


def check(state: Any, machine: Any, produced: Any, reported: Any, untaken: Any, moving: Any) -> None:
    waiting = [chunk.n for chunk in state.waiting]
    both = [*reported, *waiting]
    assert both == sorted(set(both)), "in their order, and none twice"
    assert set(state.untaken) == untaken
    held = sum(chunk.size for chunk in state.waiting)
    assert untaken or held <= machine.HOLD_MAX or machine.is_full(state) or held <= 2 * machine.HOLD_MAX
    if waiting:
        assert state.waiting[0].large, "a small one waits for nothing but a large one"
        assert (moving == waiting[0]) != (machine.wake_at(state) is not None), "it moves, or will"
    else:
        assert not untaken
        assert machine.wake_at(state) is None
        assert machine.backlog(state) == ""


def by_random_walks(machine: Any, lives: int = 200) -> None:
    for seed in range(lives):
        walk(machine, Random(seed).choice)


# ---- one named example for each hazard


def small_ones_pass_at_once(m: Any) -> None:
    state, commands = produce(m, m.ChunkQueue(), 0, SMALL)
    assert (state, kinds(commands)) == (m.ChunkQueue(), ["ReportChunk"])


def a_small_one_does_not_overtake_a_large_one(m: Any) -> None:
    state, commands = produce(m, m.ChunkQueue(), 0, LARGE)
    assert kinds(commands) == ["Upload", "Taken"]
    for n, size in ((1, SMALL), (2, SMALL), (3, LARGE), (4, SMALL)):
        state, commands = produce(m, state, n, size)
        assert numbers(commands, "ReportChunk") == numbers(commands, "Upload") == []
    state, commands = m.step(state, m.Uploaded(1.0))
    assert numbers(commands, "ReportChunk") == [0, 1, 2]
    assert numbers(commands, "Upload") == [3]
    state, commands = m.step(state, m.Uploaded(2.0))
    assert numbers(commands, "ReportChunk") == [3, 4]
    assert state == m.ChunkQueue()


def a_store_that_is_down_is_tried_less_and_less_often(m: Any) -> None:
    state, _ = produce(m, m.ChunkQueue(), 0, LARGE)
    assert m.backlog(state) == "moving"
    at, waits = 0.0, []
    for _ in range(8):
        state, commands = m.step(state, m.UploadFailed(at, True))
        assert commands == ()
        assert m.backlog(state) == "stuck"
        assert m.step(state, m.Tick(at)) == (state, ())
        waits.append(m.wake_at(state) - at)
        at = m.wake_at(state)
        state, commands = m.step(state, m.Tick(at))
        assert numbers(commands, "Upload") == [0]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    state, _ = produce(m, state, 1, LARGE)
    state, _ = m.step(state, m.Uploaded(at))
    assert m.backlog(state) == "moving", "the store is back: what failed before counts no more"


def a_sender_of_large_ones_waits_while_too_much_is_held(m: Any) -> None:
    state, took = m.ChunkQueue(), []
    for n in range(3):
        state, commands = produce(m, state, n, LARGE)
        took += numbers(commands, "Taken")
    assert took == [0, 1]
    state, commands = m.step(state, m.Uploaded(1.0))
    assert numbers(commands, "Taken") == [2]


def nobody_waits_for_what_is_not_wanted(m: Any) -> None:
    state = filled(m, LARGE, LARGE, LARGE)
    assert numbers(m.step(state, m.VerdictFixed(1.0))[1], "Taken") == [2]
    for end in (m.Abandon(1.0), m.UploadFailed(1.0, False)):
        after, commands = m.step(state, end)
        assert numbers(commands, "Taken") == [2]
        assert after == m.ChunkQueue()
        assert m.step(after, m.Uploaded(2.0)) == (after, ())
    # what was produced before the end of the attempt is still on its way
    assert m.step(state, m.VerdictFixed(1.0))[0].waiting == state.waiting


def small_ones_that_wait_have_a_bound_too(m: Any) -> None:
    state = filled(m, LARGE, *[900_000] * 8)
    assert not m.is_full(state)
    state, _ = produce(m, state, 9, 900_000)
    assert m.is_full(state)
    # large ones are held back by their own `took`: not reading the worker would hide its `done`
    assert not m.is_full(filled(m, 60 * MB))


def a_save_takes_the_place_of_those_that_wait_behind_the_first(m: Any) -> None:
    state, _ = produce(m, m.ChunkQueue(), 0, LARGE, save=True)
    for n in range(1, 9, 2):
        state, _ = produce(m, state, n, SMALL)
        state, commands = produce(m, state, n + 1, LARGE, save=True)
        assert numbers(commands, "DropSave") == ([n - 1] if n > 1 else [])
    state, commands = m.step(state, m.Uploaded(1.0))
    assert (numbers(commands, "ReportChunk"), numbers(commands, "Upload")) == ([0, 1, 3, 5, 7], [8])
    state, commands = m.step(state, m.Uploaded(2.0))
    assert (numbers(commands, "ReportChunk"), state) == ([8], m.ChunkQueue())


def a_small_save_replaces_one_too(m: Any) -> None:
    state = filled(m, LARGE)
    state, _ = produce(m, state, 1, LARGE, save=True)
    state, commands = produce(m, state, 2, SMALL, save=True)
    assert numbers(commands, "DropSave") == [1]
    assert [one.n for one in state.waiting] == [0, 2]


RANDOM = [lambda machine: by_random_walks(machine, 60)]

MUTANTS = [
    (
        "small ones overtake",
        "    if state.waiting:\n        return after, tuple(DropSave(one.n) for one in older)\n",
        "",
    ),
    ("all are told at once", "and not state.waiting[end].large", ""),
    ("one small one is left behind", "end = 1\n", "end = 0\n"),
    ("the next one is not moved", "for chunk in rest[:1]", "for chunk in rest[:0]"),
    ("all are moved at once", "for chunk in rest[:1]", "for chunk in rest"),
    (
        "it is not tried again",
        "failures=state.failures + 1, retry_at=at + wait",
        "failures=state.failures + 1",
    ),
    ("it is tried at once", "retry_at=at + wait", "retry_at=at"),
    ("it is tried without end", "return replace(state, retry_at=None), (Upload", "return state, (Upload"),
    ("senders never wait", " or sum(chunk.size for chunk in state.waiting) > HOLD_MAX", ""),
    (
        "senders wait for ever",
        "case VerdictFixed():\n            return _all_taken(state, ())",
        "case VerdictFixed():\n            return state, ()",
    ),
    ("an end drops its senders", "ChunkQueue(untaken=state.untaken), ()", "ChunkQueue(), ()"),
    ("a failure is never forgotten", "ChunkQueue(rest, state.untaken)", "replace(state, waiting=rest)"),
    ("every chunk is dropped for a save", "if one.save and chunk.save]", "if chunk.save]"),
    ("a chunk drops saves", "if one.save and chunk.save]", "if one.save]"),
    (
        "the one that moves is dropped, too",
        "for one in state.waiting[1:] if one.save",
        "for one in state.waiting if one.save",
    ),
    ("the shell keeps what was dropped", "tuple(DropSave(one.n) for one in older)", "()"),
    ("large ones stop the worker", "in state.waiting if not chunk.large)", "in state.waiting)"),
]
