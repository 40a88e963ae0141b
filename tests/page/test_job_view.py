"""The page of one job: what it draws while records, attempts and events come in any order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from stoker.client import Event, JobRecord
from stoker.page.views import frame, jobs
from stoker.page.views.jobs import JobView

RUNS, DONE = JobRecord("j", "IN_PROGRESS"), JobRecord("j", "COMPLETED", output={"text": "done"})


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The status of the record of each timeline that is drawn, in order."""
    drawn: list[str] = []

    def timeline(record: JobRecord, *_: object) -> tuple[()]:
        drawn.append(record.status)
        return ()

    for name in ("ui", "heading", "keep_live", "show_text", "show_output"):
        monkeypatch.setattr(jobs, name, MagicMock())
    monkeypatch.setattr(frame, "ui", MagicMock())
    monkeypatch.setattr(jobs, "timeline", timeline)
    return drawn


async def drawn_view(**calls: Any) -> JobView:
    client = Mock(**{"attempts": AsyncMock(), "job_input": AsyncMock(return_value={}), **calls})
    view = JobView(Mock(client=client), "echo", RUNS)
    await view.draw()
    return view


async def test_a_timeline_that_was_late_shows_the_newest_record(told: list[str]) -> None:
    late, begun = asyncio.Event(), asyncio.Event()

    async def attempts(*_: object) -> None:
        if len(told) == 1 and not begun.is_set():
            begun.set()
            await late.wait()

    view = await drawn_view(attempts=attempts)
    first = asyncio.create_task(view._show())
    await begun.wait()
    view._record = DONE
    await view._show()
    late.set()
    await first
    assert told == ["IN_PROGRESS", "COMPLETED", "COMPLETED"]


async def test_a_record_that_was_read_before_the_end_does_not_undo_it(told: list[str]) -> None:
    async def status(*_: object) -> JobRecord:
        view._record = DONE  # the event of the end comes meanwhile
        return JobRecord("j", "IN_PROGRESS", reason="the bucket refuses")

    view = await drawn_view(status=status)
    await view._look()
    assert (view._record, told) == (DONE, ["IN_PROGRESS"])


async def test_progress_asks_for_no_attempts(told: list[str]) -> None:
    """Only what changes a timeline draws it anew: the first chunk of each attempt, and the end."""

    async def events(*_: object) -> AsyncGenerator[Event, None]:
        for kind in ("progress", "chunk", "progress", "progress", "chunk", "reset", "chunk", "progress"):
            yield Event(kind, "", {"output": 1})
        yield Event("end", "", {"id": "j", "status": "COMPLETED"})

    view = await drawn_view(events=events)
    await view._follow()
    assert told == [*["IN_PROGRESS"] * 3, "COMPLETED"]
