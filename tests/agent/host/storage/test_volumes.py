"""Which folder of the node a volume is."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.sandbox.isolation import Host
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.host.storage.volumes import folder, group, shared
from stoker.agent.workers.processes.worker_resources import WorkerResources
from stoker.wire.messages import WorkerSpec


def test_it_is_made_once_and_kept(tmp_path: Path) -> None:
    path = folder(tmp_path, "weights-1")
    assert path == tmp_path / "weights-1"
    assert path.stat().st_mode & 0o777 == 0o770
    (path / "kept").touch()
    assert (folder(tmp_path, "weights-1") / "kept").exists()


@pytest.mark.parametrize("first", [False, True])
def test_two_that_make_it_at_once_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """A pod's thread and the loop, or two nodes of one file system. `first`: this one was the faster."""
    make = Path.mkdir

    def meanwhile(path: Path, mode: int) -> None:
        monkeypatch.setattr(Path, "mkdir", make)
        if first:
            path.mkdir(mode)
        os.chmod(shared(tmp_path, path.name, os.getegid()), 0o2770)
        if not first:
            path.mkdir(mode)

    monkeypatch.setattr(Path, "mkdir", meanwhile)
    path = folder(tmp_path, "weights-1")
    assert path.stat().st_mode & 0o7777 == 0o2770


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../etc", "a/b", "/etc", ".hidden", "a\0b", "x" * 129, "a\n"]
)
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpawnFailed, match="cannot name a volume"):
        folder(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to("/etc")
    (tmp_path / "nowhere").symlink_to("/nowhere/at/all")
    for name in ("away", "nowhere"):
        with pytest.raises(SpawnFailed, match="is not a folder"):
            folder(tmp_path, name)


def test_no_root_and_a_root_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(SpawnFailed, match="has no volume root"):
        folder(None, "weights")
    with pytest.raises(SpawnFailed, match="No such file or directory"):
        folder(tmp_path / "gone", "weights")


def test_a_group_that_this_host_does_not_have_is_an_error_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a container whose groups are others' on the host, and of some network file systems."""

    def refused(path: object, user: int, to: int) -> None:
        if user == -1:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "chown", refused)
    number = group("weights")
    with pytest.raises(SpawnFailed, match=f"weights cannot be shared: .* group {number}: Invalid argument"):
        shared(tmp_path, "weights", number)
    between, spec = (190_000, 190_003), WorkerSpec("w1", "e", 1, "no_module:handler", volume="weights")
    host = Host(user_range=between, volume_root=str(tmp_path))
    resources = WorkerResources(tmp_path / "data", WorkerUsers(between=between), host, None, ())
    with contextlib.ExitStack() as undo, pytest.raises(SpawnFailed, match="volume weights cannot be shared"):
        resources.take(spec, None, undo, None)
