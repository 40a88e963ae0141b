"""What a handler may hand over, and the life of its scratch folder."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.interfaces import FileRefused
from stoker.agent.worker_frames import BrokenProtocol
from stoker.agent.workers.processes.scratch_folders import ScratchFolders, check_file
from stoker.wire.messages import AttemptKey

KEY = AttemptKey("0f0e-u1", 2)
ME = os.geteuid()


@pytest.fixture
def folders(tmp_path: Path) -> ScratchFolders:
    return ScratchFolders(tmp_path / "scratch")


@pytest.fixture
def scratch(folders: ScratchFolders) -> Path:
    """As the worker makes it."""
    path = Path(folders.prepare(KEY))
    path.mkdir(0o700)
    return path


class Opened:
    """Descriptors that are closed after the test."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def __call__(self, path: Any, flags: int = os.O_RDONLY) -> int:
        self.fds.append(os.open(path, flags))
        return self.fds[-1]


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened()
    yield made
    for fd in made.fds:
        os.close(fd)


def written(path: Path, data: bytes = b"picture") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["out.png", "deep/er/out.png", "two words\n.png", "out (deleted)"])
def test_a_file_of_its_own_is_taken(
    scratch: Path, folders: ScratchFolders, opened: Opened, name: str
) -> None:
    fd = opened(written(scratch / name))
    assert check_file(fd, scratch, ME) == 7
    assert folders.check(KEY, fd) == 7


def test_an_empty_file_is_a_file(scratch: Path, opened: Opened) -> None:
    assert check_file(opened(written(scratch / "empty", b"")), scratch, ME) == 0


def refused(fd: int, scratch: Path, uid: int = ME) -> str:
    with pytest.raises(FileRefused) as caught:
        check_file(fd, scratch, uid)
    return str(caught.value)


def broken(fd: int, scratch: Path) -> str:
    """What no runtime hands over."""
    with pytest.raises(BrokenProtocol) as caught:
        check_file(fd, scratch, ME)
    return str(caught.value)


def test_outside_its_scratch(scratch: Path, tmp_path: Path, opened: Opened) -> None:
    assert "outside the job's scratch folder" in refused(opened(written(tmp_path / "x")), scratch)


def test_a_folder_whose_name_begins_like_its_scratch(scratch: Path, opened: Opened) -> None:
    others = written(Path(f"{scratch}0") / "x")
    assert "outside" in refused(opened(others), scratch)


def test_through_a_symbolic_link(scratch: Path, tmp_path: Path, opened: Opened) -> None:
    (scratch / "link").symlink_to(written(tmp_path / "secret"))
    assert "outside" in refused(opened(scratch / "link"), scratch)
    assert "a symbolic link" in broken(opened(scratch / "link", os.O_PATH | os.O_NOFOLLOW), scratch)


def test_through_a_linked_folder(scratch: Path, tmp_path: Path, opened: Opened) -> None:
    written(tmp_path / "elsewhere" / "x")
    (scratch / "inside").symlink_to(tmp_path / "elsewhere")
    assert "outside" in refused(opened(scratch / "inside" / "x"), scratch)


def test_a_scratch_that_is_itself_reached_by_a_link(scratch: Path, tmp_path: Path, opened: Opened) -> None:
    # The data folder may be a link to a larger disk: that is the operator's, not the handler's.
    (tmp_path / "linked").symlink_to(scratch)
    assert check_file(opened(written(scratch / "x")), tmp_path / "linked", ME) == 7


def test_a_hard_link_to_a_file_outside(scratch: Path, tmp_path: Path, opened: Opened) -> None:
    os.link(written(tmp_path / "secret"), scratch / "mine")
    assert "hard link" in refused(opened(scratch / "mine"), scratch)


def test_a_file_is_named_as_seen_from_the_scratch_folder(
    scratch: Path, tmp_path: Path, opened: Opened
) -> None:
    (scratch / "deep").mkdir()
    os.link(written(tmp_path / "secret"), scratch / "deep" / "y")
    assert refused(opened(scratch / "deep" / "y"), scratch).startswith("deep/y is a hard link")
    assert refused(opened(written(tmp_path / "far" / "z")), scratch).startswith("z lies outside")


def test_another_users_file(scratch: Path, opened: Opened) -> None:
    assert "belongs to another user" in refused(opened(written(scratch / "x")), scratch, uid=ME + 1)


def test_a_deleted_file(scratch: Path, opened: Opened) -> None:
    fd = opened(written(scratch / "gone.png"))
    (scratch / "gone.png").unlink()
    assert refused(fd, scratch) == "gone.png was deleted"


def test_a_file_in_memory_only(scratch: Path, opened: Opened) -> None:
    opened.fds.append(fd := os.memfd_create("x"))
    assert "was deleted" in refused(fd, scratch)


def test_a_file_without_a_name(scratch: Path, opened: Opened) -> None:
    assert "was deleted" in refused(opened(scratch, os.O_TMPFILE | os.O_RDWR), scratch)


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_PATH])
def test_a_file_that_cannot_be_read(scratch: Path, opened: Opened, flags: int) -> None:
    assert "not open for reading" in broken(opened(written(scratch / "x"), flags), scratch)


