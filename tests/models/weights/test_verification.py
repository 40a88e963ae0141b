"""A folder is loaded only when it is exactly what is locked; what was read once is remembered."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from stoker.models.weights import (
    Entry,
    Lock,
    LockedFile,
    WeightsRefused,
    begin,
    known_digests,
    ready,
    record_digests,
    verify,
    write_lock,
)
from stoker.models.weights.verification import cache_path

VAE = "vae/diffusion_pytorch_model.safetensors"


def refused(entry: Entry, folder: Path) -> WeightsRefused:
    with pytest.raises(WeightsRefused) as caught:
        verify(entry, folder)
    return caught.value


def alter(path: Path, at: int = 5_000) -> None:
    before = path.stat().st_mtime_ns
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))
    while path.stat().st_mtime_ns == before:  # before Linux 6.13 it moves on every few milliseconds
        path.touch()


def test_a_whole_folder_passes(entry: Entry, folder: Path) -> None:
    verify(entry, folder)


def test_the_folder_of_the_locked_contents_goes_before_the_one_of_the_name(
    entry: Entry, folder: Path, tmp_path: Path
) -> None:
    """As an agent names it; the name leads to other contents, which a new version of the endpoint has."""
    root, lock = tmp_path / "here", tmp_path / "ours.lock"
    shutil.copytree(folder, root / entry.key)
    shutil.copytree(folder, root / f"{entry.name}@other")
    alter(root / f"{entry.name}@other" / VAE)
    (root / entry.name).symlink_to(f"{entry.name}@other")
    write_lock(Lock((entry,)), lock)
    assert ready(entry.name, root, lock)[1] == root / entry.key
    _, own, reading = begin(entry.name, root, lock)
    reading.finish()
    assert own == root / entry.key
    shutil.rmtree(root / entry.key)
    with pytest.raises(WeightsRefused, match="its sha256 is"):
        ready(entry.name, root, lock)


def test_one_altered_bit_is_found_and_named(entry: Entry, folder: Path) -> None:
    alter(folder / VAE)
    [problem] = refused(entry, folder).problems
    assert problem.path == VAE
    assert "sha256" in problem.why


def test_a_file_cut_short_is_found_by_its_size(entry: Entry, folder: Path) -> None:
    (folder / VAE).write_bytes((folder / VAE).read_bytes()[:-1])
    assert "bytes where" in str(refused(entry, folder))


def test_a_missing_file_is_named_with_the_remedy(entry: Entry, folder: Path) -> None:
    (folder / VAE).unlink()
    message = str(refused(entry, folder))
    assert f"{VAE}: is missing" in message
    assert "stoker weights fetch flux-tiny" in message


def test_a_missing_folder(entry: Entry, tmp_path: Path) -> None:
    assert "no such folder" in str(refused(entry, tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("vae/extra.safetensors", "is not in weights.lock"),
        ("notes.txt", "is not in weights.lock"),
        ("unet/diffusion_pytorch_model.bin", "is a pickle"),
        ("model.pt", "is a pickle"),
        ("model.PTH", "is a pickle"),
        ("model.ckpt", "is a pickle"),
        ("modeling_flux.py", "is not a type that is loaded"),
        (".cache/note", "is not a type that is loaded"),
    ],
)
def test_whatever_is_not_locked_is_refused(entry: Entry, folder: Path, name: str, why: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"x")
    [problem] = refused(entry, folder).problems
    assert (problem.path, why in problem.why) == (name, True)


def test_a_pickle_is_refused_even_when_it_is_locked(entry: Entry, folder: Path) -> None:
    (folder / "model.bin").write_bytes(b"x")
    row = LockedFile("model.bin", 1, hashlib.sha256(b"x").hexdigest())
    locked = Entry(entry.name, entry.source, entry.licence, (*entry.files, row))
    assert "model.bin: is a pickle" in str(refused(locked, folder))


def test_links_to_folders_and_pipes_are_refused_and_never_opened(entry: Entry, folder: Path) -> None:
    (folder / "more").symlink_to(folder.parent)
    os.mkfifo(folder / "pipe.json")
    assert {problem.path for problem in refused(entry, folder).problems} == {"more", "pipe.json"}


def test_a_link_to_a_file_is_read_through(entry: Entry, folder: Path, tmp_path: Path) -> None:
    """As the hub's own cache has them."""
    (folder / VAE).rename(tmp_path / "blob")
    (folder / VAE).symlink_to(tmp_path / "blob")
    verify(entry, folder)
    alter(tmp_path / "blob")
    refused(entry, folder)


