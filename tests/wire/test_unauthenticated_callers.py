"""At agents' door: the token is looked at before anything is read; whoever has said nothing is one of few."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from stoker.agent.errors import AgentRefused
from stoker.agent.link.grpc_stream import ConnectFailed, connect
from stoker.control.nodes import grpc_stream, unauthenticated
from stoker.control.nodes.unauthenticated import TurnedAway, UnauthenticatedCallers
from stoker.wire import agent_pb2, codec
from stoker.wire.duplex import DuplexStream
from stoker.wire.fragments import FIRST_MAX, FRAGMENT_MAX
from stoker.wire.messages import Beat, FromAgent, HeldAttempt, Hello
from stoker.wire.streams import StreamEnded

GOOD = "jt_good"


async def only_good(token: str) -> str | None:
    return None if token == GOOD else "this token is not known"


@contextlib.asynccontextmanager
async def _call(port: int, *metadata: tuple[str, bytes]) -> AsyncIterator[Any]:
    """A call as somebody makes it who keeps to nothing."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.stream_stream(codec.SESSION)(metadata=metadata)
        try:
            yield call
        finally:
            call.cancel()


# ---- the token


@pytest.mark.parametrize("metadata", [(), ((codec.TOKEN, b"jt_bad"),), ((codec.TOKEN, b"\xff\xfe"),)])
async def test_nothing_is_read_of_a_call_without_a_token(
    serving: Any, sessions: Any, metadata: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(codec.Decoder, "join", lambda self, data: read.append(data))
    async with (
        serving(sessions.handle, admit=only_good) as server,
        _call(server.port, *metadata) as call,
    ):
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(b"\x0a\x00" * 1000)
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
    assert sessions.peers == []
    assert read == []


async def test_an_agent_is_reported_why_its_token_is_refused(serving: Any, sessions: Any) -> None:
    async with serving(sessions.handle, admit=only_good) as server:
        with pytest.raises(AgentRefused, match="this token is not known"):
            await connect(f"127.0.0.1:{server.port}", "jt_bad")


async def test_logs_are_behind_the_same_door(serving: Any, sessions: Any) -> None:
    async with (
        serving(sessions.handle, admit=only_good, logs=sessions.handle) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call: Any = channel.stream_stream(codec.LOGS)()
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
    assert sessions.peers == []


async def test_unauthenticated_callers_are_few_and_hold_up_nobody_who_is_known() -> None:
    checks: asyncio.Queue[None] = asyncio.Queue()
    answer = asyncio.Event()

    async def check(token: str) -> str | None:
        if token != GOOD:
            checks.put_nowait(None)
            await answer.wait()
        return await only_good(token)

    callers = UnauthenticatedCallers(check)
    assert await callers.admit(b"jt_good", "ipv4:here:1") is None
    hosts, each = unauthenticated.AT_ONCE // unauthenticated.FROM_ONE, unauthenticated.FROM_ONE
    waiting = []
    for host in range(hosts):
        waiting += [asyncio.create_task(callers.admit(b"no", f"ipv4:10.0.0.{host}:{n}")) for n in range(each)]
        for _ in range(each):
            await checks.get()
        with pytest.raises(TurnedAway, match="try again"):
            await callers.admit(b"one more of it", f"ipv4:10.0.0.{host}:99")
    with pytest.raises(TurnedAway, match="try again"):
        await callers.admit(b"one more of all", "ipv4:10.0.0.99:1")
    assert await callers.admit(b"jt_good", "ipv4:here:2") is None
    answer.set()
    assert set(await asyncio.gather(*waiting)) == {"this token is not known"}
    assert await callers.admit(b"one more", "ipv4:10.0.0.1:99") == "this token is not known"


async def test_many_unauthenticated_callers_are_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unauthenticated, "REFUSED_S", 0.0)
    callers = UnauthenticatedCallers(only_good)
    with caplog.at_level(logging.INFO):
        for _ in range(20):
            assert await callers.admit(b"no", "there") is not None
    assert [record.message for record in caplog.records] == [
        "calls of agents refused: 1, the last from there: this token is not known"
    ]


async def test_what_is_remembered_of_good_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(token: str) -> str | None:
        return None

    monkeypatch.setattr(unauthenticated, "REMEMBERED", 10)
    callers = UnauthenticatedCallers(check)
    for n in range(30):
        assert await callers.admit(b"good %d" % n, "here") is None
    assert len(callers._good) == 10


# ---- who was let in, and says nothing


async def test_who_has_printed_nothing_is_one_of_few(
    serving: Any, sessions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_stream, "UNSPOKEN_MAX", 2)
    async with serving(sessions.handle, admit=only_good) as server:
        target = f"127.0.0.1:{server.port}"
        streams = [await connect(target, GOOD) for _ in range(2)]
        with pytest.raises(ConnectFailed, match="have said nothing yet"):
            await connect(target, GOOD)
        await streams[0].send(FromAgent(beat=Beat(1)))
        control = await sessions.streams.get()
        other = await sessions.streams.get()
        output = [asyncio.create_task(one.receive()) for one in (control, other)]
        await asyncio.wait(output, return_when=asyncio.FIRST_COMPLETED)
        streams.append(await connect(target, GOOD))
        for task in output:
            task.cancel()
        sessions.done.set()
        for stream in streams:
            stream.end()
            await stream.closed()


# ---- messages


def fragment(data: bytes, *, last: bool = False) -> bytes:
    return agent_pb2.FromAgent(fragment=data, last_fragment=last).SerializeToString()


async def _breaks(serving: Any, sessions: Any, *messages: bytes) -> str:
    """Why control ends the stream of somebody who sends this first."""
    async with (
        serving(sessions.handle, admit=only_good) as server,
        _call(server.port, (codec.TOKEN, GOOD.encode())) as call,
    ):
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for message in messages:
                await call.write(message)
        control: DuplexStream[Any, Any] = await sessions.streams.get()
        with pytest.raises(StreamEnded) as ended:
            await control.receive()
        assert not control._decoder._joiner.gathered
        sessions.done.set()
    return str(ended.value)


async def test_a_message_of_many_tiny_parts_is_none(serving: Any, sessions: Any) -> None:
    attempts = agent_pb2.Hello(attempts=[agent_pb2.HeldAttempt()] * 100_000).SerializeToString()
    tiny = agent_pb2.FromAgent(hello=agent_pb2.Hello.FromString(attempts)).SerializeToString()
    assert "more than 65536 parts" in await _breaks(serving, sessions, tiny)


async def test_the_first_message_is_bounded_and_so_are_its_fragments(serving: Any, sessions: Any) -> None:
    fragments = [fragment(b"x" * FRAGMENT_MAX)] * (FIRST_MAX // FRAGMENT_MAX + 1)
    assert f"over the limit of {FIRST_MAX}" in await _breaks(serving, sessions, *fragments)


async def test_a_fragment_among_other_fields_is_none(serving: Any, sessions: Any) -> None:
    assert "among other fields" in await _breaks(serving, sessions, b"\x30\x01" + fragment(b"x"))


async def test_a_large_hello_of_a_true_agent_is_read(serving: Any, sessions: Any) -> None:
    held = tuple(
        HeldAttempt(f"{n:08}-0000-0000-0000-000000000000-u1", 1, "", "reporting") for n in range(5000)
    )
    hello = FromAgent(hello=Hello(1, "node", "name", "boot", "0", attempts=held))
    async with serving(sessions.handle, admit=only_good) as server:
        agent = await connect(f"127.0.0.1:{server.port}", GOOD)
        await agent.send(hello)
        control = await sessions.streams.get()
        assert await control.receive() == hello
        assert control.spoken
        sessions.done.set()
        agent.end()
        await agent.closed()
