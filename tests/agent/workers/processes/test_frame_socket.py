"""Frames between the agent's loop and a real process: large, many, with descriptors, and broken ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.workers.processes import frame_socket, running_process
from stoker.agent.workers.processes.frame_socket import FrameSocket
from stoker.worker.frames import Frame, FrameError, encode

MIB = 1024 * 1024


@contextlib.contextmanager
def closing_descriptor(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 16 * MIB])
async def test_bodies_of_any_size_both_ways(start: Any, size: int) -> None:
    process, watcher = start("got = hear(); say('done', got.body)")
    body = b"1" * size
    process.send(Frame("run", {"job": "j", "attempt": 1}, body))
    assert (await watcher.next("done")).body == body


async def test_sending_never_waits_for_a_worker_that_does_not_read(start: Any) -> None:
    process, watcher = start(
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        say("ready")
        signal.sigwait([signal.SIGUSR1])
        for n in range(200):
            got = hear()
            assert (got.fields["n"], len(got.body)) == (n, 100_000), got.fields
        say("done")
        """
    )
    await watcher.next("ready")
    for n in range(200):  # 20 MB, a hundred times what the socket takes
        process.send(Frame("run", {"n": n}, b"x" * 100_000))
    os.kill(process.pid, signal.SIGUSR1)
    await watcher.next("done")


async def test_a_descriptor_each_way(start: Any, tmp_path: Any) -> None:
    process, watcher = start(
        """
        got = hear()
        say("file", fd=got.fd, said=os.read(got.fd, 10).decode())
        hear()
        """
    )
    (tmp_path / "given").write_bytes(b"hello")
    with closing_descriptor(tmp_path / "given") as descriptor:
        process.send(Frame("run", fd=descriptor))
        answer = await watcher.next("file")
        assert answer.fields["said"] == "hello"
        assert answer.fd is not None
        assert os.fstat(answer.fd).st_ino == os.fstat(descriptor).st_ino
        assert not os.get_inheritable(answer.fd)
        os.close(answer.fd)


async def test_descriptors_that_were_never_sent_are_closed(start: Any, tmp_path: Any) -> None:
    # The worker reads nothing; what waits in the agent's buffer is dropped with it (the leak check looks).
    process, watcher = start("say('ready'); forever()")
    await watcher.next("ready")
    for _ in range(3):
        process.send(Frame("run", {}, b"x" * 500_000))
        process.send(Frame("run", {}, b"x" * (MIB + 1)))
    process.kill()
    await watcher.exit


async def test_paused_frames_wait_and_come_in_order(start: Any) -> None:
    process, watcher = start(
        """
        for n in range(3000):
            say("progress", b"x" * 1000, n=n)
        say("done")
        hear()
        """
    )
    first = await watcher.next("progress")
    process.pause()
    waiting = watcher.frames.qsize()
    for _ in range(100):  # turns of the loop: a reader would be called at each
        await asyncio.sleep(0)
    assert watcher.frames.qsize() == waiting
    process.resume()
    rest = [await watcher.next("progress") for _ in range(2999)]
    assert [frame.fields["n"] for frame in (first, *rest)] == list(range(3000))
    await watcher.next("done")


async def test_pausing_from_within_a_frame_holds_the_next_one(start: Any) -> None:
    process, watcher = start(
        "data = b''.join(encode(Frame('progress'))[0] for _ in range(9)); sock.sendall(data); hear()"
    )
    on_frame = watcher.on_frame

    def pause_at_each(frame: Frame) -> None:
        on_frame(frame)
        process.pause()
        process.resume()
        process.pause()

    process._frames._on_frame = pause_at_each
    for _ in range(9):
        await watcher.next("progress")
        assert watcher.frames.empty()
        process.resume()


async def test_frames_held_while_paused_come_before_the_exit(start: Any) -> None:
    process, watcher = start("[say('progress', n=n) for n in range(50)]")
    process.pause()
    await watcher.exit
    assert watcher.frames.qsize() == 50


async def test_the_exit_is_reported_whatever_the_last_frames_led_to(start: Any) -> None:
    process, watcher = start("say('progress')")
    process.pause()
    failures: list[Any] = []

    def breaks(_: Frame) -> None:
        raise RuntimeError("nothing begins any more")

    process._frames._on_frame = breaks
    asyncio.get_running_loop().set_exception_handler(lambda _, about: failures.append(about["exception"]))
    await watcher.exit
    assert [str(failure) for failure in failures] == ["nothing begins any more"]