def test_an_unknown_digest_is_refused_with_the_remedy(entry: Entry, folder: Path) -> None:
    files = (LockedFile(VAE), *(file for file in entry.files if file.path != VAE))
    message = str(refused(Entry(entry.name, entry.source, entry.licence, files), folder))
    assert f"{VAE}: its digest is unknown" in message
    assert "stoker weights lock flux-tiny" in message


def test_many_problems_are_counted(entry: Entry, folder: Path) -> None:
    for number in range(20):
        (folder / f"{number}.bin").touch()
    error = refused(entry, folder)
    assert len(error.problems) == 20
    assert str(error).endswith("and 10 more")


class TestMemory:
    @pytest.fixture
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The files that are hashed, as they are."""
        hashed: list[str] = []
        digest = hashlib.file_digest

        def spy(file: object, name: str) -> object:
            hashed.append(str(getattr(file, "name", "")))
            return digest(file, name)  # type: ignore[arg-type,type-var]

        monkeypatch.setattr(hashlib, "file_digest", spy)
        return hashed

    def test_unchanged_files_are_not_read_again(self, entry: Entry, folder: Path, reads: list[str]) -> None:
        verify(entry, folder)
        assert len(reads) == len(entry.files)
        reads.clear()
        verify(entry, folder)
        assert reads == []

    @pytest.mark.parametrize("what", ["time", "inode", "size"])
    def test_a_file_that_may_have_changed_is_read_again(
        self, entry: Entry, folder: Path, reads: list[str], what: str
    ) -> None:
        verify(entry, folder)
        reads.clear()
        path = folder / VAE
        before = path.stat()
        if what == "time":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
            verify(entry, folder)
        elif what == "inode":  # another file with the same size and time
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            other = path.with_name("other")
            other.write_bytes(bytes(data))
            other.replace(path)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            refused(entry, folder)
        else:
            path.write_bytes(path.read_bytes() + b" ")
            refused(entry, folder)
        assert reads == ([] if what == "size" else [str(path)])

    def test_a_changed_lock_is_noticed(self, entry: Entry, folder: Path, reads: list[str]) -> None:
        """Digests are remembered, verdicts are not."""
        verify(entry, folder)
        files = tuple(LockedFile(file.path, file.size, "0" * 64) for file in entry.files)
        refused(Entry(entry.name, entry.source, entry.licence, files), folder)

    def test_a_refused_file_stays_refused(self, entry: Entry, folder: Path) -> None:
        alter(folder / VAE)
        refused(entry, folder)
        refused(entry, folder)

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{"a": [1, 2]}', "null"])
    def test_a_damaged_memory_is_no_memory(self, entry: Entry, folder: Path, text: str) -> None:
        cache_path(folder).write_text(text)
        verify(entry, folder)
        assert set(json.loads(cache_path(folder).read_text())) == {file.path for file in entry.files}

    def test_the_cache_is_next_to_the_folder(self, entry: Entry, folder: Path) -> None:
        verify(entry, folder)
        assert sorted(path.name for path in folder.parent.iterdir()) == [
            ".flux-tiny.digests.json",
            "flux-tiny",
        ]


def test_digests_that_were_computed_elsewhere_are_not_computed_again(
    entry: Entry, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known_digests(folder) == {}
    digests = {file.path: str(file.sha256) for file in entry.files}
    record_digests(folder, digests)
    assert known_digests(folder) == digests
    monkeypatch.setattr(hashlib, "file_digest", None)
    verify(entry, folder)
    alter(folder / VAE)
    assert known_digests(folder).keys() == digests.keys() - {VAE}


def test_digests_recorded_of_wrong_files_are_refused_as_wrong(entry: Entry, folder: Path) -> None:
    record_digests(folder, {file.path: "ab" * 32 for file in entry.files})
    assert len(refused(entry, folder).problems) == len(entry.files)
