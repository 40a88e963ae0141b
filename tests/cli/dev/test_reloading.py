"""The app as its files are at a call: each change is seen by the next one, without waiting for the watch."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stoker.cli.dev import reloading as module
from stoker.cli.dev.local_server.callers import Callers
from stoker.cli.dev.local_server.routing import local_routes
from stoker.cli.dev.local_server.server import LocalServer
from stoker.cli.dev.project import Project
from stoker.cli.dev.reloading import Files, Reloading
from tests.cli.dev.written_apps import ONE, app


class Read:
    """What `Reloading` read, change by change."""

    def __init__(self, root: Path) -> None:
        self.changes: list[list[str]] = []
        self.said: list[str] = []
        self.project: Project
        self.reloading = Reloading(root, self.use, self.said.append)

    def use(self, project: Project, names: list[str]) -> None:
        self.project = project
        self.changes.append(names)

    async def names(self) -> set[str]:
        await self.reloading.refresh()
        return {one.name for one in self.project.endpoints}


async def test_each_change_is_seen_at_the_next_look_and_once(tmp_path: Path) -> None:
    root = app(tmp_path, one=ONE)
    read = Read(root)
    read.project = await read.reloading.start()
    assert await read.names() == {"caption"}
    (root / "one.py").write_text(ONE.replace("caption", "option"))  # as long as before
    assert await read.names() == {"option"}
    app(root, deep__er__two=ONE)
    assert await read.names() == {"option", "caption"}
    os.replace(root / "deep" / "er" / "two.py", root / "three.py")
    assert await read.names() == {"option", "caption"}
    (root / "one.py").unlink()
    assert await read.names() == {"caption"}
    (root / "notes.txt").write_text("changes the folder, and not the app")
    assert await read.names() == {"caption"}
    assert read.changes == [["one.py"], ["deep/er/two.py"], ["deep/er/two.py", "three.py"], ["one.py"]]


async def test_a_change_that_came_before_the_watch_is_seen(tmp_path: Path) -> None:
    root = app(tmp_path, one=ONE)
    read, seen = Read(root), asyncio.Event()
    read.project = await read.reloading.start()
    (root / "one.py").write_text(ONE.replace("caption", "option"))

    def use(project: Project, names: list[str]) -> None:
        read.use(project, names)
        seen.set()

    read.reloading._use = use
    watching = asyncio.create_task(read.reloading.watch())
    async with asyncio.timeout(60):
        await seen.wait()
    watching.cancel()
    await asyncio.wait([watching])
    assert read.changes == [["one.py"]]


async def test_where_nothing_changed_no_folder_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Read(app(tmp_path, one=ONE))
    read.project = await read.reloading.start()
    monkeypatch.setattr(Files, "of", None)
    await read.reloading.refresh()
    assert read.changes == []


async def test_calls_at_once_read_a_change_once_and_a_call_that_ends_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = app(tmp_path, one=ONE)
    read = Read(root)
    read.project = await read.reloading.start()
    app(root, two=ONE.replace("caption", "other"))
    load, begun = module.load, asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(folder: Path) -> Project:
        loop.call_soon_threadsafe(begun.set)
        return load(folder)

    monkeypatch.setattr(module, "load", slow)
    leaves = asyncio.create_task(read.reloading.refresh())
    await begun.wait()
    leaves.cancel()
    await asyncio.gather(*(read.reloading.refresh() for _ in range(4)))
    assert read.changes == [["two.py"]]


async def test_a_request_is_routed_by_the_app_as_it_is_now(tmp_path: Path) -> None:
    root = app(tmp_path, one=ONE)
    calls: Any = None
    server = LocalServer(calls, {}, Callers())

    def use(project: Project, names: list[str]) -> None:
        server.serve(project, local_routes(project)[0])

    reloading = Reloading(root, use, print)
    use(await reloading.start(), [])
    server.refresh = reloading.refresh
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(server), base_url="http://localhost"
    ) as http:
        assert (await http.post("/two/runsync", json={"input": {}})).status_code == 404
        app(root, two=ONE.replace("caption", "other"))
        assert (await http.post("/two/runsync", json={"input": {}})).status_code == 400
