"""The parts of a template that need no process: what is installed, what is proven, what a child restores."""

from __future__ import annotations

import os
import threading
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from stoker.worker import template_child, template_proof, template_words
from stoker.worker.template_proof import Unfit


@pytest.mark.parametrize("top", ["json", "pytest", "_ctypes", "os"])
def test_what_is_installed(top: str) -> None:
    template_proof.require_installed(top, packages_distributions())


@pytest.mark.parametrize("top", ["stoker_is_not_this", "tests", "json.tool", "", "a-b"])
def test_what_is_not(top: str) -> None:
    with pytest.raises(Unfit):
        template_proof.require_installed(top, packages_distributions())


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a template; the process of the tests has threads of its own."""
    monkeypatch.setattr(template_proof, "_threads", lambda: 1)


@pytest.mark.usefixtures("alone")
def test_what_was_open_before_is_no_fault_of_the_import() -> None:
    before = template_proof.descriptors()
    template_proof.prove("it", before)
    fd = os.open("/dev/full", os.O_RDONLY)
    try:
        with pytest.raises(Unfit, match="importing it leaves the device /dev/full open"):
            template_proof.prove("it", before)
        template_proof.prove("it", template_proof.descriptors())
        other = os.dup2(os.open("/etc/hostname", os.O_RDONLY), fd)  # one number, another file
        with pytest.raises(Unfit, match="leaves /etc/hostname open"):
            template_proof.prove("it", before)
        assert other == fd
    finally:
        os.close(fd)
        for left in template_proof.descriptors().keys() - before.keys():
            os.close(left)


def test_a_thread_is_seen() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="ticker")
    thread.start()
    try:
        with pytest.raises(Unfit, match=r"importing it leaves a thread running \(.*ticker.*\)"):
            template_proof.prove("it", template_proof.descriptors())
    finally:
        end.set()
        thread.join()


@pytest.mark.usefixtures("alone")
def test_a_mapped_device_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_proof, "mapped", lambda: {"/lib/libc.so.6", "/dev/nvidia0", "[heap]"})
    with pytest.raises(Unfit, match="importing it leaves the device /dev/nvidia0 mapped"):
        template_proof.prove("it", template_proof.descriptors())


@pytest.mark.parametrize(
    ("text", "number"),
    [("4", 4), ("8,2", 8), (" 3 ", 3), ("0", None), ("many", None), ("", None), (None, None)],
)
def test_a_number_of_threads_as_it_is_declared(text: str | None, number: int | None) -> None:
    assert template_child._number(text) == number


def test_two_processors_of_one_core_count_once() -> None:
    assert 1 <= template_child.physical_cores(os.sched_getaffinity(0)) <= len(os.sched_getaffinity(0))
    assert template_child.physical_cores([100_000, 100_001]) == 2  # of which the kernel tells nothing
    assert template_child.physical_cores([]) == 1


def test_a_message_and_its_descriptors_arrive_together() -> None:
    ours, theirs = template_words.pair()
    with ours, theirs, open("/etc/hostname", "rb") as file:
        template_words.send(ours, {"kind": "x", "text": "ä" * 1000}, [file.fileno()])
        with pytest.raises(template_words.TooLarge, match="196608 are allowed"):
            template_words.send(ours, {"text": "x" * template_words.MESSAGE_MAX})
        received = template_words.receive(theirs)
        assert received is not None
        message, (fd,) = received
        assert message == {"kind": "x", "text": "ä" * 1000}
        assert not os.get_inheritable(fd)
        assert os.pread(fd, 100, 0) == Path("/etc/hostname").read_bytes()[:100]
        os.close(fd)
        ours.close()
        assert template_words.receive(theirs) is None
