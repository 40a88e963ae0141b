"""weights.lock: how it is filled, and how what it names gets here."""

from __future__ import annotations

import hashlib
import re
import threading
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.models import weights
from stoker.models.registry import PIPELINES
from stoker.models.talking_video.sampling.settings import SETTINGS
from stoker.models.weights import (
    Entry,
    HubFile,
    Lock,
    LockedFile,
    Origin,
    WeightsError,
    WeightsRefused,
    verify,
)

VAE = "vae/diffusion_pytorch_model.safetensors"


class FakeHub:
    """A hub that serves a folder; `broken` names a file that it delivers damaged."""

    def __init__(self, folder: Path, broken: str | None = None) -> None:
        self.folder = folder
        self.broken = broken
        self.requests: list[str] = []

    def resolve(self, repo: str, revision: str | None) -> tuple[str, tuple[HubFile, ...]]:
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        return revision or "newest", tuple(self._row(path) for path in paths)

    def _row(self, path: Path) -> HubFile:
        data = path.read_bytes()
        large = path.suffix == ".safetensors"
        name = path.relative_to(self.folder).as_posix()
        return HubFile(name, len(data), hashlib.sha256(data).hexdigest() if large else None)

    def read(self, repo: str, path: str, commit: str) -> bytes:
        self.requests.append(path)
        return (self.folder / path).read_bytes()

    def bring(self, entry: Entry, file: LockedFile, to: Path) -> str:
        origin = entry.origin_of(file)
        data = self.read(origin.source, origin.name, origin.commit or "")
        if file.path == self.broken:
            data = data[:-1] + bytes([data[-1] ^ 1])
        to.write_bytes(data)
        return hashlib.sha256(data).hexdigest()


