"""The outbox's file: what was saved comes back, what was torn is noticed."""

from __future__ import annotations

import asyncio
import os
import stat
import threading

import pytest

from stoker.agent.errors import OutboxUnusable
from stoker.agent.jobs.reports.outbox_file import OutboxFile, decode, encode
from stoker.agent.jobs.reports.reports import Reports
from stoker.cli.expected_errors import is_expected
from stoker.testing.memory_disk import MemoryDisk
from stoker.wire.messages import Artifact, Chunk, Outcome, Ref, Refused, Save, Span, Usage

BODIES = [
    Chunk("j1", 1, 0, b'"\xc3\xa9\\n"'),
    Chunk("j1", 1, 1, b"", Ref("e/j1/1/chunk-1.json", 3_000_000, "abc")),
    Save("j1", 1, 0, 2, b"\x00state"),
    Save("j1", 1, 1, 2, b"", Ref("e/j1/1/save-1", 3_000_000, "abc")),
    Outcome("j1", 1, "w1", "completed", output=b"{}", wait_ms=3, execution_ms=4),
    Outcome(
        "j2",
        2,
        "w1",
        "failed",
        output_ref=Ref("k", 5, "abc"),
        error="line\nline",
        retryable=True,
        spans=(Span("execution", "device_ms", 10, 20),),
        artifacts=(Artifact("k", 1, "def", "image/png"),),
        log=("one", "tw\u00f6"),
        log_at_ms=(1_764_292_471_207, 1_764_292_471_208),
        case=b'{"python":"3.12.3"}',
    ),
    Usage("w1", "b1", 7, "worker", "running", 1_000, 61_000, "echo", 2, ("gpu-0",)),
    Refused("j3", 1, "the agent is shutting down", at_once=True),
]


def test_reports_come_back_as_they_were():
    assert decode(encode(BODIES)) == BODIES
    assert decode(encode([])) == []


def test_what_an_older_agent_saved_is_read():
    saved = (
        b'{"kind": "chunk", "job": "j", "attempt": 1, "n": 0, "value": "MQ=="}\n'
        b'{"kind": "outcome", "job": "j", "attempt": 1, "worker": "w", "end": "completed", "output": "e30=",'
        b' "output_ref": null, "error": null, "retryable": false, "wait_ms": 1, "execution_ms": 2,'
        b' "spans": [], "artifacts": []}\n'
    )
    chunk = Chunk("j", 1, 0, b"1")
    assert decode(saved) == [chunk, Outcome("j", 1, "w", "completed", b"{}", wait_ms=1, execution_ms=2)]


@pytest.mark.parametrize("make", [lambda path: MemoryDisk(), OutboxFile], ids=["memory", "file"])
def test_the_last_save_is_what_loads(make, tmp_path):
    disk = make(tmp_path / "data" / "outbox")
    assert disk.load() is None
    disk.save(b"one")
    disk.save(encode(BODIES))
    assert disk.load() == encode(BODIES)
    disk.save(b"")
    assert disk.load() == b""


def test_a_second_life_finds_it_and_nobody_else_may_read_it(tmp_path):
    path = tmp_path / "outbox"
    OutboxFile(path).save(b"kept")
    assert OutboxFile(path).load() == b"kept"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["outbox"]


@pytest.mark.parametrize("cut", [0, 5, 16, 40, 48, 60, -1])
def test_a_torn_file_is_noticed_wherever_it_is_torn(tmp_path, cut):
    path = tmp_path / "outbox"
    OutboxFile(path).save(encode(BODIES))
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    assert OutboxFile(path).load() is None


def test_one_altered_bit_is_noticed(tmp_path):
    path = tmp_path / "outbox"
    OutboxFile(path).save(encode(BODIES))
    whole = bytearray(path.read_bytes())
    whole[-10] ^= 1
    path.write_bytes(whole)
    assert OutboxFile(path).load() is None


def test_an_outbox_that_is_a_folder_is_a_sentence_at_the_start(tmp_path):
    (tmp_path / "outbox").mkdir()
    with pytest.raises(
        OutboxUnusable, match=r"outbox .*/outbox cannot be read: Is a directory; .* move it"
    ) as raised:
        OutboxFile(tmp_path / "outbox").load()
    assert is_expected(raised.value)


async def test_an_outbox_that_becomes_a_folder_ends_nothing(tmp_path, caplog):
    reports = Reports(OutboxFile(tmp_path / "outbox"), lambda _: None)
    (tmp_path / "outbox").mkdir()
    (tmp_path / "outbox" / "file").touch()
    reports.add(made("j1"))
    reports.save()
    (line,) = caplog.messages
    assert "the outbox cannot be written, its reports are in memory only" in line
    assert reports.take(), "it is sent all the same"
    reports.close()


def test_a_save_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "outbox"
    OutboxFile(path).save(b"old")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        OutboxFile(path).save(b"new")
    monkeypatch.undo()
    assert OutboxFile(path).load() == b"old"


