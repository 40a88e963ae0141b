"""What must hold of the replacement of recorded workers. Each check takes the module, so that mutants can be
put to it."""

from __future__ import annotations

from random import Random
from typing import Any

MIB = 1 << 20


def recorded(m: Any, jobs: int = 0, *looks: tuple[int | None, int | None]) -> Any:
    """After so many jobs, then looked at so often."""
    record = m.ProcessRecord()
    for _ in range(jobs):
        record = m.job_ended(record)
    for host, device in looks:
        record = m.measured(record, m.Footprint(host, device))
    return record


def after_its_jobs(m: Any) -> None:
    limits = m.RecycleLimits(jobs=3)
    assert [m.decide(limits, recorded(m, n)) is not None for n in range(5)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert m.decide(limits, recorded(m, 3)) == "it is replaced after 3 jobs (maxJobs)"
    assert m.decide(m.RecycleLimits(jobs=1), recorded(m, 1)) == "it is replaced after 1 job (maxJobs)"


def without_limits_never(m: Any) -> None:
    assert m.decide(m.RecycleLimits(), recorded(m, 10**4, (0, 0), (10**15, 10**15))) is None


def when_it_has_grown(m: Any) -> None:
    limits = m.RecycleLimits(growth_bytes=100 * MIB)
    assert m.decide(limits, recorded(m, 1, (500 * MIB, None), (600 * MIB - 1, None))) is None
    assert m.decide(limits, recorded(m, 1, (500 * MIB, None), (600 * MIB, None))) == (
        "it is replaced: its memory has grown by 100 MiB since it was ready, of 100 MiB that are allowed"
        " (maxMemoryGrowthMb)"
    )
    assert m.decide(limits, recorded(m, 1, (500 * MIB, None), (900 * MIB, None), (510 * MIB, None))) is None


def the_device_counts_from_the_first_job(m: Any) -> None:
    """What an allocator keeps of it is no leak."""
    limits = m.RecycleLimits(growth_bytes=100 * MIB)
    record = m.measured(m.ProcessRecord(), m.Footprint(None, 0))
    record = m.measured(m.job_ended(record), m.Footprint(None, 9000 * MIB))
    assert m.decide(limits, record) is None
    record = m.measured(m.job_ended(record), m.Footprint(None, 9200 * MIB))
    assert "device's memory has grown by 200 MiB since its first job" in m.decide(limits, record)


def what_is_unknown_decides_nothing(m: Any) -> None:
    limits = m.RecycleLimits(growth_bytes=1)
    for looks in ([(None, None)], [(5, None), (None, None)], [(None, 5), (None, None)]):
        assert m.decide(limits, recorded(m, 1, *looks)) is None
    late = recorded(m, 1, (None, None), (500 * MIB, None))
    assert m.decide(limits, late) is None, "what was never seen small has not been seen to grow"


def walk(m: Any, draw: Any) -> None:
    limits = m.RecycleLimits(draw([None, 1, 3]), draw([None, 100]))
    record, jobs, hosts, devices = m.ProcessRecord(), 0, [], []
    for _ in range(12):
        if draw([True, False]):
            jobs += 1
            record = m.job_ended(record)
        else:
            host, device = draw([None, 50, 100, 300]), draw([None, 50, 100, 300])
            record = m.measured(record, m.Footprint(host, device))
            hosts += [host]
            devices += [device] if jobs else []
        expected = limits.jobs is not None and jobs >= limits.jobs
        if limits.growth_bytes is not None:
            expected |= any(_grown(seen, limits.growth_bytes) for seen in (hosts, devices))
        assert (m.decide(limits, record) is not None) == expected


def _grown(seen: list[int | None], allowed: int) -> bool:
    known = [one for one in seen if one is not None]
    return bool(known) and seen[-1] is not None and seen[-1] - known[0] >= allowed


def by_random_records(m: Any, lives: int = 60) -> None:
    for seed in range(lives):
        walk(m, Random(seed).choice)


RANDOM = [by_random_records]

MUTANTS = [
    ("one job too many", "record.jobs >= limits.jobs", "record.jobs > limits.jobs"),
    ("the device counts from the start", "if device is None and record.jobs:", "if device is None:"),
    ("the base moves along", "    if host is None:\n", "    if True:\n"),
    ("unknown is nothing", "base is not None and now is not None and now - base", "(now or 0) - (base or 0)"),
    (
        "the device is not looked at",
        "record.base.device, record.now.device)",
        "record.base.host, record.now.host)",
    ),
    ("jobs do not count", "jobs=record.jobs + 1", "jobs=record.jobs"),
]
