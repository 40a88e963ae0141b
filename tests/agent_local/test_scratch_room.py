"""A scratch folder is made only where there is room to work in it."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from stoker.agent.processes.scratch_folders import RESERVE, ScratchFolders
from stoker.wire.messages import AttemptKey

KEY = AttemptKey("0f0e-u1", 2)


def test_no_folder_is_made_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = ScratchFolders(tmp_path / "scratch")
    free = RESERVE - 1

    def usage(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=free if path == tmp_path / "scratch" else 0)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(OSError, match="63 MiB are free, 64 MiB are needed") as refused:
        folders.make(KEY)
    assert refused.value.errno == errno.ENOSPC
    assert list((tmp_path / "scratch").iterdir()) == []
    free += 1
    assert Path(folders.make(KEY)).is_dir()
