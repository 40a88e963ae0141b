"""What a volume's folder holds, and how it goes: on a real disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.agent.host.storage import volume_folders
from stoker.agent.host.storage.removal import remove_tree
from stoker.agent.host.storage.volume_folders import BLOCK, GONE, FoldersOnDisk, used_bytes


def on_disk(*paths: Path) -> int:
    return sum(path.lstat().st_blocks * BLOCK for path in paths)


def filled(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(os.urandom(size))
        os.fsync(file.fileno())
    return path


def test_everything_below_counts_by_its_blocks_and_once(tmp_path: Path) -> None:
    top = tmp_path / "v"
    one, two = filled(top / "a" / "one", 100_000), filled(top / "two", 5_000)
    os.link(two, top / "a" / "again")
    sparse = top / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    wanted = on_disk(one, two, sparse, top / "a")
    assert used_bytes(top) == wanted
    assert 105_000 <= wanted < 1 << 30


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside = filled(tmp_path / "outside" / "large", 1_000_000)
    top = tmp_path / "v"
    top.mkdir()
    (top / "to_a_folder").symlink_to(outside.parent)
    (top / "to_a_file").symlink_to(outside)
    (top / "to_itself").symlink_to(top)
    used = used_bytes(top)
    assert used is not None
    assert used < 100_000


def test_a_folder_that_became_a_link_is_not_entered(tmp_path: Path) -> None:
    outside = filled(tmp_path / "outside" / "large", 1_000_000)
    seen = (tmp_path / "outside").stat()
    assert volume_folders._entries(str(outside.parent), (seen.st_dev, seen.st_ino))
    assert volume_folders._entries(str(outside.parent), (seen.st_dev, seen.st_ino + 1)) == []
    (tmp_path / "link").symlink_to(outside.parent)
    assert volume_folders._entries(str(tmp_path / "link"), (seen.st_dev, seen.st_ino)) == []


def test_it_ends_when_it_is_closed_and_where_there_is_too_much(tmp_path: Path) -> None:
    for name in range(20):
        (tmp_path / str(name)).touch()
    assert used_bytes(tmp_path, over=lambda: True) is None
    assert used_bytes(tmp_path, most=19) is None
    assert used_bytes(tmp_path, most=20) == 0


def test_deeper_than_a_path_may_be_long(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("below", dir_fd=folder)
        deeper = os.open("below", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    assert used_bytes(top) is not None
    remove_tree(top)  # pytest cannot


async def test_measured_and_removed(tmp_path: Path) -> None:
    folders = FoldersOnDisk(tmp_path)
    kept = filled(tmp_path / "other" / "kept", 10)
    filled(tmp_path / "v1" / "deep" / "file", 50_000)
    used = await folders.measure("v1")
    assert used is not None
    assert used >= 50_000
    assert await folders.remove("v1") is True
    assert os.listdir(tmp_path) == ["other"]
    assert kept.exists()
    assert await folders.remove("v1") is False
    assert await folders.measure("v1") is None


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../other", ".hidden"])
async def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    kept = [filled(tmp_path / path / "kept", 10) for path in ("root/a/b", "other", "root/.hidden")]
    folders = FoldersOnDisk(root)
    assert await folders.measure(name) is None
    assert await folders.remove(name) is False
    assert all(path.exists() for path in kept)


async def test_a_link_in_its_place_is_left(tmp_path: Path) -> None:
    kept = filled(tmp_path / "outside" / "kept", 10)
    root = tmp_path / "root"
    root.mkdir()
    (root / "v1").symlink_to(kept.parent)
    assert await FoldersOnDisk(root).remove("v1") is False
    assert kept.exists()


async def test_what_an_earlier_agent_left_goes(tmp_path: Path) -> None:
    filled(tmp_path / f"{GONE}v1-abcd" / "deep" / "file", 10)
    kept = filled(tmp_path / "v2" / "file", 10)
    await FoldersOnDisk(tmp_path).clear()
    assert os.listdir(tmp_path) == ["v2"]
    assert kept.exists()


async def test_a_look_that_is_closed_reports_nothing(tmp_path: Path) -> None:
    folders = FoldersOnDisk(tmp_path)
    filled(tmp_path / "v1" / "file", 10)
    folders.close()
    assert await folders.measure("v1") is None


async def test_an_error_in_the_thread_reaches_the_caller(tmp_path: Path, monkeypatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(volume_folders, "used_bytes", broken)
    (tmp_path / "v1").mkdir()
    with pytest.raises(OSError, match="Input/output error"):
        await FoldersOnDisk(tmp_path).measure("v1")
