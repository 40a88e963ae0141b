"""The folders above an attempt's stay as they were made: another user must pass through them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stoker.agent.files import ScratchFolders
from stoker.agent.worker_users import WorkerUsers
from stoker.wire.messages import AttemptKey


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_first_start_changes_nothing_of_the_folder_above(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.mkdir()
    agent.chmod(0o711)
    scratch = ScratchFolders(agent / "scratch", WorkerUsers((os.getuid(), os.getgid())))
    assert mode(agent) == 0o711
    assert mode(agent / "scratch") == 0o711
    scratch.remove(AttemptKey("never", 1))
    assert mode(agent / "scratch") == 0o711
    assert mode(Path(scratch.make(AttemptKey("j", 1)))) == 0o700
