"""Descriptors that jobs keep open: the worker is replaced while enough are left for whoever comes next."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.worker.between_jobs.open_files import OpenFiles

KEEPS = "leaving_behind/keeps_descriptors.py:handler"
LIMIT = 256


@pytest.fixture
def few() -> Iterator[None]:
    """A limit of open files that is passed on to workers."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def keep(agent: Any, job: str, **given: Any) -> None:
    agent.run(json.dumps(given).encode(), job=job)


def test_a_worker_whose_jobs_keep_descriptors_is_replaced_before_none_is_left(
    few: None, start_worker: Any
) -> None:
    agent, ends, kinds = start_worker(KEEPS), [], list[str]()
    agent.setup()
    while "retire" not in kinds:
        keep(agent, f"j{len(ends)}", keep=20)
        kinds = [frame.kind for frame in agent.until_end()]
        ends.append(kinds[-1])
    assert set(ends) == {"done"}, "no job found too few"
    assert 2 < len(ends) < LIMIT // 20


def test_the_reason_names_how_many_are_open(few: None, start_worker: Any) -> None:
    agent = start_worker(KEEPS)
    agent.setup()
    keep(agent, "few", keep=10)
    assert [frame.kind for frame in agent.until_end()] == ["done"]
    keep(agent, "many", keep=200)
    retired, done = agent.until_end()
    assert (retired.kind, done.kind) == ("retire", "done")
    assert str(retired.fields["reason"]).startswith("jobs keep descriptors open: 2")


def test_a_worker_that_is_never_idle_is_replaced_too(few: None, start_worker: Any) -> None:
    agent = start_worker(KEEPS)
    agent.setup(concurrency=2)
    keep(agent, "long", wait=True)
    keep(agent, "many", keep=200)
    assert {agent.next().kind, agent.next().kind} == {"done", "retire"}
    keep(agent, "last", free=True)
    assert {frame.job for frame in (agent.next(), agent.next()) if frame.kind == "done"} <= {"long", "last"}


def test_without_a_single_one_left_it_is_found_too(few: None) -> None:
    open_files, held = OpenFiles(), list[int]()
    assert open_files.excess() == ""
    try:
        with pytest.raises(OSError, match="Too many open files"):
            held.extend(iter(lambda: os.open(os.devnull, os.O_RDONLY), -1))
        assert "jobs keep descriptors open" in open_files.excess()
    finally:
        for fd in held:
            os.close(fd)
    assert open_files.excess() == ""
