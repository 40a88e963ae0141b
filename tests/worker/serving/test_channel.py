"""The worker's end of the socket, by itself."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from functools import partial
from queue import Queue

import pytest

from stoker.worker.frames import INLINE_MAX, Frame, FrameReader, encode
from stoker.worker.serving.channel import AgentGone, Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def polled(channel: Channel) -> list[Frame]:
    reported: list[Frame] = []
    channel.poll(reported.append)
    return reported


def test_polling_takes_what_is_there_and_does_not_wait(ends: tuple[Channel, socket.socket]) -> None:
    channel, agent = ends
    assert polled(channel) == []
    agent.sendall(encode(Frame("cancel"))[0] + encode(Frame("stop"))[0][:5])
    assert polled(channel) == [Frame("cancel")]
    agent.sendall(encode(Frame("stop"))[0][5:])
    assert channel.receive() == [Frame("stop")]


def test_polling_while_another_thread_waits_finds_nothing(ends: tuple[Channel, socket.socket]) -> None:
    channel, agent = ends
    channel._receiving.acquire()  # as `receive` does while it waits
    agent.sendall(encode(Frame("stop"))[0])
    assert polled(channel) == []
    channel._receiving.release()
    assert polled(channel) == [Frame("stop")]


def test_a_received_body_leaves_no_descriptor_and_none_is_inherited(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, agent = ends
    data, fds = encode(Frame("run", {}, bytes(INLINE_MAX + 1)))
    socket.send_fds(agent, [data], fds)
    os.close(fds[0])
    (frame,) = channel.receive()
    assert len(frame.body) == INLINE_MAX + 1


def test_both_directions_tell_when_the_agent_is_gone(ends: tuple[Channel, socket.socket]) -> None:
    channel, agent = ends
    agent.close()
    for look in (channel.receive, partial(polled, channel)):
        with pytest.raises(AgentGone):
            look()
    with pytest.raises(AgentGone):
        channel.send(Frame("ready"))
    with pytest.raises(AgentGone):
        channel.send(Frame("done", {}, bytes(INLINE_MAX + 1)))


def test_an_agent_that_leaves_with_unread_frames_is_gone_too(ends: tuple[Channel, socket.socket]) -> None:
    """The kernel then reports a reset connection, and not the end of the file."""
    channel, agent = ends
    channel.send(Frame("ready"))
    agent.close()
    with pytest.raises(AgentGone):
        channel.receive()


def test_an_agent_that_breaks_the_protocol_is_as_good_as_gone(
    ends: tuple[Channel, socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    channel, agent = ends
    agent.sendall(b"\xff" * 8)
    with pytest.raises(AgentGone):
        polled(channel)
    assert capsys.readouterr().err.startswith("the agent broke the protocol: a frame announces")


def test_frames_of_several_threads_do_not_mix(ends: tuple[Channel, socket.socket]) -> None:
    channel, agent = ends

    def send(name: str) -> None:
        for n in range(50):
            channel.send(Frame(name, {"n": n}, name.encode() * 5000))

    threads = [threading.Thread(target=send, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    reader, got = FrameReader(), []
    while len(got) < 150:
        got += list(reader.feed(agent.recv(1 << 16)))
    for thread in threads:
        thread.join()
    for name in "abc":
        assert [frame.fields["n"] for frame in got if frame.kind == name] == list(range(50))
    assert all(frame.body == frame.kind.encode() * 5000 for frame in got)


class InterruptedSocket(socket.socket):
    """Sets off a SIGALRM once it is in the middle of a send."""

    def sendall(self, *arguments: object) -> None:  # type: ignore[override]
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        super().sendall(*arguments)  # type: ignore[arg-type]


def test_after_an_interrupted_send_nothing_more_is_sent() -> None:
    """A handler's own SIGALRM raises while the socket is full: half a frame is out, so it was the last."""

    def raise_timeout(*_: object) -> None:
        raise TimeoutError

    ours, theirs = socket.socketpair()
    channel = Channel(InterruptedSocket(fileno=ours.detach()))
    before = signal.signal(signal.SIGALRM, raise_timeout)
    try:
        with pytest.raises(TimeoutError):
            channel.send(Frame("chunk", {}, bytes(INLINE_MAX)))
        with pytest.raises(AgentGone):
            channel.send(Frame("failed"))
    finally:
        signal.signal(signal.SIGALRM, before)
        channel.close()
        theirs.close()


def test_a_large_chunk_waits_until_it_is_taken_and_others_are_received_meanwhile(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, agent = ends
    reported: Queue[str] = Queue()
    chunk = Frame("chunk", {"job": "j", "attempt": 1, "n": 4}, bytes(INLINE_MAX + 1))
    others = [Frame("took", {"job": "j", "attempt": 1, "n": 3}), Frame("cancel"), Frame("run")]
    mine = Frame("took", {"job": "j", "attempt": 1, "n": 4})
    sending = threading.Thread(
        target=channel.send_chunk, args=(chunk, lambda frame: reported.put(frame.kind))
    )
    sending.start()
    agent.recv(1)
    for frame in others:
        agent.sendall(encode(frame)[0])
    assert [reported.get(timeout=100), reported.get(timeout=100)] == ["cancel", "run"]
    assert polled(channel) == [], "the sender looks"
    assert sending.is_alive()
    agent.sendall(encode(mine)[0] + encode(Frame("stop"))[0])
    sending.join(100)
    assert reported.get_nowait() == "stop"


def test_a_chunk_that_was_taken_before_its_sender_looked(ends: tuple[Channel, socket.socket]) -> None:
    channel, agent = ends
    agent.sendall(encode(Frame("took", {"job": "j", "attempt": 1, "n": 0}))[0])
    assert polled(channel) == []
    chunk = Frame("chunk", {"job": "j", "attempt": 1, "n": 0}, bytes(INLINE_MAX + 1))
    channel.send_chunk(chunk, lambda frame: None)


def test_nobody_waits_for_an_agent_that_is_gone(ends: tuple[Channel, socket.socket]) -> None:
    channel, agent = ends
    chunk = Frame("chunk", {"job": "j", "attempt": 1, "n": 0}, bytes(INLINE_MAX + 1))
    closing = threading.Thread(target=lambda: (agent.recv(100), agent.close()))
    closing.start()
    with pytest.raises(AgentGone):
        channel.send_chunk(chunk, lambda frame: None)
    closing.join()
