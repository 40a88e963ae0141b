"""Measures the cost of attacks without a token on the gRPC port, for control and for honest callers.

    python -P bench/unauthenticated.py [--seconds 60] [--json bench/results/unauthenticated.json]

Control and an agent run as an operator starts them, with a handler that returns at once. A caller submits
jobs, first without an attack, then while other processes attack: messages of many tiny parts, fragments that
never end, connections that stall in or after their handshake, as many calls as possible. Prints how much more
memory control used at its peak, and how much longer callers waited (median and 99th percentile). Attackers
and control share the machine's cores, so the figures contain the load of both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from stoker.wire import agent_pb2, codec  # noqa: E402
from tests.system.stack import Stack, queue_endpoint, running  # noqa: E402

MIB = 1 << 20
ATTACKS = ("parts", "fragments", "stalled", "connections", "calls")
PAUSE_S = 0.02
"""Between two jobs of the honest caller."""


# ---- the attackers, each a process of its own


def _many_parts() -> bytes:
    hello = agent_pb2.Hello(attempts=[agent_pb2.HeldAttempt()] * 60_000)
    return agent_pb2.FromAgent(hello=hello).SerializeToString()


async def _flood(target: str, message: bytes, until: float) -> None:
    """Ten connections with ten streams each that send as much as possible; ended streams are opened again."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, options=own)) for _ in range(10)
        ]
        while time.monotonic() < until:
            streams = [channel for channel in channels for _ in range(10)]
            await asyncio.gather(*(_flood_stream(channel, message, until) for channel in streams))


async def _flood_stream(channel: grpc.aio.Channel, message: bytes, until: float) -> None:
    call = channel.stream_stream(codec.SESSION)(metadata=((codec.TOKEN, os.urandom(16)),))
    try:
        while time.monotonic() < until:
            async with asyncio.timeout(5):
                await call.write(message)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, asyncio.CancelledError):
        await asyncio.sleep(0.01)
    finally:
        call.cancel()


async def _calls(target: str, until: float) -> None:
    """Tries random tokens, a hundred at a time."""

    async def guess(channel: grpc.aio.Channel) -> None:
        while time.monotonic() < until:
            call = channel.stream_stream(codec.SESSION)(metadata=((codec.TOKEN, os.urandom(16)),))
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.code()

    async with grpc.aio.insecure_channel(target) as channel:
        await asyncio.gather(*(guess(channel) for _ in range(100)))


def _connections(target: str, until: float, *, stalled: bool) -> None:
    """Opens many sockets. A stalled one sends half of the HTTP/2 preface; the others send nothing after
    it."""
    host, _, port = target.rpartition(":")
    sockets: list[socket.socket] = []
    while time.monotonic() < until:
        try:
            one = socket.create_connection((host, int(port)), timeout=2)
            one.sendall(b"PRI * HT" if stalled else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            sockets.append(one)
        except OSError:
            time.sleep(0.05)
        if len(sockets) > 400:
            sockets.pop(0).close()
        time.sleep(0.002)
    for one in sockets:
        one.close()


def attack(kind: str, target: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    if kind == "parts":
        asyncio.run(_flood(target, _many_parts(), until))
    elif kind == "fragments":
        fragment = agent_pb2.FromAgent(fragment=b"x" * 200_000).SerializeToString()
        asyncio.run(_flood(target, fragment, until))
    elif kind == "calls":
        asyncio.run(_calls(target, until))
    else:
        _connections(target, until, stalled=kind == "stalled")


# ---- the measurement


def resident(pid: int) -> int:
    """The resident memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def run_jobs(stack: Stack, seconds: float) -> tuple[list[float], int]:
    """The milliseconds of each job from its submission to its end, and the peak memory of control."""
    took: list[float] = []
    most, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        assert stack.runsync("echo", {"x": 1})["status"] == "COMPLETED"
        took.append(1000 * (time.monotonic() - began))
        most = max(most, resident(stack.control.pid))
        time.sleep(PAUSE_S)
    return took, most


@contextlib.contextmanager
def attackers(target: str, seconds: float) -> Iterator[None]:
    command = [sys.executable, __file__, "--target", target, "--seconds", str(seconds), "--attack"]
    started = [subprocess.Popen([*command, kind], stderr=subprocess.DEVNULL) for kind in ATTACKS]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(folder: Path, seconds: float) -> dict[str, float]:
    """The figures of the same caller without and with the attack."""
    with running(folder, queue_endpoint("echo", "outputs/echo.py")) as stack:
        run_jobs(stack, 3)
        before, calm = run_jobs(stack, max(seconds / 4, 3))
        with attackers(stack.facts["grpc"], seconds):
            during, most = run_jobs(stack, seconds)
        after = resident(stack.control.pid)
        lost = stack.log("control").count(" is over: ")
    return {
        "seconds": seconds,
        "memory_calm_mib": round(calm / MIB, 1),
        "memory_more_mib": round((most - calm) / MIB, 1),
        "memory_more_after_mib": round((after - calm) / MIB, 1),
        "wait_calm_ms": round(statistics.median(before), 1),
        "wait_more_ms": round(statistics.median(during) - statistics.median(before), 1),
        "wait_more_p99_ms": round(_p99(during) - _p99(before), 1),
        "jobs_served": len(during),
        "sessions_lost": lost,
    }


def _p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--attack", choices=ATTACKS)
    parser.add_argument("--target", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.attack:
        attack(options.attack, options.target, options.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.seconds)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