def test_it_is_on_disk_before_it_takes_the_old_ones_place(tmp_path, monkeypatch):
    calls = []
    sync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), sync(fd)))
    monkeypatch.setattr(os, "rename", lambda a, b: (calls.append("rename"), rename(a, b)))
    OutboxFile(tmp_path / "outbox").save(b"x")
    assert calls == ["fsync", "rename", "fsync"]


# ---- a disk that takes long ------------------------------------------------------------------------


async def save_soon(disk, data):
    """The error that it is told, or None."""
    done = asyncio.get_running_loop().create_future()
    disk.save_soon(data, done.set_result)
    return await done


async def test_a_background_save_reports_when_it_is_there_or_why_it_is_not(tmp_path, monkeypatch):
    disk = OutboxFile(tmp_path / "outbox")
    assert await save_soon(disk, lambda: b"one") is None
    assert disk.load() == b"one"
    monkeypatch.setattr(os, "rename", lambda *_: os.stat("/nowhere"))
    assert isinstance(await save_soon(disk, lambda: b"two"), FileNotFoundError)
    assert disk.load() == b"one"


async def test_a_host_without_a_thread_to_spare_is_reported_too(tmp_path, monkeypatch):
    def none_left(self):
        raise RuntimeError("can't start new thread")

    disk = OutboxFile(tmp_path / "outbox")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        assert isinstance(await save_soon(disk, lambda: b"one"), RuntimeError)
    assert await save_soon(disk, lambda: b"two") is None
    assert disk.load() == b"two"


async def test_what_was_requested_last_stays_whoever_is_faster(tmp_path):
    disk, begun, go = OutboxFile(tmp_path / "outbox"), threading.Event(), threading.Event()

    def slow():
        begun.set()
        go.wait(30)
        return b"older"

    saving = asyncio.ensure_future(save_soon(disk, slow))
    await asyncio.to_thread(begun.wait, 30)
    disk.save(b"newer")
    go.set()
    assert await saving is None
    assert disk.load() == b"newer"


class SlowDisk(MemoryDisk):
    """What is saved beside is there once `finish` says so."""

    def __init__(self):
        super().__init__()
        self.begun = []

    def save_soon(self, data, done):
        self.begun.append((data, done))

    def finish(self, error=None):
        data, done = self.begun.pop()
        assert not self.begun, "one at a time"
        if error is None:
            self.data = data()
        done(error)

    @property
    def jobs(self):
        return [body.job for body in decode(self.data or b"")]


def made(job):
    return Outcome(job, 1, "w1", "completed", b"{}", wait_ms=1, execution_ms=2)


@pytest.fixture
def play_slow(in_time):
    """Runs a story in virtual time, with a slow disk and the reports that lie there."""

    def run(story):
        async def whole():
            disk = SlowDisk()
            reports = Reports(disk, lambda _: None)
            await story(disk, reports)
            reports.close()

        in_time(whole())

    return run


def test_what_comes_while_the_disk_is_slow_is_written_next(play_slow):
    async def story(disk, reports):
        reports.add(made("j1"))
        await asyncio.sleep(2.0)
        reports.add(made("j2"))
        await asyncio.sleep(30.0)
        assert disk.jobs == []
        disk.finish()
        assert disk.jobs == ["j1"]
        await asyncio.sleep(2.0)
        disk.finish()
        assert disk.jobs == ["j1", "j2"]
        await asyncio.sleep(30.0)
        assert disk.begun == []

    play_slow(story)


def test_who_may_not_go_on_before_it_is_there_waits_and_the_slow_one_changes_nothing(play_slow):
    async def story(disk, reports):
        reports.add(made("j1"))
        await asyncio.sleep(2.0)
        reports.add(made("j2"))
        reports.save()
        assert disk.jobs == ["j1", "j2"]
        ((_, done),) = disk.begun
        done(None)
        disk.begun.clear()
        await asyncio.sleep(30.0)
        assert disk.begun == [], "all of it is there"

    play_slow(story)


def test_what_could_not_be_written_is_tried_again(play_slow):
    async def story(disk, reports):
        reports.add(made("j1"))
        await asyncio.sleep(2.0)
        disk.finish(OSError(28, "No space left on device"))
        await asyncio.sleep(2.0)
        disk.finish()
        assert disk.jobs == ["j1"]

    play_slow(story)


def test_what_can_never_be_written_is_one_line(play_slow, caplog):
    def lines():
        return [text for text in caplog.messages if "its reports are in memory only" in text]

    async def story(disk, reports):
        reports.add(made("j1"))
        for _ in range(5):
            await asyncio.sleep(2.0)
            disk.finish(OSError(21, "Is a directory"))
        assert len(lines()) == 1
        await asyncio.sleep(2.0)
        disk.finish()
        reports.add(made("j2"))
        await asyncio.sleep(2.0)
        disk.finish(OSError(21, "Is a directory"))
        assert len(lines()) == 2, "it had been written meanwhile"

    play_slow(story)


def test_an_end_while_the_disk_is_slow_leaves_no_timer(play_slow):
    async def story(disk, reports):
        reports.add(made("j1"))
        await asyncio.sleep(2.0)
        reports.close()
        disk.finish()
        assert reports._save_alarm.at is None

    play_slow(story)
