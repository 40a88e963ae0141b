"""What only the real stream has: binding, TLS, loss, bounds, and the generated stubs."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from msgspec.structs import replace

from stoker.agent.link.grpc_stream import ConnectFailed, GrpcAgentStream, connect, stays_here
from stoker.control.config.tls import NotLoopback, TlsFiles
from stoker.control.nodes.grpc_stream import CannotListen, serve
from stoker.wire import agent_pb2, agent_pb2_grpc, codec
from stoker.wire.duplex import QUEUE_MAX_BYTES, ByteQueue
from stoker.wire.messages import Ack, Beat, FromAgent, FromControl, Progress, Report
from stoker.wire.streams import ControlStream, StreamEnded

TOKEN = ((codec.TOKEN, b"token"),)


async def anyone(token: str) -> str | None:
    return None


async def echo(stream: ControlStream, peer: str, token: str) -> None:
    """Acks each beat until the stream ends."""
    while True:
        message = await stream.receive()
        assert message.beat is not None
        await stream.send(FromControl(ack=Ack(0, message.beat.number)))


async def _beat(stream: Any, number: int = 1) -> None:
    await stream.send(FromAgent(beat=Beat(number)))
    assert await stream.receive() == FromControl(ack=Ack(0, number))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "control.example", ""])
async def test_no_bind_off_loopback_in_the_clear(host: str) -> None:
    with pytest.raises(NotLoopback, match="TLS"):
        await serve(host, 0, anyone, echo, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
async def test_loopback_in_the_clear(host: str, serving: Any) -> None:
    server = await serve(host, 0, anyone, echo, None)
    stream = await connect(f"{host}:{server.port}", "token")
    await _beat(stream)
    stream.end()
    await stream.closed()
    await server.stop()


async def test_no_proxy_of_the_environment_receives_what_stays_here(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as proxy:
        proxy.bind(("127.0.0.1", 0))
        proxy.listen()
        for name in ("grpc_proxy", "https_proxy", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("no_grpc_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with serving(echo) as server:
            stream = await connect(f"127.0.0.1:{server.port}", "token")
            await _beat(stream)
            stream.end()
            await stream.closed()


@pytest.mark.parametrize(
    ("target", "here"),
    [
        ("127.0.0.1:8001", True),
        ("localhost:8001", True),
        ("[::1]:8001", True),
        ("unix:/run/control.sock", True),
        ("192.0.2.1:8001", False),
        ("control.example.com:8001", False),
        ("localhost.example.com:8001", False),
        ("dns:///control:8001", False),
        ("", False),
    ],
)
def test_which_targets_are_this_machine(target: str, here: bool) -> None:
    assert stays_here(target) is here


async def test_a_port_in_use_is_named(serving: Any) -> None:
    async with serving(echo) as server:
        with pytest.raises(CannotListen, match=f"127.0.0.1:{server.port}"):
            await serve("127.0.0.1", server.port, anyone, echo, None)


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectFailed, match=f"cannot reach control at 127.0.0.1:{port}"):
            await connect(f"127.0.0.1:{port}", "token", connect_timeout_s=30)


async def test_somebody_listens_and_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ConnectFailed, match=r"no answer within 0\.2 s"):
            await connect(f"127.0.0.1:{silent.getsockname()[1]}", "token", connect_timeout_s=0.2)


async def test_tls_with_an_authority_that_did_not_sign(
    serving: Any, certificate: Any, other_certificate: Any
) -> None:
    async with serving(echo, certificate.files) as server:
        with pytest.raises(ConnectFailed, match="certificate"):
            await connect(f"localhost:{server.port}", "token", ca=other_certificate.pem)
        with pytest.raises(ConnectFailed):
            await connect(f"localhost:{server.port}", "token")  # in the clear


async def test_mutual_tls(serving: Any, certificate: Any, other_certificate: Any) -> None:
    files: TlsFiles = replace(certificate.files, client_ca=other_certificate.files.cert)
    async with serving(echo, files) as server:
        target = f"localhost:{server.port}"
        stream = await connect(
            target, "token", ca=certificate.pem, cert=other_certificate.pem, key=other_certificate.key
        )
        await _beat(stream)
        stream.end()
        await stream.closed()
        with pytest.raises(ConnectFailed, match="looks the same"):
            await connect(target, "token", ca=certificate.pem)


async def test_the_generated_stub_speaks_with_it(serving: Any) -> None:
    # The adapters give gRPC bytes; that they are the contract's messages is shown by the contract's stub.
    async with serving(echo) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = agent_pb2_grpc.AgentsStub(channel).Session(metadata=TOKEN)
        await call.write(agent_pb2.FromAgent(beat=agent_pb2.Beat(number=3)))
        assert (await call.read()).ack.beat == 3
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_bytes_that_are_no_message_end_the_session(serving: Any, sessions: Any) -> None:
    async with (
        serving(sessions.handle) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call: Any = channel.stream_stream("/stoker.agent.v1.Agents/Session")(metadata=TOKEN)
        await call.write(b"\xff\xff")
        stream = await sessions.streams.get()
        with pytest.raises(StreamEnded, match="broke the protocol"):
            await stream.receive()
        assert await call.read() is grpc.aio.EOF
        sessions.done.set()


async def test_an_agent_that_vanishes_does_not_cancel_the_handler(serving: Any, sessions: Any) -> None:
    # The handler may be inside a commit: it hears StreamEnded when it next receives, and ends by itself.
    async with serving(sessions.handle) as server:
        agent = await connect(f"127.0.0.1:{server.port}", "token")
        control = await sessions.streams.get()
        agent._call.cancel()
        with pytest.raises(StreamEnded):
            await control.receive()
        with pytest.raises(StreamEnded):
            await agent.receive()
        assert not sessions.returned.is_set()
        sessions.done.set()
        await sessions.returned.wait()
        await agent.closed()


async def test_an_agent_process_that_is_killed(serving: Any, sessions: Any, tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from stoker.agent.link.grpc_stream import connect\n"
        "from stoker.wire.messages import Beat, FromAgent\n"
        "async def main():\n"
        "    stream = await connect(sys.argv[1], 'token')\n"
        "    await stream.send(FromAgent(beat=Beat(1)))\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    async with serving(sessions.handle) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", script, f"127.0.0.1:{server.port}"
        )
        control = await sessions.streams.get()
        assert await control.receive() == FromAgent(beat=Beat(1))
        process.send_signal(signal.SIGKILL)
        with pytest.raises(StreamEnded):
            await control.receive()
        await process.wait()
        sessions.done.set()


async def test_control_that_stops_says_so(serving: Any) -> None:
    async with serving(echo) as server:
        stream = await connect(f"127.0.0.1:{server.port}", "token")
        await _beat(stream)
        await server.stop()
        with pytest.raises(StreamEnded, match="control is stopping"):
            await stream.receive()
        await stream.closed()


async def test_a_handler_that_will_not_end_is_cancelled_after_the_grace(serving: Any) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def stuck(stream: ControlStream, peer: str, token: str) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(stuck) as server:
        stream = await connect(f"127.0.0.1:{server.port}", "token")
        await began.wait()
        await server.stop(0.05)
        assert cancelled.is_set()
        with pytest.raises(StreamEnded):
            await stream.receive()
        await stream.closed()


async def test_a_handler_that_raises_ends_its_stream_alone(
    serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(stream: ControlStream, peer: str, token: str) -> None:
        if (await stream.receive()).beat == Beat(1):
            raise ValueError("broken")
        await stream.receive()

    async with serving(broken) as server:
        first = await connect(f"127.0.0.1:{server.port}", "token")
        second = await connect(f"127.0.0.1:{server.port}", "token")
        await second.send(FromAgent(beat=Beat(2)))
        with caplog.at_level(logging.ERROR):
            await first.send(FromAgent(beat=Beat(1)))
            with pytest.raises(StreamEnded, match="control failed"):
                await first.receive()
        assert "the session of" in caplog.text
        assert second.reason is None
        for stream in (first, second):
            stream.end()
            await stream.closed()


async def test_send_waits_when_the_other_side_does_not_read(serving: Any, sessions: Any) -> None:
    report = FromAgent(reports=(Report(1, Progress("job", 1, b"x" * 1024 * 1024)),))

    async def flood(agent: GrpcAgentStream, count: int) -> int:
        for _ in range(count):
            await agent.send(report)
        return count

    async with serving(sessions.handle) as server:
        agent = await connect(f"127.0.0.1:{server.port}", "token")
        control = await sessions.streams.get()
        # Three queues' worth: one in each side's queue, the rest waits at `send`.
        count = 3 * QUEUE_MAX_BYTES // (1024 * 1024)
        sending = asyncio.create_task(flood(agent, count))
        first = await control.receive()
        assert first == report
        assert not sending.done()
        for _ in range(count - 1):
            assert await control.receive() == report
        assert await sending == count
        sessions.done.set()
        agent.end()
        await agent.closed()


async def test_a_queue_is_bounded_and_ends() -> None:
    queue = ByteQueue(limit=200)
    assert not queue.filled.is_set()
    queue.put(b"x" * 100)
    waiting = asyncio.create_task(queue.roomy.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert queue.filled.is_set()
    assert queue.pop() == b"x" * 100
    await waiting
    assert not queue.filled.is_set()
    queue.put(b"2")
    queue.close()
    assert queue.pop() == b"2"
    assert queue.pop() is None
    assert queue.filled.is_set()
    queue.put(b"3")
    queue.close(drop=True)
    assert queue.pop() is None
