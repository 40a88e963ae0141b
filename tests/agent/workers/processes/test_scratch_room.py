"""An attempt gets a scratch folder only where there is room to work in it."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from stoker.agent.workers.processes.scratch_folders import RESERVE, ROOM_S, ScratchFolders
from stoker.wire.messages import AttemptKey

KEY = AttemptKey("0f0e-u1", 2)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`free` bytes of it; `looks` counts how often somebody asked."""
    disk = SimpleNamespace(free=RESERVE, looks=0)

    def usage(path: Path) -> SimpleNamespace:
        disk.looks += 1
        return SimpleNamespace(free=disk.free if path == tmp_path / "scratch" else 0)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    return disk


def test_a_full_disk_is_refused_until_there_is_room(tmp_path: Path, disk: SimpleNamespace) -> None:
    folders = ScratchFolders(tmp_path / "scratch", clock=lambda: 0.0)
    disk.free -= 1
    with pytest.raises(OSError, match="63 MiB are free, 64 MiB are needed") as refused:
        folders.prepare(KEY)
    assert refused.value.errno == errno.ENOSPC
    assert list((tmp_path / "scratch").iterdir()) == []
    disk.free += 1
    assert Path(folders.prepare(KEY)).parent == tmp_path / "scratch"


def test_a_disk_with_room_is_measured_once_a_second(tmp_path: Path, disk: SimpleNamespace) -> None:
    now = 100.0
    folders = ScratchFolders(tmp_path / "scratch", clock=lambda: now)
    for _ in range(9):
        folders.prepare(KEY)
    assert disk.looks == 1
    disk.free = 0
    now += ROOM_S
    with pytest.raises(OSError, match="0 MiB are free"):
        folders.prepare(KEY)
