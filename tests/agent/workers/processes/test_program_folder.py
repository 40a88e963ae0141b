# ruff: noqa: ASYNC240  # waiting for real processes is what these tests do
"""The folder that a program starts in: its own, with the names of the endpoint's folder in it."""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.sandbox.probe import probe
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.processes import program_folder
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.program_folder import own_folder
from stoker.agent.workers.processes.running_process import LocalProcess
from stoker.agent.workers.processes.spawn_request import Program
from stoker.wire.messages import WorkerSpec
from tests.other_users import SYSTEM_PYTHON, other_users

RANGE = (190_004, 190_007)


@pytest.fixture
def endpoint() -> Iterator[Path]:
    """A program that reads beside it, imports beside it, and keeps notes in the folder that it starts in."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "endpoint"
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "weights.txt").write_text("seven")
        (folder / "engine.py").write_text("def load():\n    return open('model/weights.txt').read()\n")
        (folder / "program.py").write_text(
            "import engine, os, pathlib\n"
            "notes = pathlib.Path('notes')\n"
            "told = notes.read_text() if notes.exists() else 'nothing'\n"
            "notes.write_text('kept')\n"
            "print(engine.load(), told, sorted(os.listdir('.')))\n"
        )
        os.chmod(name, 0o755)
        yield folder


@pytest.fixture
async def spawn(endpoint: Path, new_watcher: Any) -> AsyncIterator[Any]:
    """Starts the program, by a spawner with these options; says the process and its watcher. Each is another
    worker: what is left of one is known by its name, and goes when it ends."""
    spawners: list[LocalSpawner] = []
    numbers = itertools.count(1)

    def started(program: tuple[str, ...] = (), **options: Any) -> tuple[LocalProcess, Any]:
        data = endpoint.parent / "data"
        data.mkdir(mode=0o711, exist_ok=True)
        if not spawners:
            spawners.append(LocalSpawner(data, **options))
        watcher = new_watcher()
        command = program or (SYSTEM_PYTHON, "-B", "program.py")
        spec = WorkerSpec(f"w{next(numbers)}", "e", 1, str(endpoint), kind="protocol")
        return spawners[0].spawn(spec, None, watcher, Program(command, endpoint, {})), watcher

    yield started
    for spawner in spawners:
        await spawner.close()


PRINTED = "seven nothing ['engine.py', 'model', 'notes', 'program.py']"


async def test_what_a_program_keeps_there_meets_no_other_and_no_later_one(spawn: Any, endpoint: Path) -> None:
    before = sorted(endpoint.rglob("*"))
    (_, first), (_, second) = spawn(), spawn()
    for watcher in (first, second):
        assert (await watcher.exit).log_tail == (PRINTED,)
    process, third = spawn()
    assert (await third.exit).log_tail == (PRINTED,)
    await process.ended
    await asyncio.sleep(0)  # what is called when it has ended
    assert sorted(endpoint.rglob("*")) == before
    assert list((endpoint.parent / "data" / "homes").iterdir()) == [], "gone with the process"


@other_users
@pytest.mark.parametrize("sandbox", ["off", "on"])
async def test_another_user_may_write_there_and_not_to_the_endpoints_folder(
    spawn: Any, endpoint: Path, sandbox: Any
) -> None:
    host = probe(user_range=RANGE, sandbox=sandbox)
    if sandbox == "on" and not host.wraps:
        pytest.skip(f"no bubblewrap here: {host.no_bubblewrap}")
    _, watcher = spawn(users=WorkerUsers(between=RANGE), host=host)
    assert (await watcher.exit).log_tail == (PRINTED,)
    _, watcher = spawn((SYSTEM_PYTHON, "-c", f"open('{endpoint}/notes', 'w')"))
    assert "Error" in (await watcher.exit).log_tail[-1]


async def test_a_command_by_a_path_of_the_folder(spawn: Any, endpoint: Path) -> None:
    (endpoint / "start.sh").write_text("#!/bin/sh\ncat model/weights.txt\n")
    (endpoint / "start.sh").chmod(0o755)
    _, watcher = spawn(("./start.sh",))
    assert (await watcher.exit).log_tail == ("seven",)


def test_a_folder_with_too_many_names_is_started_in_itself(
    endpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = endpoint.parent
    monkeypatch.setattr(program_folder, "LINKS_MAX", 2)
    assert own_folder(endpoint, home, None) == endpoint
    assert "has more than 2 names" in caplog.text
    monkeypatch.setattr(program_folder, "LINKS_MAX", 3)
    assert own_folder(endpoint, home, None) == home / "work"


def test_a_link_that_is_put_in_its_place_meanwhile_leads_nowhere(
    endpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where workers have one user, another of them may change what is in this one's home."""
    home, victim = endpoint.parent, endpoint.parent / "victim"
    victim.mkdir()
    symlink = os.symlink

    def after_a_swap(*arguments: Any, **more: Any) -> None:
        if not (home / "away").exists():
            (home / "work").rename(home / "away")
            symlink(victim, home / "work")
        symlink(*arguments, **more)

    monkeypatch.setattr(os, "symlink", after_a_swap)
    chowned: list[Any] = []
    monkeypatch.setattr(os, "chown", lambda what, *_: chowned.append(os.stat(what).st_ino))
    own_folder(endpoint, home, (190_004, 190_004))
    assert list(victim.iterdir()) == []
    assert chowned == [(home / "away").stat().st_ino]


async def test_a_folder_that_is_not_there_is_named(spawn: Any, endpoint: Path) -> None:
    endpoint.rename(endpoint.with_name("moved"))
    with pytest.raises(SpawnFailed, match=f"there is no folder {endpoint}"):
        spawn()
