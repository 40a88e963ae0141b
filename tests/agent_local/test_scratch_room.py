"""A scratch folder is made only where there is room to work in it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from stoker.agent import files
from stoker.agent.files import RESERVE, ScratchFolders
from stoker.wire.messages import AttemptKey

KEY = AttemptKey("0f0e-u1", 2)


def test_no_folder_is_made_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = ScratchFolders(tmp_path / "scratch")
    free = RESERVE - 1
    monkeypatch.setattr(
        files, "free_bytes", lambda path: free if str(path) == str(tmp_path / "scratch") else 0
    )
    with pytest.raises(OSError, match="63 MiB are free, 64 MiB are needed") as refused:
        folders.make(KEY)
    assert refused.value.errno == errno.ENOSPC
    assert list((tmp_path / "scratch").iterdir()) == []
    free += 1
    assert Path(folders.make(KEY)).is_dir()
