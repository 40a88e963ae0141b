"""weights.lock: only what is locked, whole and unaltered is ever loaded; and how it gets here."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.models import weights
from stoker.models.registry import PIPELINES
from stoker.models.weights import Entry, HubFile, Lock, LockedFile, WeightsError, WeightsRefused, verify
from stoker.models.weights.verification import memory_path

VAE = "vae/diffusion_pytorch_model.safetensors"


def refused(entry: Entry, folder: Path) -> WeightsRefused:
    with pytest.raises(WeightsRefused) as caught:
        verify(entry, folder)
    return caught.value


def alter(path: Path, at: int = 5_000) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def test_a_whole_folder_passes(entry: Entry, folder: Path) -> None:
    verify(entry, folder)


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
        ("modeling_flux.py", "is no kind that is ever loaded"),
        (".cache/note", "is no kind that is ever loaded"),
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
        seen: list[str] = []
        digest = hashlib.file_digest

        def spy(file: object, name: str) -> object:
            seen.append(str(getattr(file, "name", "")))
            return digest(file, name)  # type: ignore[arg-type,type-var]

        monkeypatch.setattr(hashlib, "file_digest", spy)
        return seen

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
        memory_path(folder).write_text(text)
        verify(entry, folder)
        assert set(json.loads(memory_path(folder).read_text())) == {file.path for file in entry.files}

    def test_it_lies_beside_the_folder(self, entry: Entry, folder: Path) -> None:
        verify(entry, folder)
        assert sorted(path.name for path in folder.parent.iterdir()) == [
            ".flux-tiny.digests.json",
            "flux-tiny",
        ]


class FakeHub:
    """A hub that serves a folder; `broken` names a file that it delivers damaged."""

    def __init__(self, folder: Path, broken: str | None = None) -> None:
        self.folder = folder
        self.broken = broken
        self.asked: list[str] = []

    def resolve(self, repo: str, revision: str | None) -> tuple[str, tuple[HubFile, ...]]:
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        return revision or "newest", tuple(self._row(path) for path in paths)

    def _row(self, path: Path) -> HubFile:
        data = path.read_bytes()
        large = path.suffix == ".safetensors"
        name = path.relative_to(self.folder).as_posix()
        return HubFile(name, len(data), hashlib.sha256(data).hexdigest() if large else None)

    def download(self, repo: str, path: str, commit: str, folder: Path) -> None:
        self.asked.append(path)
        data = (self.folder / path).read_bytes()
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if path == self.broken else data)
        (folder / ".cache").mkdir(exist_ok=True)

    def tidy(self, folder: Path) -> None:
        (folder / ".cache").rmdir()


class TestFetch:
    def test_from_the_hub(self, entry: Entry, folder: Path, tmp_path: Path) -> None:
        place, told = tmp_path / "here" / "flux-tiny", list[str]()
        weights.fetch(entry, place, hub=FakeHub(folder), on_file=lambda file: told.append(file.path))
        verify(entry, place)
        assert sorted(told) == sorted(file.path for file in entry.files)

    def test_from_a_folder(self, entry: Entry, folder: Path, tmp_path: Path) -> None:
        weights.fetch(entry, tmp_path / "here" / "m", mirror=folder.parent)
        verify(entry, tmp_path / "here" / "m")

    def test_from_a_mirror_of_objects(self, entry: Entry, folder: Path, tmp_path: Path) -> None:
        def bring(key: str, to: Path) -> None:
            to.write_bytes((folder.parent / key).read_bytes())

        weights.fetch(entry, tmp_path / "here" / "m", mirror=bring)
        verify(entry, tmp_path / "here" / "m")

    def test_what_came_wrong_is_refused_and_only_that_is_brought_again(
        self, entry: Entry, folder: Path, tmp_path: Path
    ) -> None:
        place = tmp_path / "here" / "flux-tiny"
        with pytest.raises(WeightsRefused, match=VAE):
            weights.fetch(entry, place, hub=FakeHub(folder, broken=VAE))
        assert not place.exists()
        hub = FakeHub(folder)
        weights.fetch(entry, place, hub=hub)
        assert hub.asked == [VAE]

    def test_a_mirror_that_fails_leaves_no_folder(self, entry: Entry, tmp_path: Path) -> None:
        place = tmp_path / "here" / "flux-tiny"
        with pytest.raises(WeightsError, match="cannot fetch flux-tiny"):
            weights.fetch(entry, place, mirror=tmp_path / "nothing")
        assert not place.exists()

    def test_what_is_there_and_whole_is_not_fetched(self, entry: Entry, folder: Path) -> None:
        hub = FakeHub(folder)
        weights.fetch(entry, folder, hub=hub)
        assert hub.asked == []

    def test_what_is_whole_needs_no_right_to_write(self, entry: Entry, folder: Path) -> None:
        weights.fetch(entry, folder)
        assert sorted(path.name for path in folder.parent.iterdir()) == [
            ".flux-tiny.digests.json",
            "flux-tiny",
        ]

    def test_what_is_there_and_wrong_is_left_to_its_owner(self, entry: Entry, folder: Path) -> None:
        alter(folder / VAE)
        with pytest.raises(WeightsError, match=r"Remove .* to fetch it anew"):
            weights.fetch(entry, folder, hub=FakeHub(folder))
        assert folder.exists()

    def test_unknown_digests_are_not_fetched(self, entry: Entry, tmp_path: Path) -> None:
        blank = Entry("m", entry.source, entry.licence, (LockedFile(VAE),))
        with pytest.raises(WeightsRefused, match="stoker weights lock m"):
            weights.fetch(blank, tmp_path / "m")

    def test_an_unknown_commit_is_not_fetched(self, entry: Entry, folder: Path, tmp_path: Path) -> None:
        floating = Entry(entry.name, entry.source, entry.licence, entry.files, commit=None)
        with pytest.raises(WeightsError, match="its commit is unknown"):
            weights.fetch(floating, tmp_path / "here" / "m", hub=FakeHub(folder))

    def test_two_at_once_fetch_it_once(self, entry: Entry, folder: Path, tmp_path: Path) -> None:
        hub, place, together = FakeHub(folder), tmp_path / "here" / "m", threading.Barrier(2)

        def one() -> None:
            together.wait(10)
            weights.fetch(entry, place, hub=hub)

        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(hub.asked) == len(entry.files)
        verify(entry, place)

    def test_only_our_own_functions_make_weights(self, entry: Entry, tmp_path: Path) -> None:
        foreign = Entry("m", "built:os:mkdir", "none", entry.files)
        with pytest.raises(WeightsError, match=r"no module of stoker\.models"):
            weights.fetch(foreign, tmp_path / "m")


class TestLocking:
    def test_from_the_hub(self, entry: Entry, folder: Path) -> None:
        """Large files by the hub's records, small ones by reading them."""
        hub = FakeHub(folder)
        blank = Entry(
            entry.name, entry.source, entry.licence, tuple(LockedFile(file.path) for file in entry.files)
        )
        filled = weights.lock_from_hub(blank, hub)
        assert filled.commit == "newest"
        assert {file.path: file for file in filled.files} == {file.path: file for file in entry.files}
        assert VAE not in hub.asked

    def test_a_file_that_the_hub_lacks(self, entry: Entry, folder: Path) -> None:
        blank = Entry("m", entry.source, entry.licence, (LockedFile("gone.json"),))
        with pytest.raises(WeightsError, match=r"has no gone\.json"):
            weights.lock_from_hub(blank, FakeHub(folder))

    @pytest.mark.parametrize("name", ["model.bin", "fake.safetensors", "run.py"])
    def test_a_folder_with_a_pickle_is_not_locked(self, entry: Entry, folder: Path, name: str) -> None:
        (folder / name).write_bytes(b"\x80\x04 pickled")
        with pytest.raises(WeightsRefused, match=name):
            weights.lock_from_folder(entry, folder)

    def test_written_and_read_it_is_the_same(self, entry: Entry, tmp_path: Path) -> None:
        blank = Entry("b", "huggingface:a/b", 'with "quotes"', (LockedFile("x.json"), LockedFile("y.txt", 5)))
        path, link = tmp_path / "real.lock", tmp_path / "weights.lock"
        path.touch()
        link.symlink_to(path)
        weights.write_lock(Lock([entry, blank]), link)
        back = weights.read_lock(link)
        assert (back.entries, link.is_symlink()) == ((entry, blank), True)
        assert weights.dump_lock(back) == path.read_text()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda text: text.replace("version = 1", "version = 9"), "version 9"),
            (lambda text: text.replace("vae/", "../", 1), "no path below"),
            (lambda text: text.replace('"vae/', '"/vae/', 1), "no path below"),
            (lambda text: text.replace("huggingface:", "https:"), "neither built"),
            (lambda text: text.replace('sha256 = "', 'sha256 = "x'), "no sha256"),
            (lambda text: text.replace("licence", "license"), "licence"),
            (lambda text: text + "[", "cannot read"),
        ],
    )
    def test_a_damaged_lock_is_refused(
        self, entry: Entry, tmp_path: Path, change: Callable[[str], str], message: str
    ) -> None:
        path = tmp_path / "weights.lock"
        path.write_text(change(weights.dump_lock(Lock([entry]))))
        with pytest.raises(WeightsError, match=message):
            weights.read_lock(path)

    def test_no_lock(self, tmp_path: Path) -> None:
        with pytest.raises(WeightsError, match="cannot read"):
            weights.read_lock(tmp_path / "weights.lock")

    def test_an_entry_that_is_not_there(self) -> None:
        with pytest.raises(WeightsError, match="no entry 'x'; it has flux-tiny, "):
            weights.read_lock().entry("x")

    def test_the_digest_of_an_entry_follows_its_files(self, entry: Entry) -> None:
        turned = Entry("other", entry.source, "other", tuple(reversed(entry.files)))
        assert turned.digest == entry.digest
        fewer = Entry("other", entry.source, "other", entry.files[1:])
        assert fewer.digest != entry.digest


def test_every_pipeline_has_its_weights_in_the_lock() -> None:
    lock = weights.read_lock()
    for pipeline in PIPELINES.values():
        entry = lock.entry(pipeline.weights)
        assert entry.is_built or entry.commit is not None
        assert entry.licence
        assert all(
            Path(file.path).suffix in {".json", ".safetensors", ".txt", ".model"} for file in entry.files
        )


def test_the_weights_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", "/weights")
    assert weights.weights_folder() == Path("/weights")
    monkeypatch.delenv("STOKER_WEIGHTS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert weights.weights_folder() == Path("/cache/stoker/weights")