def test_what_is_no_file(scratch: Path, opened: Opened) -> None:
    os.mkfifo(scratch / "pipe")
    left, right = socket.socketpair()
    with left, right:
        assert "a socket" in broken(left.fileno(), scratch)
    assert "a pipe" in broken(opened(scratch / "pipe", os.O_RDONLY | os.O_NONBLOCK), scratch)
    assert "a device" in broken(opened("/dev/zero"), scratch)
    assert "a folder" in broken(opened(scratch), scratch)
    opened.fds.append(process := os.pidfd_open(os.getpid()))
    assert "no file" in broken(process, scratch)


def test_the_memory_of_a_process_is_no_file_of_a_job(scratch: Path, opened: Opened) -> None:
    assert "outside" in refused(opened("/proc/self/mem"), scratch)


def test_a_descriptor_that_is_none(scratch: Path, folders: ScratchFolders, opened: Opened) -> None:
    spare = os.dup(0)
    os.close(spare)
    with pytest.raises(FileRefused, match="cannot be read"):
        folders.check(KEY, spare)


# ---- folders ----------------------------------------------------------------------------------


def test_a_folder_for_each_attempt(folders: ScratchFolders) -> None:
    other = AttemptKey(KEY.job, 3)
    first, second = folders.prepare(KEY), folders.prepare(other)
    assert first != second
    assert folders.prepare(KEY) == first
    assert stat.S_IMODE(os.stat(os.path.dirname(first)).st_mode) == 0o700
    assert os.listdir(os.path.dirname(first)) == [], "its worker makes it"
    for path in (first, second):
        os.mkdir(path)
    folders.remove(KEY)
    folders.remove(KEY)
    assert not os.path.exists(first)
    assert os.path.exists(second)
    os.rmdir(second)
    folders.remove(other)


def test_nothing_lies_in_a_folder_that_was_never_made(folders: ScratchFolders, opened: Opened) -> None:
    path = Path(folders.prepare(KEY))
    fd = opened(written(path.parent / "x"))
    with pytest.raises(FileRefused, match="x lies outside the job's scratch folder"):
        folders.check(KEY, fd)


def test_a_job_id_is_a_name_not_a_path(folders: ScratchFolders, tmp_path: Path) -> None:
    assert Path(folders.prepare(AttemptKey("../../x", 1))).parent == tmp_path / "scratch"


def test_removing_follows_no_link(folders: ScratchFolders, scratch: Path, tmp_path: Path) -> None:
    kept = written(tmp_path / "kept" / "x")
    (scratch / "link").symlink_to(tmp_path / "kept")
    (scratch / "file").symlink_to(kept)
    folders.remove(KEY)
    assert kept.read_bytes() == b"picture"
    assert not scratch.exists()


def test_a_folder_replaced_by_a_link_is_left_alone(
    folders: ScratchFolders, scratch: Path, tmp_path: Path
) -> None:
    kept = written(tmp_path / "kept" / "x")
    scratch.rmdir()
    scratch.symlink_to(tmp_path / "kept")
    folders.remove(KEY)
    assert kept.exists()


def test_a_folder_without_rights_is_removed(folders: ScratchFolders, scratch: Path) -> None:
    written(scratch / "closed" / "deep" / "x")
    (scratch / "closed" / "deep").chmod(0)
    (scratch / "closed").chmod(0)
    folders.remove(KEY)
    assert not scratch.exists()


def test_what_an_earlier_agent_left_is_removed(
    folders: ScratchFolders, scratch: Path, tmp_path: Path
) -> None:
    written(scratch / "left")
    ScratchFolders(tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.skipif(ME != 0, reason="only root may choose another user")
def test_the_workers_user_owns_its_folder(tmp_path: Path, opened: Opened) -> None:
    folders = ScratchFolders(tmp_path / "scratch", WorkerUsers((65534, 65534)))
    path = Path(folders.prepare(KEY))
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)
    mine = opened(written(path / "roots"))
    with pytest.raises(FileRefused, match="another user"):
        folders.check(KEY, mine)
    os.chown(path / "roots", 65534, 65534)
    assert folders.check(KEY, mine) == 7


# ---- a worker's own folder


def test_attempts_of_a_worker_that_sees_no_other_lie_in_its_folder(
    folders: ScratchFolders, tmp_path: Path
) -> None:
    above = folders.open("w1")
    inside, outside = folders.prepare(KEY, "w1"), folders.prepare(AttemptKey("k", 1), "w2")
    assert (Path(inside).parent, Path(outside).parent) == (above, tmp_path / "scratch")
    assert folders.prepare(KEY, "w1") == inside
    fd = os.open(f"{inside}/f", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        assert folders.check(KEY, fd) == 0
        with pytest.raises(FileRefused, match="lies outside the job's scratch folder"):
            folders.check(AttemptKey("k", 1), fd)
    finally:
        os.close(fd)
    folders.remove(KEY)
    folders.remove(AttemptKey("k", 1))
    assert list((tmp_path / "scratch").iterdir()) == [above], "while its worker runs"
    folders.close("w1")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_workers_folder_stays_until_its_last_attempt_has_gone(
    folders: ScratchFolders, tmp_path: Path
) -> None:
    above = folders.open("w1")
    path = folders.prepare(KEY, "w1")
    folders.open("w1")
    folders.close("w1")
    folders.close("w1")
    assert Path(path).is_dir()
    folders.remove(KEY)
    assert not above.exists()
    assert Path(folders.prepare(KEY, "w1")).parent == tmp_path / "scratch", "it has none any more"