async def test_a_full_outbox_loses_no_last_messages_of_a_dead_worker() -> None:
    ours, theirs = socket.socketpair()
    received: list[int] = []

    def on_frame(frame: Frame) -> None:
        received.append(frame.fields["n"])
        frames.pause()  # as whoever takes it does when it has no room for the next

    frames = FrameSocket(ours, asyncio.get_running_loop(), on_frame, pytest.fail)
    with theirs:
        for n in range(3):
            theirs.sendall(encode(Frame("done", {"n": n}))[0])
    frames.finish()
    assert received == [0, 1, 2]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("sock.sendall(b'\\xff' * 64)", "a frame announces"),
        ("sock.sendall(b'\\0\\0\\0\\2\\0\\0\\0\\0[]')", "not a JSON object"),
        ('sock.sendall(b\'\\0\\0\\0\\x10\\0\\0\\0\\0\' + b\'{"t":"x","fd":1}\')', "did not come"),
        ("[socket.send_fds(sock, [b'\\0'], [0, 0]) for _ in range(7)]", "descriptors came that no frame"),
        ("socket.send_fds(sock, [b'\\0'], [0] * 200)", "more than 8 descriptors"),
    ],
)
async def test_a_worker_that_breaks_the_protocol_is_killed(start: Any, script: str, why: str) -> None:
    process, watcher = start(f"{script}\nforever()")
    await watcher.exit
    (reported,) = watcher.broken
    assert why in reported
    await process.ended


@pytest.mark.parametrize("body", ["b'{' * size", "b'\\xff' * size"])
async def test_a_large_body_is_looked_at_too(start: Any, body: str) -> None:
    _, watcher = start(f"size = {2 * MIB}\nsay('progress')\nsay('done', {body})\nforever()")
    await watcher.exit
    assert [one[:33] for one in watcher.broken] == ["a body of 2097152 bytes is not JSON"[:33]]
    assert watcher.frames.qsize() == 1


ODD = {
    "not sealed": "os.memfd_create('x')",
    "sparse": "sparse()",
    "of another size": "sealed(5)",
    "a pipe": "os.pipe()[0]",
    "a socket": "sock.fileno()",
    "a folder": "os.open('/', 0)",
    "a process": "os.pidfd_open(os.getpid())",
    "its memory": "os.open('/proc/self/mem', 0)",
    "a file": "os.open(__file__, 0)",
    "a device": "os.open('/dev/zero', 0)",
}


@pytest.mark.parametrize("source", ODD.values(), ids=ODD.keys())
async def test_a_body_in_what_is_no_sealed_memfd_of_its_size_is_not_read(start: Any, source: str) -> None:
    _process, watcher = start(
        f"""
        import fcntl
        def sealed(size):
            fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 14)
            return fd
        def sparse():
            fd = os.open("sparse", os.O_RDWR | os.O_CREAT)
            os.ftruncate(fd, 1 << 40)
            return fd
        header = json.dumps({{"t": "progress", "memfd": {MIB}}}).encode()
        socket.send_fds(sock, [len(header).to_bytes(4, "big") + bytes(4) + header], [{source}])
        say("done")
        forever()
        """
    )
    await watcher.exit
    (reported,) = watcher.broken
    assert reported.startswith("a body ")
    assert watcher.frames.empty(), "what came behind it is not heard"