class TestFetch:
    def test_from_the_hub(self, entry: Entry, folder: Path, tmp_path: Path) -> None:
        model_folder, fetched = tmp_path / "here" / "flux-tiny", list[str]()
        weights.fetch(entry, model_folder, FakeHub(folder).bring, lambda file: fetched.append(file.path))
        verify(entry, model_folder)
        assert sorted(fetched) == sorted(file.path for file in entry.files)

    def test_what_came_wrong_is_refused_and_only_that_is_brought_again(
        self, entry: Entry, folder: Path, tmp_path: Path
    ) -> None:
        model_folder = tmp_path / "here" / "flux-tiny"
        with pytest.raises(WeightsRefused, match=VAE):
            weights.fetch(entry, model_folder, FakeHub(folder, broken=VAE).bring)
        assert not model_folder.exists()
        hub = FakeHub(folder)
        weights.fetch(entry, model_folder, hub.bring)
        assert hub.requests == [VAE]

    def test_what_was_hashed_as_it_came_is_not_read_again(
        self, entry: Entry, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of what a fetch that broke off has left, nobody knows the digest."""
        read: list[str] = []
        hashing = hashlib.file_digest

        def noted(file: Any, name: str) -> Any:
            read.append(Path(file.name).name)
            return hashing(file, name)

        monkeypatch.setattr(hashlib, "file_digest", noted)
        left = tmp_path / "here" / ".flux-tiny.part" / VAE
        left.parent.mkdir(parents=True)
        left.write_bytes((folder / VAE).read_bytes())
        model_folder = tmp_path / "here" / "flux-tiny"
        weights.fetch(entry, model_folder, FakeHub(folder).bring)
        verify(entry, model_folder)
        assert read == [left.name]

    def test_what_cannot_be_brought_leaves_no_folder(self, entry: Entry, tmp_path: Path) -> None:
        model_folder = tmp_path / "here" / "flux-tiny"
        with pytest.raises(WeightsError, match="cannot fetch flux-tiny"):
            weights.fetch(entry, model_folder, FakeHub(tmp_path / "nothing").bring)
        assert not model_folder.exists()

    def test_without_a_way_to_bring_them_the_command_is_named(self, entry: Entry, tmp_path: Path) -> None:
        with pytest.raises(WeightsError, match="run: stoker weights fetch flux-tiny"):
            weights.fetch(entry, tmp_path / "here" / "flux-tiny")

    def test_what_is_there_and_whole_is_not_fetched(self, entry: Entry, folder: Path) -> None:
        hub = FakeHub(folder)
        weights.fetch(entry, folder, hub.bring)
        assert hub.requests == []

    def test_what_is_whole_needs_no_right_to_write(self, entry: Entry, folder: Path) -> None:
        weights.fetch(entry, folder)
        assert sorted(path.name for path in folder.parent.iterdir()) == [
            ".flux-tiny.digests.json",
            "flux-tiny",
        ]

    def test_what_is_there_and_wrong_is_left_to_its_owner(self, entry: Entry, folder: Path) -> None:
        (folder / VAE).write_bytes((folder / VAE).read_bytes()[:-1])
        with pytest.raises(WeightsError, match=r"Remove .* to fetch it again"):
            weights.fetch(entry, folder, FakeHub(folder).bring)
        assert folder.exists()

    def test_unknown_digests_are_not_fetched(self, entry: Entry, tmp_path: Path) -> None:
        blank = Entry("m", entry.source, entry.licence, (LockedFile(VAE),))
        with pytest.raises(WeightsRefused, match="stoker weights lock m"):
            weights.fetch(blank, tmp_path / "m")

    def test_two_at_once_fetch_it_once(self, entry: Entry, folder: Path, tmp_path: Path) -> None:
        hub, model_folder, together = FakeHub(folder), tmp_path / "here" / "m", threading.Barrier(2)

        def one() -> None:
            together.wait(10)
            weights.fetch(entry, model_folder, hub.bring)

        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(hub.requests) == len(entry.files)
        verify(entry, model_folder)

    def test_only_our_own_functions_make_weights(self, entry: Entry, tmp_path: Path) -> None:
        foreign = Entry("m", "built:os:mkdir", "none", entry.files)
        with pytest.raises(WeightsError, match=r"not a module of stoker\.models"):
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
        assert VAE not in hub.requests

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
            (lambda text: text.replace("vae/", "../", 1), "not a path below"),
            (lambda text: text.replace('"vae/', '"/vae/', 1), "not a path below"),
            (lambda text: text.replace("huggingface:", "https:"), "neither built"),
            (lambda text: text.replace('sha256 = "', 'sha256 = "x'), "not a sha256"),
            (lambda text: text.replace("licence", "license"), "licence"),
            (
                lambda text: re.sub(r"\[models\..*?\]", '[models."/home/them"]', text, count=1),
                "is not a name",
            ),
            (lambda text: re.sub(r"\[models\..*?\]", '[models."../them"]', text, count=1), "is not a name"),
            (
                lambda text: text.replace("size = ", "size = -", 1),
                "size -.* not a whole number of bytes from 0",
            ),
            (lambda text: text.replace("size = ", "size = " + "9" * 19, 1), "is not a whole number of bytes"),
            (lambda text: re.sub(r"size = \d+", "size = 1.5", text, count=1), "size 1.5 is not a whole"),
            (lambda text: re.sub(r"size = \d+", "size = true", text, count=1), "size True is not a whole"),
            (
                lambda text: re.sub(
                    'size = .*sha256 = "[^"]*"', 'size = -1, sha256 = "unknown"', text, count=1
                ),
                "size -1 is not a whole",
            ),
            (lambda text: text.replace("vae/", "vae/\\u0000", 1), r"'vae/\\x00.* has a control character"),
            (lambda text: text.replace("vae/", "vae/\\u001b[2J", 1), r"\\x1b\[2J.* has a control character"),
            (
                lambda text: text.replace("huggingface:", "huggingface:\\u0000", 1),
                "source .* a control character",
            ),
            (lambda text: text.replace("size = ", "size = " + "9" * 5000, 1), "cannot read"),
            (lambda text: text + f"x = {'[' * 100_000}", "cannot read"),
            (lambda text: text.replace("vae/", "v" * 256 + "/", 1), "a name of over 255 bytes"),
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
        with pytest.raises(WeightsError, match="no entry 'x'; it has flux-mini, "):
            weights.read_lock().entry("x")

    def test_the_digest_of_an_entry_follows_its_files(self, entry: Entry) -> None:
        turned = Entry("other", entry.source, "other", tuple(reversed(entry.files)))
        assert turned.digest == entry.digest
        fewer = Entry("other", entry.source, "other", entry.files[1:])
        assert fewer.digest != entry.digest


class Repositories:
    """A hub with a folder for each repository; tells what was resolved and brought."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.hubs = {name: FakeHub(folder) for name, folder in folders.items()}
        self.resolved: list[tuple[str, str | None]] = []
        self.requests: list[tuple[str, str, str]] = []

    def resolve(self, repo: str, revision: str | None) -> tuple[str, tuple[HubFile, ...]]:
        self.resolved.append((repo, revision))
        return f"{repo} at {revision}", self.hubs[repo].resolve(repo, revision)[1]

    def read(self, repo: str, path: str, commit: str) -> bytes:
        self.requests.append((repo, path, commit))
        return self.hubs[repo].read(repo, path, commit)

    def bring(self, entry: Entry, file: LockedFile, to: Path) -> str:
        origin = entry.origin_of(file)
        data = self.read(origin.source.removeprefix("huggingface:"), origin.name, origin.commit or "")
        to.write_bytes(data)
        return hashlib.sha256(data).hexdigest()


class TestOrigins:
    """A model whose files come from several repositories."""

    @pytest.fixture
    def hub(self, folder: Path, tmp_path: Path) -> Repositories:
        other = tmp_path / "other"
        (other / "single").mkdir(parents=True)
        (other / "single/talk.safetensors").write_bytes((folder / VAE).read_bytes())
        (other / "config.json").write_text("{}")
        return Repositories({"somebody/flux-tiny": folder, "they/talk": other})

    @pytest.fixture
    def blank(self, entry: Entry) -> Entry:
        """The files of the entry, and two of another repository under other names."""
        talk = "huggingface:they/talk"
        foreign = (
            LockedFile(
                "adapter/talk.safetensors", origin=Origin(talk, "single/talk.safetensors", "a-branch")
            ),
            LockedFile("adapter/config.json", origin=Origin(talk, "config.json", "a-branch")),
        )
        return replace(entry, files=(*(LockedFile(file.path) for file in entry.files), *foreign))

    @pytest.fixture
    def filled(self, blank: Entry, hub: Repositories) -> Entry:
        return weights.lock_from_hub(blank, hub)

    def test_each_is_locked_at_its_own_commit(self, filled: Entry, entry: Entry, hub: Repositories) -> None:
        assert not filled.unknown
        assert filled.commit == f"somebody/flux-tiny at {entry.commit}"
        commits = {file.origin.commit for file in filled.files if file.origin is not None}
        assert commits == {"they/talk at a-branch"}
        assert hub.resolved == [("somebody/flux-tiny", entry.commit), ("they/talk", "a-branch")]

    def test_each_is_brought_from_its_own_and_lies_under_its_name_here(
        self, filled: Entry, hub: Repositories, tmp_path: Path
    ) -> None:
        model_folder = tmp_path / "here" / "m"
        hub.requests.clear()
        weights.fetch(filled, model_folder, hub.bring)
        verify(filled, model_folder)
        assert ("they/talk", "single/talk.safetensors", "they/talk at a-branch") in hub.requests
        assert not [path for path in model_folder.iterdir() if path.name.startswith(".")]

    def test_locked_from_a_folder_they_keep_where_they_come_from(
        self, blank: Entry, filled: Entry, hub: Repositories, tmp_path: Path
    ) -> None:
        weights.fetch(filled, tmp_path / "m", hub.bring)
        again = weights.lock_from_folder(blank, tmp_path / "m")
        assert again.digest == filled.digest
        assert [file.origin for file in again.files] == [file.origin for file in blank.files]

    def test_written_and_read_they_are_the_same(self, blank: Entry, filled: Entry, tmp_path: Path) -> None:
        floating = LockedFile("x.json", origin=Origin("huggingface:a/b", "y.json"))
        lock = Lock([replace(blank, name="blank"), filled, replace(blank, name="b", files=(floating,))])
        weights.write_lock(lock, tmp_path / "weights.lock")
        back = weights.read_lock(tmp_path / "weights.lock").entries
        assert [set(entry.files) for entry in back] == [set(entry.files) for entry in lock.entries]

    def test_the_digest_of_an_entry_does_not_ask_where_its_files_come_from(self, filled: Entry) -> None:
        ours = replace(filled, files=tuple(replace(file, origin=None) for file in filled.files))
        assert ours.digest == filled.digest

    def test_a_source_that_is_no_hub_is_refused(self, filled: Entry, tmp_path: Path) -> None:
        text = weights.dump_lock(Lock([filled]))
        (tmp_path / "weights.lock").write_text(text.replace("huggingface:they", "https:they"))
        with pytest.raises(WeightsError, match="'https:they/talk' is not huggingface"):
            weights.read_lock(tmp_path / "weights.lock")

    def test_a_name_there_that_is_no_path_below_is_refused(self, filled: Entry, tmp_path: Path) -> None:
        last = filled.files[-1]
        assert last.origin is not None
        outside = replace(last, origin=replace(last.origin, name="../../outside"))
        text = weights.dump_lock(Lock([replace(filled, files=(*filled.files[:-1], outside))]))
        (tmp_path / "weights.lock").write_text(text)
        with pytest.raises(WeightsError, match=r"outside' is not a path below"):
            weights.read_lock(tmp_path / "weights.lock")


@pytest.mark.parametrize("name", ["infinitetalk", "infinitetalk-fast"])
class TestInfiniteTalk:
    def test_each_part_has_its_source(self, name: str) -> None:
        entry = weights.read_lock().entry(name)
        sources = {file.path.partition("/")[0]: entry.origin_of(file).source for file in entry.files}
        own, shared = (
            f"huggingface:Wan-AI/Wan2.1-{model}-Diffusers" for model in ("I2V-14B-480P", "T2V-1.3B")
        )
        assert all(sources.pop(part) == own for part in ("transformer", "image_encoder"))
        assert all(sources.pop(part) == shared for part in ("vae", "text_encoder", "tokenizer"))
        assert sources.pop("adapter") == "huggingface:MeiGen-AI/InfiniteTalk"
        assert sources.pop("audio_encoder") == "huggingface:TencentGameMate/chinese-wav2vec2-base"
        assert set(sources) == ({"distilled"} if name.endswith("fast") else set())

    def test_with_an_unknown_digest_it_is_neither_loaded_nor_fetched(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = weights.read_lock()
        unfilled = replace(
            found.entry(name), files=tuple(LockedFile(file.path) for file in found.entry(name).files)
        )
        weights.write_lock(found.with_entry(unfilled), tmp_path / "weights.lock")
        monkeypatch.setattr("stoker.models.weights.lock.lock_path", lambda: tmp_path / "weights.lock")
        (tmp_path / name).mkdir()
        for use in (lambda: weights.ready(name, tmp_path), lambda: weights.fetch(unfilled, tmp_path / name)):
            with pytest.raises(WeightsRefused, match="its digest is unknown") as caught:
                use()
            assert str(caught.value).endswith(f"stoker weights lock {name}")


@pytest.mark.parametrize("name", [name for name, entry in PIPELINES.items() if not entry.small])
def test_weights_of_each_pipeline_have_a_source_and_are_refused_until_they_are_filled(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is known of them today: with one digest unknown, nothing is fetched, read or loaded."""
    found = weights.read_lock()
    entry = found.entry(PIPELINES[name].weights)
    assert entry.source.startswith("huggingface:")
    assert all(entry.origin_of(file).source.startswith("huggingface:") for file in entry.files)
    last = entry.files[-1]
    unfilled = replace(entry, files=(*entry.files[:-1], LockedFile(last.path, origin=last.origin)))
    weights.write_lock(found.with_entry(unfilled), tmp_path / "weights.lock")
    assert f'path = "{last.path}", sha256 = "unknown"' in (tmp_path / "weights.lock").read_text()
    monkeypatch.setattr("stoker.models.weights.lock.lock_path", lambda: tmp_path / "weights.lock")
    (tmp_path / entry.name).mkdir()
    for use in (
        lambda: weights.begin(entry.name, tmp_path),
        lambda: weights.ready(entry.name, tmp_path),
        lambda: weights.fetch(unfilled, tmp_path / entry.name),
    ):
        with pytest.raises(WeightsRefused, match="its digest is unknown") as caught:
            use()
        assert str(caught.value).endswith(f"stoker weights lock {entry.name}")


def test_what_is_public_of_the_real_models_is_locked() -> None:
    """Each digest with its size, and the commit of the repository that it was published at."""
    lock = weights.read_lock()
    for name in ("flux-1-dev", "flux-1-schnell", "infinitetalk", "infinitetalk-fast"):
        entry = lock.entry(name)
        known = [file for file in entry.files if file.sha256]
        assert known, name
        for file in known:
            assert file.size, file.path
            assert len(entry.origin_of(file).commit or "") == 40, file.path
    assert not lock.entry("flux-1-schnell").unknown


def test_the_sampling_settings_of_the_pipelines_have_their_files_in_the_lock() -> None:
    lock = weights.read_lock()
    for pipeline in PIPELINES.values():
        settings = SETTINGS.get(pipeline.options.get("sampling", ""))
        if settings is not None and settings.lora is not None:
            assert settings.lora in {file.path for file in lock.entry(pipeline.weights).files}


def test_every_pipeline_has_its_weights_in_the_lock() -> None:
    lock = weights.read_lock()
    for pipeline in PIPELINES.values():
        entry = lock.entry(pipeline.weights)
        assert entry.is_built or entry.commit is not None or entry.unknown
        assert entry.licence
        assert all(
            Path(file.path).suffix in {".jinja", ".json", ".safetensors", ".txt", ".model"}
            for file in entry.files
        )


def test_the_weights_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", "/weights")
    assert weights.weights_folder() == Path("/weights")
    monkeypatch.delenv("STOKER_WEIGHTS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert weights.weights_folder() == Path("/cache/stoker/weights")


def test_a_lock_is_parsed_once_and_read_again_where_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    loads = tomllib.loads
    monkeypatch.setattr(tomllib, "loads", lambda text: (parsed.append(text), loads(text))[1])
    path = tmp_path / "weights.lock"
    for name in ("one", "one", "two"):
        weights.write_lock(Lock([Entry(name, weights.FOLDER, "MIT", ())]), path)
        assert [entry.name for entry in weights.read_lock(path).entries] == [name]
    assert len(parsed) == 2
