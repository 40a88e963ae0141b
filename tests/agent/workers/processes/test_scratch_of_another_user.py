"""The folders above an attempt's stay as they were made: another user must pass through them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.wire.messages import AttemptKey


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o022, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
def test_a_first_start_changes_nothing_of_the_folder_above(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.mkdir()
    agent.chmod(0o711)
    scratch = ScratchFolders(agent / "scratch", WorkerUsers((os.getuid(), os.getgid())))
    assert mode(agent) == 0o711
    assert mode(agent / "scratch") == 0o711
    scratch.remove(AttemptKey("never", 1))
    assert mode(agent / "scratch") == 0o711
    assert mode(Path(scratch.prepare(AttemptKey("j", 1)))) == 0o700
    assert mode(scratch.open("w1", (os.getuid(), os.getgid()))) == 0o711
    assert mode(scratch.open("w2")) == 0o700
