"""A File is a regular file below the attempt's scratch folder; anything else is refused in words."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.worker import File, FileRefused, HandlerError
from stoker.worker.payloads.files import media_type_of, open_file


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return folder


def a_symlink(scratch: Path) -> Path:
    (scratch / "x").symlink_to(scratch.parent / "secret.txt")
    return scratch / "x"


def a_symlink_to_a_good_file(scratch: Path) -> Path:
    (scratch / "good").write_text("good")
    (scratch / "x").symlink_to(scratch / "good")
    return scratch / "x"


def below_a_symlink(scratch: Path) -> Path:
    (scratch / "folder").symlink_to(scratch.parent)
    return scratch / "folder" / "secret.txt"


def by_dots(scratch: Path) -> Path:
    return scratch / ".." / "secret.txt"


def a_neighbour_with_the_same_beginning(scratch: Path) -> Path:
    other = scratch.with_name("scratch-of-another")
    other.mkdir()
    (other / "x").write_text("x")
    return other / "x"


def a_pipe(scratch: Path) -> Path:
    os.mkfifo(scratch / "x")
    return scratch / "x"


def a_socket(scratch: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.open(scratch, os.O_RDONLY)  # a socket's path must be short
        sock.bind(f"/proc/self/fd/{here}/x")
        os.close(here)
    return scratch / "x"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (a_symlink, "is a symbolic link; a File must be a regular file"),
        (a_symlink_to_a_good_file, "is a symbolic link"),
        (below_a_symlink, "lies outside the job's scratch folder; write it below job.scratch"),
        (by_dots, "lies outside"),
        (a_neighbour_with_the_same_beginning, "lies outside"),
        (a_pipe, "is a named pipe"),
        (a_socket, "is a socket"),
        (lambda scratch: Path("/dev/zero"), "is a device"),
        (lambda scratch: scratch, "is a directory"),
        (lambda scratch: scratch / "none", "cannot be opened: no such file or directory"),
        (lambda scratch: scratch / "a\0b", "cannot be opened: "),
        (lambda scratch: scratch / ("x" * 300), "cannot be opened: file name too long"),
    ],
)
def test_what_is_refused(scratch: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(FileRefused) as caught:
        open_file(File(make(scratch)), str(scratch))
    assert message in str(caught.value)
    assert str(scratch.parent) not in str(caught.value), "callers read it"


@pytest.mark.parametrize(
    ("path", "shown"),
    [("deep/er/x", "deep/er/x"), ("deep/../x", "x"), ("../beside/x", "x"), ("/none/x", "x")],
)
def test_a_file_is_named_as_seen_from_the_scratch_folder(scratch: Path, path: str, shown: str) -> None:
    with pytest.raises(FileRefused, match=f"^{shown} cannot be opened"):
        open_file(File(scratch / path), str(scratch))


def test_a_file_that_changes_between_the_look_and_the_open(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look sees a regular file, the open meets a pipe: the descriptor is what decides."""
    good = scratch / "good"
    good.write_text("good")
    seen = os.stat(good)
    assert stat.S_ISREG(seen.st_mode)
    path = a_pipe(scratch)
    monkeypatch.setattr(os, "lstat", lambda _: seen)
    with pytest.raises(FileRefused, match="is a named pipe"):
        open_file(File(path), str(scratch))


def test_a_scratch_folder_reached_by_a_link_is_the_same_folder(scratch: Path) -> None:
    (scratch / "x.txt").write_text("x")
    link = scratch.with_name("link")
    link.symlink_to(scratch)
    file = open_file(File(link / "x.txt"), str(link))
    assert (os.read(file.fd, 9), file.name, file.media_type) == (b"x", "x.txt", "text/plain")
    os.close(file.fd)


def test_a_relative_path_is_taken_from_the_working_folder(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scratch / "x").write_text("x")
    monkeypatch.chdir(scratch)
    os.close(open_file(File("x"), str(scratch)).fd)


@pytest.mark.parametrize(
    ("name", "media_type"),
    [("a.mp4", "video/mp4"), ("a.JPG", "image/jpeg"), ("a", "application/octet-stream")],
)
def test_the_media_type_follows_the_name(name: str, media_type: str) -> None:
    assert media_type_of(name) == media_type


@pytest.mark.parametrize("media_type", ["png", "/png", "image/", "a/b\r\nx: y", "a/" + "b" * 200, "a/é"])
def test_a_media_type_is_checked_where_it_is_written(media_type: str) -> None:
    with pytest.raises(HandlerError, match="not a media type"):
        File("x", media_type)


def test_a_files_own_name_is_checked_where_it_is_written() -> None:
    with pytest.raises(HandlerError, match="must not be empty"):
        File("x", name="")


def test_a_file_name_that_is_no_unicode_is_made_harmless(scratch: Path) -> None:
    path = os.fsencode(scratch) + b"/\xff\n.txt"
    Path(os.fsdecode(path)).write_text("x")
    file = open_file(File(os.fsdecode(path)), str(scratch))
    os.close(file.fd)
    assert file.name == "?\n.txt"
