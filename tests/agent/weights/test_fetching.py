"""An entry is brought from the hub or a mirror: whole and verified, or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.agent.weights import fetching
from stoker.agent.weights.fetching import Fetcher, Try
from stoker.agent.weights.interfaces import WeightsFailed
from stoker.agent.weights.sources import Hub, folder_mirror, url_mirror
from stoker.agent.weights.store import WeightsStore
from stoker.models.weights import Entry, LockedFile, folder_of, verify
from tests.agent.weights_folder import FILES, SIZE, SharedDigests, made_store
from tests.servers.weights_server import WeightsServer, locked, put

FLUX = locked("flux", FILES)
KEY = FLUX.key
MODEL = "/owner/repo/resolve/c0ffee/model.safetensors"


def failure(fetcher: Fetcher, entry=FLUX) -> WeightsFailed:  # type: ignore[no-untyped-def]
    with pytest.raises(WeightsFailed) as failed:
        fetcher.bring(entry, Try())
    return failed.value


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_fresh_node_has_the_entry_and_its_workers_need_not_read_it_again(
    fetcher: Fetcher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Try()
    fetcher.bring(FLUX, one)
    assert contents(folder / KEY) == FILES
    assert (one.does, one.here_bytes) == ("fetches", SIZE)
    assert names(folder) == [f".{KEY}.agent", f".{KEY}.digests.json", f".{KEY}.lock", ".lock", KEY]
    assert list(fetcher.store.held()) == [FLUX.key]
    monkeypatch.setattr("hashlib.file_digest", None)  # what was read is not read again
    files = tuple(LockedFile(file.path, file.size, file.sha256) for file in FLUX.files)
    entry = Entry("flux", FLUX.source, "none", files, FLUX.commit)
    verify(entry, found := folder_of(entry, folder))
    assert found == folder / KEY


def test_what_is_there_is_not_fetched_again(fetcher: Fetcher, server: WeightsServer) -> None:
    fetcher.bring(FLUX, Try())
    asked = len(server.seen)
    one = Try()
    fetcher.bring(FLUX, one)
    assert (len(server.seen), one.does) == (asked, "")


def test_what_an_operator_copied_is_verified_used_and_never_removed(
    fetcher: Fetcher, folder: Path, server: WeightsServer
) -> None:
    put(folder / "flux", FILES)
    one = Try()
    fetcher.bring(FLUX, one)
    assert (server.seen, one.does) == ([], "verifies")
    assert list(fetcher.store.held()) == [FLUX.key]
    assert (fetcher.store.kept(), fetcher.store.use("flux")) == ({}, None)
    assert not fetcher.store.remove("flux")
    assert contents(folder / "flux") == FILES


def test_what_an_operator_copied_wrongly_is_left_alone_and_named(fetcher: Fetcher, folder: Path) -> None:
    put(folder / "flux", {**FILES, "model.safetensors": b"weighty" * 1000})
    failed = failure(fetcher)
    assert failed.definite
    assert str(failed) == (
        f"{folder}/flux is not as locked (model.safetensors has another sha256); remove it to have it fetched"
    )
    put(folder / "flux", {**FILES, "more.txt": b""})
    assert "more.txt is not locked" in str(failure(fetcher))


@pytest.mark.parametrize("written", ["model.safetensors", "vae/config.json"])
def test_what_is_written_while_it_is_verified_is_not_taken_for_verified(
    fetcher: Fetcher, folder: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """An operator copies others of the same size over them: the digests are of what was there before."""
    put(folder / "flux", FILES)
    other = {**FILES, written: FILES[written].swapcase() if written == "model.safetensors" else b"[]"}
    hashes = hashlib.file_digest

    def hashes_slowly(file: Any, kind: str) -> Any:
        found = hashes(file, kind)
        (folder / "flux" / written).write_bytes(other[written])
        os.utime(folder / "flux" / written, ns=(1, 1))
        return found

    monkeypatch.setattr("hashlib.file_digest", hashes_slowly)
    failed = failure(fetcher)
    assert (str(failed), failed.definite) == (
        f"files in {folder}/flux were written while they were verified",
        False,
    )
    assert fetcher.store.held() == {}
    monkeypatch.setattr("hashlib.file_digest", hashes)
    assert "has another sha256" in str(failure(fetcher))


OTHER = locked("flux", {**FILES, "model.safetensors": b"weights" * 1001})


def test_other_contents_of_the_same_name_lie_beside_those_in_use_and_both_are_found(
    fetcher: Fetcher, folder: Path, server: WeightsServer
) -> None:
    store = fetcher.store
    fetcher.bring(FLUX, Try())
    store.link(FLUX)
    used = store.use(KEY)
    assert used is not None
    server.files[MODEL] = b"weights" * 1001
    fetcher.bring(OTHER, Try())
    assert list(store.held()) == sorted([KEY, OTHER.key])
    assert contents(folder / "flux") == contents(folder / KEY) == FILES, (
        "until a worker starts with the others"
    )
    store.link(OTHER)
    assert (folder / "flux" / "model.safetensors").read_bytes() == b"weights" * 1001
    assert store.problem(FLUX) is None
    store.link(FLUX)
    assert os.readlink(folder / "flux") == KEY, "as a version that is rolled back"
    assert not store.remove(KEY)
    os.close(used)
    assert store.remove(KEY)
    assert not (folder / "flux").is_symlink()
    assert list(store.held()) == [OTHER.key]


def test_a_name_of_the_operators_is_no_link_of_the_agents(
    fetcher: Fetcher, folder: Path, tmp_path: Path
) -> None:
    put(tmp_path / "elsewhere", FILES)
    folder.mkdir(exist_ok=True)
    (folder / "flux").symlink_to(tmp_path / "elsewhere")
    fetcher.bring(FLUX, one := Try())
    assert one.does == "verifies"
    fetcher.store.link(FLUX)
    assert (folder / "flux").readlink() == tmp_path / "elsewhere"
    assert list(fetcher.store.held()) == [KEY]
    fetcher.store.sweep()
    assert contents(folder / "flux") == FILES


def test_what_an_older_agent_fetched_by_name_is_used_and_other_contents_come_beside_it(
    fetcher: Fetcher, folder: Path, server: WeightsServer
) -> None:
    put(folder / "flux", FILES)
    (folder / ".flux.agent").write_text(f"{SIZE}\n")
    fetcher.bring(FLUX, Try())
    assert (server.seen, fetcher.store.name_of(FLUX)) == ([], "flux")
    used = fetcher.store.use("flux")
    assert used is not None
    server.files[MODEL] = b"weights" * 1001
    fetcher.bring(OTHER, Try())
    assert fetcher.store.name_of(OTHER) == OTHER.key
    assert contents(folder / "flux") == FILES
    os.close(used)


def test_what_the_agent_fetched_and_is_wrong_now_is_fetched_again(fetcher: Fetcher, folder: Path) -> None:
    fetcher.bring(FLUX, Try())
    (folder / KEY / "model.safetensors").write_bytes(b"x")
    fetcher.bring(FLUX, Try())
    assert contents(folder / KEY) == FILES


def test_a_broken_fetch_is_resumed(fetcher: Fetcher, server: WeightsServer, folder: Path) -> None:
    (folder / f".{KEY}.part").mkdir(parents=True)
    (folder / f".{KEY}.part" / "model.safetensors").write_bytes(FILES["model.safetensors"][:3000])
    one = Try()
    fetcher.bring(FLUX, one)
    assert server.seen[0][:2] == (MODEL, "bytes=3000-")
    assert (one.found_bytes, one.here_bytes) == (3000, SIZE)


def test_a_part_that_is_wrong_is_found_by_its_digest_and_fetched_anew(
    fetcher: Fetcher, folder: Path, server: WeightsServer
) -> None:
    (folder / f".{KEY}.part").mkdir(parents=True)
    (folder / f".{KEY}.part" / "model.safetensors").write_bytes(b"x" * 3000)
    fetcher.bring(FLUX, Try())
    assert contents(folder / KEY) == FILES
    asked = [wanted for path, wanted, _ in server.seen if path == MODEL]
    assert asked == ["bytes=3000-", None], "at once: what lay there is no fault of the hub's"


def test_what_the_hub_sends_wrongly_is_not_kept(
    fetcher: Fetcher, folder: Path, server: WeightsServer
) -> None:
    server.files[MODEL] = b"weighty" * 1000
    failed = failure(fetcher)
    assert failed.definite
    assert "model.safetensors of owner/repo at c0ffee: its sha256 is " in str(failed)
    assert not (folder / KEY).exists()
    assert len(server.seen) == 1


def test_what_else_lies_in_the_part_does_not_get_into_the_entry(fetcher: Fetcher, folder: Path) -> None:
    put(folder / f".{KEY}.part", {".cache/huggingface/x.lock": b"", ".elsewhere/y": b"1", "old.bin": b"2"})
    fetcher.bring(FLUX, Try())
    assert contents(folder / KEY) == FILES
    assert names(folder / KEY) == ["model.safetensors", "vae"]


def test_every_refusal_has_a_sentence(store: WeightsStore, server: WeightsServer) -> None:
    anonymous, known = Fetcher(store, Hub(server.url)), Fetcher(store, Hub(server.url, "hf_secret"))
    server.statuses[MODEL] = 401
    assert str(failure(anonymous)) == (
        "model.safetensors of owner/repo at c0ffee is refused (401); this agent has no HF_TOKEN, and the"
        f" licence of owner/repo may have to be accepted at {server.url}/owner/repo"
    )
    server.statuses[MODEL] = 403
    assert "is refused (403); HF_TOKEN of this agent may not read it" in str(failure(known))
    assert server.seen[-1][2] == "Bearer hf_secret"
    server.statuses[MODEL] = 404
    failed = failure(known)
    assert str(failed) == "there is no model.safetensors of owner/repo at c0ffee (404)"
    assert failed.definite
    server.statuses[MODEL] = 503
    failed = failure(known)
    assert "answered 503" in str(failed)
    assert not failed.definite
    unknown = replace(FLUX, files=(replace(FLUX.files[0], sha256=""),))
    assert "is unknown; fill the lock with: stoker weights lock flux" in str(failure(known, unknown))


def test_a_full_disk_is_said_and_what_arrived_stays(
    fetcher: Fetcher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr(fetching, "download", full)
    failed = failure(fetcher)
    assert (str(failed), failed.definite) == ("the disk is full", False)


def test_a_disk_without_room_is_not_begun_to_be_filled(server: WeightsServer, folder: Path) -> None:
    free = shutil.disk_usage(folder.parent).free
    store = WeightsStore(folder, 1_000_000, SharedDigests(), reserve_bytes=free * 2)
    assert "flux has 7.0 kB, and the disk lacks" in str(failure(Fetcher(store, Hub(server.url))))
    assert server.seen == []


def test_the_least_recently_used_makes_room_and_what_is_in_use_does_not(
    server: WeightsServer, folder: Path
) -> None:
    fetcher = Fetcher(store := made_store(folder, 2 * SIZE + 10), Hub(server.url))
    for n, name in enumerate(("flux", "sdxl")):
        fetcher.bring(entry := locked(name, FILES), Try())
        os.utime(folder / f".{entry.key}.agent", (n, n))
    used = store.use(KEY)
    assert used is not None
    os.utime(folder / f".{KEY}.agent", (0, 0))
    fetcher.bring(ink := locked("ink", FILES), Try())
    assert [key.partition("@")[0] for key in store.held()] == ["flux", "ink"]
    assert not [name for name in names(folder) if "sdxl" in name and not name.endswith(".lock")]
    other = store.use(ink.key)
    assert other is not None
    assert "sdxl has 7.0 kB; 14.0 kB of at most 14.0 kB are in use" in str(
        failure(fetcher, locked("sdxl", FILES))
    )
    os.close(used)
    os.close(other)
    fetcher.bring(locked("sdxl", FILES), Try())
    assert [key.partition("@")[0] for key in store.held()] == ["ink", "sdxl"]


def test_two_that_make_room_at_once_do_not_take_the_same(
    server: WeightsServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for one of them; the second looks before the first has marked what it takes."""
    fetcher = Fetcher(store := made_store(folder, SIZE + 10), Hub(server.url))
    second = threading.Thread(
        target=lambda: failures.append(failure(Fetcher(store, Hub(server.url)), locked("sdxl", FILES)))
    )
    failures: list[WeightsFailed] = []
    begin, looked = store.begin, store.limits

    def begins(name: str, size_bytes: int) -> int:
        if name == KEY:
            second.start()
            second.join(0.2)  # it waits for this one
        return begin(name, size_bytes)

    monkeypatch.setattr(store, "begin", begins)
    server.gate, server.gate_at = threading.Event(), 100
    first = threading.Thread(target=lambda: fetcher.bring(FLUX, Try()))
    first.start()
    server.halfway.wait(60)
    second.join(60)
    server.gate.set()
    first.join(60)
    assert looked().most_bytes >= sum(kept.here_bytes for kept in store.kept().values())
    assert [str(failed) for failed in failures] == [
        "sdxl has 7.0 kB; 7.0 kB of at most 7.0 kB are in use",
    ]


