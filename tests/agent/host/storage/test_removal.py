"""A folder goes, whatever its owner made of it; and nothing beside it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.agent.host.storage.removal import remove_tree

DEEP = 3000


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_descriptors")
def test_a_tree_that_is_deeper_than_a_path_may_be_long(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for level in range(DEEP):
        os.mkdir("below", dir_fd=folder)
        with open(os.open(f"file-{level}", os.O_CREAT | os.O_WRONLY, dir_fd=folder), "w") as file:
            file.write("text")
        deeper = os.open("below", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    remove_tree(top)
    assert os.listdir(tmp_path) == []


def test_folders_of_one_name_at_many_depths(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"top/{number}/.1/.2/same/x").mkdir(parents=True)
        (tmp_path / f"top/{number}/.1/.2/same/file").write_text("")
    remove_tree(tmp_path / "top")
    assert os.listdir(tmp_path) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    others = tmp_path / "others"
    (others / "kept").mkdir(parents=True)
    (tmp_path / "top/below").mkdir(parents=True)
    for link in ("top/link", "top/below/link"):
        (tmp_path / link).symlink_to(others)
    remove_tree(tmp_path / "top")
    assert os.listdir(tmp_path) == ["others"]
    (tmp_path / "top").symlink_to(others)
    remove_tree(tmp_path / "top")
    assert os.listdir(tmp_path) == ["others"]
    assert os.listdir(others) == ["kept"]


def test_what_is_not_there_and_what_is_no_folder(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    remove_tree(tmp_path / "file")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root needs no rights to a folder")
def test_rights_that_were_taken_away(tmp_path: Path) -> None:
    for name in ("top/a/b/c", "top/d"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("")
    for name in ("top/a/b/c", "top/a/b", "top/a", "top/d", "top"):
        (tmp_path / name).chmod(0)
    remove_tree(tmp_path / "top")
    assert os.listdir(tmp_path) == []
