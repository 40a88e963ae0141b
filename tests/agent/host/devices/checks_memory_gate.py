"""What must hold of the memory gate. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from random import Random
from typing import Any

GIB = 1 << 30


def opened(m: Any, baseline: int | None = GIB) -> Any:
    return m.measured(m.MemoryGate(), 0.0, baseline)


def it_opens_with_the_first_measure(m: Any) -> None:
    assert not m.MemoryGate().open
    assert opened(m).open
    assert opened(m, None).open


def it_closes_until_the_memory_is_back(m: Any) -> None:
    gate = m.left(opened(m), 5.0)
    assert not gate.open
    gate = m.measured(gate, 5.1, 40 * GIB)
    assert (gate.open, gate.problem) == (False, "")
    assert m.measured(gate, 5.2, GIB).open


def the_drivers_own_few_mebibytes_do_not_count(m: Any) -> None:
    assert m.measured(m.left(opened(m), 5.0), 5.1, GIB + (200 << 20)).open
    assert not m.measured(m.left(opened(m), 5.0), 5.1, GIB + (300 << 20)).open


def it_says_what_is_missing_after_ten_seconds_and_recovers(m: Any) -> None:
    gate = m.left(opened(m), 5.0)
    assert m.measured(gate, 14.9, 13.3 * GIB).problem == ""
    gate = m.measured(gate, 15.0, 13.3 * GIB)
    assert gate.problem == "12.3 GiB still in use after its worker ended"
    gate = m.measured(gate, 16.0, 3 * GIB)
    assert gate.problem == "2.0 GiB still in use after its worker ended"
    gate = m.measured(gate, 99.0, GIB)
    assert (gate.open, gate.problem) == (True, "")


def a_silent_driver_opens_nothing_that_it_has_closed(m: Any) -> None:
    gate = m.measured(m.left(opened(m), 5.0), 6.0, None)
    assert not gate.open
    assert "not known" in m.measured(gate, 15.0, None).problem


def where_memory_is_never_reported_nothing_is_closed(m: Any) -> None:
    assert m.left(opened(m, None), 5.0).open


def the_baseline_follows_what_others_hold_while_nothing_of_ours_is_there(m: Any) -> None:
    gate = m.measured(m.measured(opened(m), 1.0, 9 * GIB), 2.0, None)
    assert m.measured(m.left(gate, 5.0), 5.1, 9 * GIB).open
    assert not m.measured(m.left(m.measured(gate, 3.0, GIB), 5.0), 5.1, 9 * GIB).open


def what_a_kill_left_never_becomes_the_baseline(m: Any) -> None:
    gate = m.left(opened(m), 5.0)
    for at in range(6, 60):
        gate = m.measured(gate, float(at), 40 * GIB)
        assert not gate.open
    assert m.measured(gate, 60.0, GIB).baseline == GIB


def a_worker_is_held_to_its_level(m: Any) -> None:
    level = m.settled(m.Level(), 20 * GIB)
    assert m.above(level, 20 * GIB) == ""
    assert m.above(level, 20 * GIB + GIB // 2) == ""
    assert m.above(level, 23 * GIB) == "a stopped job left 3.0 GiB of device memory in use"
    assert m.above(level, GIB) == ""


def what_is_not_known_holds_nobody(m: Any) -> None:
    assert m.above(m.Level(), 80 * GIB) == ""
    assert m.above(m.settled(m.Level(), 1), None) == ""
    assert m.settled(m.settled(m.Level(), 7), None).used_bytes == 7


def completed_jobs_raise_the_level_and_stopped_ones_never(m: Any) -> None:
    level = m.settled(m.settled(m.Level(), 20 * GIB), 30 * GIB)
    assert m.above(level, 30 * GIB) == ""
    stopped = m.settled(m.Level(level.used_bytes, stopped=True), 70 * GIB)
    assert m.above(stopped, 70 * GIB)


def by_random_lives(m: Any, lives: int = 200) -> None:
    for seed in range(lives):
        walk(m, Random(seed).choice)


def walk(m: Any, draw: Any) -> None:
    """After a process left, it is open again exactly when a measure was near the last one before it began."""
    gate, at, base, closed = opened(m), 0.0, GIB, False
    for _ in range(30):
        at += draw([0.01, 1.0, 11.0])
        if draw([True, False, False]):
            gate, closed, since = m.left(gate, at), True, at
        else:
            used_bytes = draw([GIB, GIB + (100 << 20), 5 * GIB, None])
            gate = m.measured(gate, at, used_bytes)
            if not closed:
                base = base if used_bytes is None else used_bytes
            elif used_bytes is not None and used_bytes <= base + (256 << 20):
                closed = False
            elif at - since >= 10:
                assert gate.problem
        assert gate.open == (not closed)
        assert not (gate.open and gate.problem)


RANDOM = [lambda m: by_random_lives(m, 40)]

MUTANTS = [
    ("open before anything is known", "return self.known and self.since", "return self.since"),
    ("no tolerance", "BASELINE_TOLERANCE = 256 * MIB", "BASELINE_TOLERANCE = 0"),
    ("a whole context passes", "BASELINE_TOLERANCE = 256 * MIB", "BASELINE_TOLERANCE = 512 * MIB"),
    ("never late", "at - gate.since >= RETURN_S", "False"),
    ("late at once", "at - gate.since >= RETURN_S", "True"),
    (
        "late forever",
        "    if used_bytes is not None and used_bytes <= gate.baseline +",
        "    if not gate.late and used_bytes and used_bytes <= gate.baseline +",
    ),
    (
        "an unknown measure opens",
        "if used_bytes is not None and used_bytes <= gate.baseline",
        "if used_bytes is None or used_bytes <= gate.baseline",
    ),
    (
        "what is left becomes the baseline",
        "return MemoryGate(known=True, baseline=gate.baseline)",
        "return MemoryGate(known=True, baseline=used_bytes)",
    ),
    (
        "the baseline is the first forever",
        "gate.baseline if used_bytes is None else used_bytes",
        "gate.baseline or used_bytes",
    ),
    ("hosts that tell nothing are closed", "if gate.known and gate.baseline is None:", "if False:"),
    ("a level that stopped jobs raise", "if level.stopped or used_bytes is None:", "if used_bytes is None:"),
    ("no level", "used_bytes <= level.used_bytes + LEVEL_TOLERANCE", "True"),
]
