"""The parts of a template that need no process: what is installed, what is proven, what a child restores."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from stoker.worker import zygote_messages
from stoker.worker.zygote import child, fork_safety
from stoker.worker.zygote.fork_safety import UnsafeToFork


@pytest.mark.parametrize("top", ["json", "pytest", "_ctypes", "os"])
def test_what_is_installed(top: str) -> None:
    fork_safety.require_installed(top)


@pytest.mark.parametrize("top", ["stoker_is_not_this", "tests", "json.tool", "", "a-b"])
def test_what_is_not(top: str) -> None:
    with pytest.raises(UnsafeToFork):
        fork_safety.require_installed(top)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a template; the process of the tests has threads of its own."""
    monkeypatch.setattr(fork_safety, "_threads", lambda: 1)


@pytest.mark.usefixtures("alone")
def test_what_was_open_before_is_no_fault_of_the_import() -> None:
    before = fork_safety.descriptors()
    fork_safety.require_fork_safe("it", before)
    fd = os.open("/dev/full", os.O_RDONLY)
    try:
        with pytest.raises(UnsafeToFork, match="importing it leaves the device /dev/full open"):
            fork_safety.require_fork_safe("it", before)
        fork_safety.require_fork_safe("it", fork_safety.descriptors())
        other = os.dup2(os.open("/etc/hostname", os.O_RDONLY), fd)  # one number, another file
        with pytest.raises(UnsafeToFork, match="leaves /etc/hostname open"):
            fork_safety.require_fork_safe("it", before)
        assert other == fd
    finally:
        os.close(fd)
        for left in fork_safety.descriptors().keys() - before.keys():
            os.close(left)


def test_a_thread_is_seen() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="ticker")
    thread.start()
    try:
        with pytest.raises(UnsafeToFork, match=r"importing it leaves a thread running \(.*ticker.*\)"):
            fork_safety.require_fork_safe("it", fork_safety.descriptors())
    finally:
        end.set()
        thread.join()


@pytest.mark.usefixtures("alone")
def test_a_mapped_device_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "mapped", lambda: {"/lib/libc.so.6", "/dev/nvidia0", "[heap]"})
    with pytest.raises(UnsafeToFork, match="importing it leaves the device /dev/nvidia0 mapped"):
        fork_safety.require_fork_safe("it", fork_safety.descriptors())


@pytest.mark.parametrize(
    ("text", "number"),
    [("4", 4), ("8,2", 8), (" 3 ", 3), ("0", None), ("many", None), ("", None), (None, None)],
)
def test_a_number_of_threads_as_it_is_declared(text: str | None, number: int | None) -> None:
    assert child._number(text) == number


def test_two_processors_of_one_core_count_once() -> None:
    assert 1 <= child.physical_cores(os.sched_getaffinity(0)) <= len(os.sched_getaffinity(0))
    assert child.physical_cores([100_000, 100_001]) == 2  # of which the kernel tells nothing
    assert child.physical_cores([]) == 1


def test_a_message_and_its_descriptors_arrive_together() -> None:
    ours, theirs = zygote_messages.pair()
    with ours, theirs, open("/etc/hostname", "rb") as file:
        zygote_messages.send(ours, {"kind": "x", "text": "ä" * 1000}, [file.fileno()])
        with pytest.raises(zygote_messages.TooLarge, match="196608 are allowed"):
            zygote_messages.send(ours, {"text": "x" * zygote_messages.MESSAGE_MAX})
        received = zygote_messages.receive(theirs)
        assert received is not None
        message, (fd,) = received
        assert message == {"kind": "x", "text": "ä" * 1000}
        assert not os.get_inheritable(fd)
        assert os.pread(fd, 100, 0) == Path("/etc/hostname").read_bytes()[:100]
        os.close(fd)
        ours.close()
        assert zygote_messages.receive(theirs) is None
