"""The worker process: `python -P -m stoker.worker.runtime --fd N`, N a socket to the agent; in a container
`--connect PATH`, the path of a socket on which the agent listens.

    start ──setup──> loading ──ready──> serving ──stop──> exit 0
                        └──setup_failed──> exit 1         the agent's end closes, at any time ──> exit

stdin, stdout and stderr are the handler's own. SIGTERM keeps its default action, which ends a handler that
ignores its cancel; SIGINT is ignored, because the agent decides what a Ctrl-C does. asyncio is imported
only for a handler that needs it, and a pool of threads only where several jobs run at once: start-up time is
a promise.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from stoker.worker.errors import describe
from stoker.worker.frames import Frame
from stoker.worker.job.job import Job
from stoker.worker.sdk import Device
from stoker.worker.serving.channel import AGENT_GONE_STATUS, AgentGone, Channel, leave
from stoker.worker.serving.sync_loop import AHEAD_MOST, SyncLoop
from stoker.worker.setup.collector import seldom_collected
from stoker.worker.setup.fitness import run_checks, run_checks_async
from stoker.worker.setup.preparation import cold_start_of, modifier_of, prepare, serves_of
from stoker.worker.setup.registration import Registration, load
from stoker.worker.setup.start_stages import StartStages


def main(arguments: list[str]) -> int:
    try:
        sock = _socket(arguments)
    except OSError as error:
        print(f"the agent cannot be reached at {arguments[1]}: {error.strerror}", file=sys.stderr)
        return AGENT_GONE_STATUS
    if sock is None:
        print("usage: python -P -m stoker.worker.runtime --fd N | --connect PATH", file=sys.stderr)
        return 2
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()  # a crash in native code then says where, in the last lines of the log
    with contextlib.suppress(AttributeError, ValueError):  # no stdout at all
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        return serve(Channel(sock))
    except AgentGone:
        leave()


def _socket(arguments: list[str]) -> socket.socket | None:
    match arguments:
        case ["--fd", number] if number.isdigit():
            fd = int(number)
            os.set_inheritable(fd, False)  # a program that the handler starts must not hold the socket open
            return socket.socket(fileno=fd)
        case ["--connect", path]:
            made = socket.socket(socket.AF_UNIX)
            made.connect(path)
            _redirect_output(made)
            return made
    return None


def _redirect_output(agent: socket.socket) -> None:
    """Receives one byte and the pipe for stdout and stderr: by way of the container's engine, lines would
    come when their job is over."""
    _, pipes, _, _ = socket.recv_fds(agent, 1, 1)
    for pipe in pipes:
        for stream in (1, 2):
            os.dup2(pipe, stream)
        os.close(pipe)


def serve(channel: Channel) -> int:
    """Sets the handler up and serves it. Returns the exit status. Raises AgentGone."""
    first = _first_frame(channel)
    setup = first.fields
    stages = StartStages()
    try:
        with seldom_collected():
            registration = load(str(setup["handler"]))
            stages.end("import")
            call = None
            if not registration.is_async:
                call = prepare(registration, device_of(setup))
                stages.end("setup", cold_start_of(registration, call))
                run_checks()
                stages.end("checks")
    except BaseException as error:  # the handler's code may raise anything, SystemExit too
        return _setup_failed(channel, error)
    if call is None:
        return _serve_async(channel, registration, setup, stages)
    most = _max_slots(setup)
    if most == 1:
        channel.send(_ready(registration, call, 1, stages, ahead=first.fd is not None))
        SyncLoop(channel, call, aggregate=registration.aggregate, permissions=first.fd).serve()
        return 0
    from stoker.worker.serving.slots import Slots
    from stoker.worker.serving.threads_loop import ThreadsLoop

    slots = Slots(most, modifier_of(registration, call))
    stages.end("slots")
    channel.send(_ready(registration, call, slots.now, stages))
    ThreadsLoop(channel, call, slots, aggregate=registration.aggregate).serve()
    return 0


def _first_frame(channel: Channel) -> Frame:
    first, *early = channel.receive()
    if first.kind != "setup" or early:
        print(
            f"the agent broke the protocol: only setup may come before ready, not {first.kind}",
            file=sys.stderr,
        )
        raise AgentGone
    return first


def device_of(setup: dict[str, Any]) -> Device:
    """Returns the device of a `setup` frame; fields that this version does not know are left out."""
    fields = setup.get("device") or {}
    return Device(**{key: fields[key] for key in ("uuid", "kind", "name", "index") if key in fields})


def _serve_async(
    channel: Channel, registration: Registration, setup: dict[str, Any], stages: StartStages
) -> int:
    from stoker.worker.serving.async_loop import AsyncLoop, run_to_end
    from stoker.worker.serving.slots import Slots
    from stoker.worker.setup.preparation import prepare_async

    async def live() -> int:
        try:
            with seldom_collected():
                call = await prepare_async(registration, device_of(setup))
            stages.end("setup", cold_start_of(registration, call))
            await run_checks_async()
            stages.end("checks")
        except BaseException as error:  # as in serve
            return _setup_failed(channel, error)
        slots = Slots(_max_slots(setup), modifier_of(registration, call))
        stages.end("slots")
        channel.send(_ready(registration, call, slots.now, stages))
        await AsyncLoop(channel, call, slots, aggregate=registration.aggregate).serve()
        return 0

    return run_to_end(live())


def _max_slots(setup: dict[str, Any]) -> int:
    """Returns how many jobs at once the endpoint allows."""
    return max(1, int(setup.get("concurrency", 1)))


def _ready(
    registration: Registration,
    call: Callable[[Job], Any],
    slots: int,
    stages: StartStages,
    *,
    ahead: bool = False,
) -> Frame:
    fields: dict[str, Any] = {
        "stages_ms": stages.found_ms,
        "concurrency": slots,
        "generator": registration.is_generator,
    }
    if ahead:
        fields["ahead"] = AHEAD_MOST
    if serves := serves_of(registration, call):
        fields["serves"] = serves
    return Frame("ready", fields)


def _setup_failed(channel: Channel, error: BaseException) -> int:
    channel.send(Frame("setup_failed", {"error": describe(error)}))
    return 1


if __name__ == "__main__":
    # The garbage collector does not walk what torch has loaded once more at exit: that took seconds.
    atexit.register(gc.freeze)
    sys.exit(main(sys.argv[1:]))