def test_any_name_can_be_kept_while_others_go(server: WeightsServer, folder: Path) -> None:
    fetcher = Fetcher(store := made_store(folder), Hub(server.url))
    west = locked("gone-west", FILES).key
    for name in ("gone-west", "flux"):
        fetcher.bring(locked(name, FILES), Try())
    store.remove(KEY)
    store.sweep()
    assert list(store.kept()) == [west]
    assert (folder / f".{west}.digests.json").exists()


def test_what_workers_wait_for_makes_no_room(server: WeightsServer, folder: Path) -> None:
    fetcher = Fetcher(store := made_store(folder, 2 * SIZE + 10), Hub(server.url))
    for n, name in enumerate(("flux", "sdxl")):
        fetcher.bring(entry := locked(name, FILES), Try())
        os.utime(folder / f".{entry.key}.agent", (n, n))
    ink = locked("ink", FILES)
    fetcher.bring(ink, Try(), {KEY, ink.key})
    assert [key.partition("@")[0] for key in store.held()] == ["flux", "ink"]


def test_on_nfs_what_is_idle_counts_and_makes_room(
    server: WeightsServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, a lock that excludes others needs a descriptor that may write."""
    flock = fcntl.flock

    def nfs(file, how: int) -> None:  # type: ignore[no-untyped-def]
        if how & fcntl.LOCK_EX and fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", nfs)
    fetcher = Fetcher(store := made_store(folder, SIZE + 10), Hub(server.url))
    for name in ("flux", "sdxl"):
        fetcher.bring(locked(name, FILES), Try())
    assert list(store.kept()) == [locked("sdxl", FILES).key]


def test_another_process_that_fetches_it_goes_first(fetcher: Fetcher, store: WeightsStore) -> None:
    with store.fetching(KEY):
        failed = failure(fetcher)
    assert (str(failed), failed.definite) == ("another process is fetching them", False)


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_mirror_takes_the_place_of_the_hub(
    store: WeightsStore, server: WeightsServer, tmp_path: Path, kind: str
) -> None:
    put(tmp_path / "mirror" / "flux", FILES)
    server.files |= {f"/m/flux/{path}": data for path, data in FILES.items()}
    mirror = folder_mirror(tmp_path / "mirror") if kind == "folder" else url_mirror(f"{server.url}/m")
    Fetcher(store, Hub("http://127.0.0.1:1"), mirror).bring(replace(FLUX, source="folder", commit=""), Try())
    assert list(store.held()) == [FLUX.key]
    missing = locked("flux", {**FILES, "more.json": b"{}"})
    assert "more.json in the mirror" in str(failure(Fetcher(store, Hub(), mirror), missing))


class Killed(BaseException):
    """Nothing after it runs but what a killed process leaves undone anyway."""


@pytest.mark.parametrize("step", range(14))
def test_killed_at_any_step_the_next_agent_ends_with_the_whole_entry(
    server: WeightsServer, folder: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that changes the disk is a step; the process dies before the one of this number."""
    store = made_store(folder, SIZE + 10)
    Fetcher(store, Hub(server.url)).bring(locked("old", FILES), Try())
    count = 0

    def dies(module: object, name: str) -> None:
        true = getattr(module, name)

        def counted(*arguments, **more):  # type: ignore[no-untyped-def]
            nonlocal count
            if str(folder) in str(arguments) or name == "record":
                count += 1
                if count > step:
                    raise Killed
            return true(*arguments, **more)

        monkeypatch.setattr(module, name, counted)

    for module, name in (
        (Path, "rename"),
        (Path, "replace"),
        (Path, "unlink"),
        (Path, "mkdir"),
        (Path, "write_text"),
        (SharedDigests, "record"),
        (fetching, "download"),
    ):
        dies(module, name)
    with contextlib.suppress(Killed):
        Fetcher(store, Hub(server.url)).bring(FLUX, Try())
    monkeypatch.undo()
    if (folder / KEY).exists():
        assert contents(folder / KEY) == FILES, "what has its name is whole"
    after = made_store(folder, SIZE + 10)
    after.sweep()
    Fetcher(after, Hub(server.url)).bring(FLUX, Try())
    assert list(after.held()) == [FLUX.key], "and the old one made room"
    assert contents(folder / KEY) == FILES
    assert not [name for name in names(folder) if name.startswith("..gone-") or name.endswith(".part")]
    assert list(after.kept()) == [KEY]
