"""A planned restart, with real processes: the listener outlives the control, the next one waits loaded, and
callers who repeat no request notice nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control.http.server.listener import listen
from tests.system.faults.impatient_callers import UNLIMITED, Counted, ImpatientCallers
from tests.system.stack import START_S, Stack, queue_endpoint, until

ENDPOINTS = queue_endpoint("echo", "outputs/echo.py"), queue_endpoint("waits", "cancelling/stuck_as_told.py")
CALLERS = 8
AROUND = 40
"""Requests that are answered before each restart, and after it."""

RESTARTS = 3


def has_answered(counted: Counted, more: int) -> None:
    wanted = counted.answered + more
    until(lambda: counted.answered >= wanted or bool(counted.failed), START_S, f"{more} more answers")


@pytest.mark.slow
@pytest.mark.parametrize("url", [None, "postgres"], indirect=True)
def test_callers_who_repeat_nothing_lose_nothing_in_planned_restarts(tmp_path: Path, url: str | None) -> None:
    stack = Stack(tmp_path, UNLIMITED, *ENDPOINTS, database=url)
    stack.executed = True
    with listen("127.0.0.1", 0) as stack.listener:
        try:
            stack.start()
            endless = stack.run("waits", {"do": "asks", "note": str(tmp_path / "note")})
            stack.first_chunk("waits", endless)
            with ImpatientCallers(stack, CALLERS, ("waits", endless)) as counted:
                for _ in range(RESTARTS):
                    has_answered(counted, AROUND)
                    stack.start_standby()
                    stack.end_control()
                    stack.standby_leads()
                    has_answered(counted, AROUND)
            assert counted.failed == []
            assert counted.waits >= RESTARTS
            print(f"the longest request took {counted.longest_s:.2f} s")
            for job, number in counted.accepted.items():
                record = stack.end_of("echo", job)
                assert (record["status"], record["output"]) == ("COMPLETED", {"n": number})
            assert stack.status("waits", endless)["status"] == "IN_PROGRESS"
            stack.http.post(f"/waits/cancel/{endless}").raise_for_status()
        finally:
            stack.stop()
