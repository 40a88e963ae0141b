"""weights.lock: how it is filled, and how what it names gets here."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stoker.models import weights
from stoker.models.registry import PIPELINES
from stoker.models.weights import Entry, HubFile, Lock, LockedFile, WeightsError, WeightsRefused, verify

VAE = "vae/diffusion_pytorch_model.safetensors"


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
        (folder / VAE).write_bytes((folder / VAE).read_bytes()[:-1])
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
        every = replace(entry, files=())
        naming = replace(entry, files=(LockedFile(name),))
        for asking in (every, naming):
            with pytest.raises(WeightsRefused, match=name):
                weights.lock_from_folder(asking, folder)

    def test_of_a_folder_only_the_files_that_the_entry_names_are_locked(
        self, entry: Entry, folder: Path
    ) -> None:
        (folder / "README.md").write_text("not needed")
        (folder / VAE).write_bytes((folder / "text_encoder/model.safetensors").read_bytes())
        filled = weights.lock_from_folder(entry, folder)
        assert [file.path for file in filled.files] == [file.path for file in entry.files]
        assert filled.digest != entry.digest

    def test_a_named_file_that_the_folder_lacks(self, entry: Entry, folder: Path) -> None:
        (folder / VAE).unlink()
        with pytest.raises(WeightsRefused, match=f"{VAE}: is missing"):
            weights.lock_from_folder(entry, folder)

    def test_what_stoker_makes_is_locked_whole(self, entry: Entry, folder: Path) -> None:
        """A new version of it may have other files."""
        built = Entry("flux-tiny", "built:stoker.models.text_to_image.tiny:build", "x", (LockedFile("gone"),))
        assert weights.lock_from_folder(built, folder).files == entry.files

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
