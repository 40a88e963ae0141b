"""Crash loops are reported once, with the reason, and again after one was ready."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from stoker.cli.up.crash_loops import CrashLoops


def report(state: str, endpoint: str = "caption", version: int = 1, **more: Any) -> dict[str, Any]:
    fields = {
        "worker": "w-1",
        "reason": "crash loop: No module named 'PIL' (exit status 1)",
        "log": ["one", "two"],
    }
    return {"endpoint": endpoint, "version": version, "state": state, **fields, **more}


def test_it_is_reported_once_with_its_reason_and_its_last_lines() -> None:
    loops = CrashLoops()
    notice = loops.update(report("unhealthy"))
    assert notice is not None
    assert notice.text == (
        "worker w-1 of endpoint caption keeps ending: No module named 'PIL' (exit status 1);"
        " it is tried again"
    )
    assert notice.log == "one\ntwo\nNo module named 'PIL' (exit status 1)\n"
    assert loops.update(report("unhealthy", worker="w-2")) is None


def test_a_worker_that_is_ready_is_reported_where_one_was_not() -> None:
    loops = CrashLoops()
    assert loops.update(report("ready")) is None
    loops.update(report("unhealthy"))
    notice = loops.update(report("ready"))
    assert notice is not None
    assert (notice.text, notice.log) == ("endpoint caption has a worker that is ready", None)
    assert loops.update(report("unhealthy")) is not None, "it is news again"


@given(
    st.lists(
        st.tuples(st.sampled_from(["unhealthy", "ready", "gone"]), st.sampled_from("ab"), st.integers(1, 2))
    )
)
def test_between_two_notices_of_one_version_one_was_ready(reports: list[tuple[str, str, int]]) -> None:
    loops, last = CrashLoops(), {}
    for state, endpoint, version in reports:
        notice = loops.update(report(state, endpoint, version))
        if notice is not None:
            assert last.get((endpoint, version)) != state
            last[endpoint, version] = state
        elif state == "unhealthy":
            assert last[endpoint, version] == "unhealthy"
