"""What must hold of a device's health. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from random import Random
from typing import Any


def after(m: Any, *seen: Any) -> Any:
    health = m.DeviceHealth()
    for one in seen:
        health = m.step(health, one)
    return health


def healthy(m: Any, *seen: Any) -> None:
    assert after(m, *seen).problem is None, seen


def unhealthy(m: Any, *seen: Any) -> Any:
    found = after(m, *seen).problem
    assert found is not None, seen
    assert found.why
    return found


def a_programs_own_fault_takes_no_device_out(m: Any) -> None:
    for number in (8, 11, 13, 31, 32, 43, 45, 68, 69, 94, 109):
        healthy(m, *[m.Xid(number)] * 5, m.Answered())
        assert number in m.APPLICATION_XIDS
    assert not m.APPLICATION_XIDS & m.FATAL_XIDS.keys()


def the_devices_own_fault_does(m: Any) -> None:
    for number in (46, 48, 54, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 158):
        found = unhealthy(m, m.Answered(), m.Xid(number))
        assert f"Xid {number}" in found.why
        assert not found.spare


def an_unknown_xid_is_left_to_the_driver(m: Any) -> None:
    healthy(m, m.Xid(154), m.Xid(63), m.Xid(9999))
    assert "reset" in unhealthy(m, m.Xid(154), m.Answered(action=1)).why


def a_fault_stays_though_the_device_answers(m: Any) -> None:
    healthy(m, m.Answered())
    for fault in (m.Xid(79), m.Lost("gone"), m.Answered(remap_failed=True), m.Answered(action=2)):
        before = unhealthy(m, fault)
        assert unhealthy(m, fault, m.Answered(), m.Answered(), m.Xid(31)) == before


def silence_is_unhealthy_from_the_third_look_and_passes(m: Any) -> None:
    healthy(m, m.Missed(), m.Missed())
    assert "busy" in unhealthy(m, m.Missed(), m.Missed(), m.Missed("busy")).why
    healthy(m, *[m.Missed()] * 9, m.Answered())
    healthy(m, m.Missed(), m.Missed(), m.Answered(), m.Missed(), m.Missed())


def what_only_wants_a_reset_is_spared(m: Any) -> None:
    assert unhealthy(m, m.Answered(remap_pending=True)).spare
    assert unhealthy(m, m.Answered(action=4)).spare
    assert not unhealthy(m, m.Answered(remap_failed=True, remap_pending=True)).spare
    healthy(m, m.Answered(remap_pending=False, remap_failed=False, action=0))
    healthy(m, m.Answered(action=3), m.Answered(action=5))


def a_worse_fault_takes_the_place_of_a_spared_one(m: Any) -> None:
    worse = unhealthy(m, m.Answered(remap_pending=True), m.Xid(79))
    assert ("79" in worse.why, worse.spare) == (True, False)
    assert unhealthy(m, m.Xid(79), m.Answered(remap_pending=True)) == worse
    assert unhealthy(m, m.Xid(79), m.Xid(48)) == worse


def errors_of_an_earlier_time_are_none_of_ours(m: Any) -> None:
    healthy(m, m.Answered(uncorrected=7), m.Answered(uncorrected=7), m.Answered(uncorrected=None))


def new_memory_errors_are_reported_by_the_second_look(m: Any) -> None:
    healthy(m, m.Answered(uncorrected=7), m.Answered(uncorrected=9))
    found = unhealthy(m, m.Answered(uncorrected=7), m.Answered(uncorrected=9), m.Answered(uncorrected=9))
    assert found.why.startswith("2 memory errors")


def a_contained_error_explains_them_whichever_comes_first(m: Any) -> None:
    few, more = m.Answered(uncorrected=7), m.Answered(uncorrected=9)
    healthy(m, few, m.Xid(94), more, more, more)
    healthy(m, few, more, m.Xid(94), more, more)
    unhealthy(m, few, m.Xid(94), more, m.Answered(uncorrected=12), m.Answered(uncorrected=12))
    unhealthy(m, few, m.Xid(94), few, more, more)


def by_random_lives(m: Any, lives: int = 200) -> None:
    for seed in range(lives):
        walk(m, Random(seed).choice)


def walk(m: Any, draw: Any) -> None:
    """Against a plain memory of what was seen: faults stay, silence passes, nothing else makes it ill."""
    health, count, misses, worst, spared = m.DeviceHealth(), 0, 0, None, None
    for _ in range(25):
        kind = draw(["answer", "answer", "miss", "application", "fatal", "lost", "pending", "count"])
        if kind == "miss":
            health, misses = m.step(health, m.Missed()), misses + 1
        elif kind == "application":
            health = m.step(health, m.Xid(draw([13, 31, 43, 45, 68])))
        elif kind in ("fatal", "lost"):
            bad = m.Lost("gone") if kind == "lost" else m.Xid(draw(sorted(m.FATAL_XIDS)))
            health, worst = m.step(health, bad), worst or bad
        else:
            misses = 0
            pending = kind == "pending"
            health, spared = m.step(health, m.Answered(count, remap_pending=pending)), spared or pending
        assert (health.problem is not None) == bool(worst or spared or misses >= 3)
        if health.problem is not None and (worst or spared):
            assert health.problem.spare == (worst is None)


RANDOM = [lambda m: by_random_lives(m, 40)]

MUTANTS = [
    ("every Xid is fatal", "case Xid(number) if number in FATAL_XIDS:", "case Xid(number):"),
    ("no Xid is fatal", "case Xid(number) if number in FATAL_XIDS:", "case Xid(number) if False:"),
    ("an answer forgives a fault", "replace(health, missed=0)", "replace(health, missed=0, fault=None)"),
    ("misses add up", "replace(health, missed=0)", "health"),
    ("one miss is enough", "SILENT_READINGS = 3", "SILENT_READINGS = 1"),
    ("silence is forever", "missed=health.missed + 1,", "missed=health.missed + 1, fault=health.problem,"),
    ("a pending reset kills", 'put broken memory away", spare=True', 'put broken memory away"'),
    ("the driver's wish is not heard", "if seen.action in _STOP_ACTIONS:", "if False:"),
    (
        "nothing is worse",
        "health.fault is None or (health.fault.spare and not found.spare)",
        "not health.fault",
    ),
    ("the last fault is told", "if worse else health", "if True else health"),
    (
        "old errors count",
        "health.explained is not None and uncorrected > health.explained",
        "uncorrected > (health.explained or 0)",
    ),
    ("one look is enough", "if not health.rose:", "if False:"),
    ("a contained error explains nothing", "or health.contained:", "or False:"),
    ("one contained error explains all", "rose=False, contained=False)", "rose=False)"),
]
