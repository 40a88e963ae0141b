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


@pytest.mark.parametrize("in_order", [False, True])
async def test_attempts_that_were_late_are_not_drawn_over_newer_ones(told: list[str], in_order: bool) -> None:
    answers: list[asyncio.Future[None]] = []

    async def attempts(*_: object) -> None:
        if told:
            answers.append(asyncio.get_running_loop().create_future())
            await answers[-1]

    view = await drawn_view(attempts=attempts)
    older = asyncio.create_task(view._show())
    await asyncio.sleep(0)
    view._record = DONE
    newer = asyncio.create_task(view._show())
    await asyncio.sleep(0)
    for call, answer in list(zip((older, newer), answers, strict=True))[:: 1 if in_order else -1]:
        answer.set_result(None)
        await call
    assert told == ["IN_PROGRESS", "COMPLETED", "COMPLETED"][: 3 if in_order else 2]


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