async def test_half_a_frame_is_waited_for_and_not_for_ever(start: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(frame_socket, "FRAME_S", 0.05)
    _process, watcher = start("say('ready'); sock.sendall(b'\\0\\0\\0\\2\\0\\0'); forever()")
    await watcher.next("ready")
    await watcher.exit
    assert watcher.broken == ["6 bytes of a frame came in 0.05 s, and not the rest"]


async def test_a_frame_that_the_agent_does_not_read_is_not_late(
    start: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """The rest of it is there before the agent reads again."""
    monkeypatch.setattr(frame_socket, "FRAME_S", 0.05)
    rest_sent = tmp_path / "rest_sent"
    process, watcher = start(
        f"""
        data = encode(Frame("progress", {{"n": 0}}))[0]
        sock.sendall(data + data[:9])
        hear()
        sock.sendall(data[9:])
        open({str(rest_sent)!r}, "w").close()
        hear()
        """
    )
    on_frame = watcher.on_frame

    def pauses(frame: Frame) -> None:
        on_frame(frame)
        process.pause()

    process._frames._on_frame = pauses
    await watcher.next("progress")
    await asyncio.sleep(0)
    assert len(process._frames._reader.begun) == 9
    assert process._frames._half is None, "nothing counts while it is paused"
    process.send(Frame("run"))
    while not rest_sent.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    process.resume()
    await watcher.next("progress")
    assert watcher.broken == []


async def test_who_closes_its_socket_and_lives_on_is_ended(start: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(frame_socket, "FRAME_S", 0.05)
    _process, watcher = start("say('ready'); sock.shutdown(socket.SHUT_WR); forever()")
    await watcher.exit
    assert watcher.broken == ["it closed its socket and lived on"]


async def test_who_asks_and_reads_no_answer_is_ended(start: Any) -> None:
    process, watcher = start("say('ready'); forever()")
    await watcher.next("ready")
    for _ in range(frame_socket.UNREAD_MAX + 5000):  # what the socket itself takes is little
        process.send(Frame("took", {"job": "j", "attempt": 1, "n": 0}))
    await watcher.exit
    assert watcher.broken == ["it has not read 10000 frames that it was sent"]


async def test_no_flood_of_descriptors_exhausts_the_agent(start: Any) -> None:
    # Inside the body of one frame that never ends: only the count can tell.
    _, watcher = start(
        """
        sock.sendall(b"\\0\\0\\0\\2" + (1 << 20).to_bytes(4, "big"))
        for _ in range(100_000):
            socket.send_fds(sock, [b"x"], [0, 0])
        """
    )
    await watcher.exit
    assert "descriptors came that no frame" in watcher.broken[0]
    assert len(os.listdir("/proc/self/fd")) < resource.getrlimit(resource.RLIMIT_NOFILE)[0] / 2


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Nothing more can be opened by this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_an_agent_without_descriptors_says_so_and_lives(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    came: list[Any] = []
    agent = FrameSocket(ours, asyncio.get_running_loop(), came.append, came.append)
    (tmp_path / "made").write_bytes(b"hello")
    with closing_descriptor(tmp_path / "made") as fd:
        data, fds = encode(Frame("file", {"n": 0}, fd=fd))
        socket.send_fds(theirs, [data], fds)
        with no_descriptor_left():
            with pytest.raises(OSError, match="Too many open files"):
                agent.send(Frame("fetched", fd=fd))
            agent._read()
    assert came[-1] == "the agent has no file descriptor left for one that it sent"
    agent.close()
    theirs.close()


async def test_a_frame_over_the_limit_is_the_senders_error(start: Any) -> None:
    process, watcher = start("say('ready', got=hear().kind)")
    with pytest.raises(FrameError, match="over the limit"):
        process.send(Frame("run", {}, bytes(65 * MIB)))
    process.send(Frame("stop"))
    assert (await watcher.next("ready")).fields["got"] == "stop"


async def test_a_helper_that_writes_for_ever_does_not_hold_up_the_exit(start: Any) -> None:
    _, watcher = start(
        """
        if os.fork() == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.setsid()
            while True:
                say("progress")
        say("ready")
        os._exit(0)
        """
    )
    assert (await watcher.exit).status == 0


async def test_last_frames_that_take_longer_than_a_death_leave_no_helper(
    start: Any, gone: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, watcher = start(
        """
        if os.fork() == 0:
            os.setsid()
            say("progress", pid=os.getpid())
            forever()
        hear()
        say("last")
        os._exit(0)
        """
    )
    helper = (await watcher.next("progress")).fields["pid"]
    loop, put = asyncio.get_running_loop(), watcher.frames.put_nowait
    now = loop.time

    def slowly(frame: Frame) -> None:
        monkeypatch.setattr(loop, "time", lambda: now() + 2 * running_process.GIVE_UP_S)
        put(frame)

    watcher.frames.put_nowait = slowly
    process.pause()  # so that what it says last is heard after its end
    process.send(Frame("run", {}))
    await watcher.exit
    assert gone(helper)
