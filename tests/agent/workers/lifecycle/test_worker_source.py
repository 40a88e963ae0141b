"""A worker starts once its handler's files are on its node; why they are not is reported, and tried again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker.agent.host.storage.source_folders import SourceFolders
from stoker.agent.link.source_requests import SourceRequests
from stoker.agent.workers.lifecycle import worker_source
from stoker.agent.workers.lifecycle.reported_state import ReportedState
from stoker.agent.workers.lifecycle.worker_source import WorkerSource, moved
from stoker.wire.messages import Source, SourceAnswer, WorkerSpec, WorkerState
from stoker.wire.source_archive import SourceFile, digest, pack

FILES = (SourceFile("echo.py", b"1", executable=False),)
SPEC = WorkerSpec("w1", "echo", 1, "/srv/code/echo.py:handler", source=Source("/srv/code", digest(FILES)))


class Starting:
    """A worker's source, and what was reported and started of it."""

    def __init__(self, spec: WorkerSpec, root: Path) -> None:
        self.wake, self.started, self.said = asyncio.Event(), asyncio.Event(), list[WorkerState]()
        self.requests = SourceRequests(self.wake)
        self.source = WorkerSource(
            spec,
            SourceFolders(root),
            self.requests.fetch,
            ReportedState(spec, self.said.append),
            self.started.set,
            lambda coroutine, name: asyncio.create_task(coroutine, name=name),
        )

    async def asked(self) -> tuple[str, ...]:
        await self.wake.wait()
        self.wake.clear()
        return self.requests.take()


async def test_it_is_asked_for_in_each_session_until_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_source, "back_off", lambda tries: 0.0)
    starting = Starting(SPEC, tmp_path)
    assert not starting.source.here()
    assert not starting.source.here(), "while the first look goes on, no second begins"
    assert await starting.asked() == (digest(FILES),)
    starting.requests.reconnected()
    assert starting.requests.take() == (digest(FILES),), "the session ended before the answer"

    starting.requests.answered(SourceAnswer(digest(FILES), refusal="control cannot read it"))
    assert await starting.asked() == (digest(FILES),)
    assert [(one.state, one.reason) for one in starting.said] == [("unhealthy", "control cannot read it")]

    starting.requests.answered(SourceAnswer(digest(FILES), pack(FILES)))
    await starting.started.wait()
    assert starting.source.here()
    assert starting.source.spec.handler == f"{tmp_path}/{digest(FILES)}/echo.py:handler"
    assert [one.state for one in starting.said] == ["unhealthy", "starting"]


async def test_a_worker_that_is_not_wanted_any_more_asks_for_nothing(tmp_path: Path) -> None:
    starting = Starting(SPEC, tmp_path)
    starting.source.here()
    await starting.asked()
    starting.source.release()
    starting.source.release()
    await asyncio.sleep(0)
    starting.requests.reconnected()
    assert starting.requests.take() == ()
    starting.requests.answered(SourceAnswer(digest(FILES), pack(FILES)))
    assert not starting.started.is_set()


async def test_another_source_is_for_the_next_process_and_a_look_for_the_one_before_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control started again over an edited folder: it does not have the files of before."""
    edited = (SourceFile("echo.py", b"2", executable=False),)
    newer = replace(SPEC, source=Source("/srv/code", digest(edited)))
    starting = Starting(SPEC, tmp_path)
    starting.source.renew(SPEC)
    assert not starting.source.here()
    assert await starting.asked() == (digest(FILES),)
    starting.source.renew(newer)
    assert starting.started.is_set(), "it is looked for anew"
    starting.started.clear()
    assert not starting.source.here()
    assert await starting.asked() == (digest(edited),)
    starting.requests.answered(SourceAnswer(digest(edited), pack(edited)))
    await starting.started.wait()
    assert starting.source.here()
    assert starting.source.spec.source == newer.source

    starting.source.renew(SPEC)
    starting.source.renew(replace(SPEC, source=None))
    assert starting.source.spec.source == newer.source, "what runs stays what it is"


async def test_a_handler_in_no_folder_starts_at_once(tmp_path: Path) -> None:
    assert Starting(replace(SPEC, source=None), tmp_path).source.here()


def test_a_program_starts_in_the_folder_itself() -> None:
    assert moved("/srv/chat", "/srv/chat", Path("/copy")) == "/copy"
    assert moved("/srv/chat/a/b.py:h", "/srv/chat/a", Path("/copy")) == "/copy/b.py:h"
