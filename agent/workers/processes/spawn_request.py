"""Requests that the local spawner and the makers of its processes exchange, and a worker's open channels."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs.tail import log_pipe
from stoker.agent.host.own_network import OwnNetwork
from stoker.agent.host.sandbox.isolation import SandboxPlan


class ChildProcess(Protocol):
    """A process that only this one may wait for; `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...

    def wait(self) -> int: ...

    def kill(self) -> None: ...


class Program(Struct, frozen=True):
    """The program that is started instead of the python worker. `environment` is without the agent's marks.
    `Path()` as `folder` is none: the program starts in its worker's home. If the program runs in a network of
    its own, `on_network` is called with that, once, before anything that it prints."""

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    on_network: Callable[[OwnNetwork], None] | None = None


class SpawnRequest(Struct, frozen=True):
    """The request to start a new python worker, by a spawner or by a zygote. `command` is what an interpreter
    would run. `plan` is its sandbox, `cgroup` the file that puts a process into its cgroup, where it has
    one."""

    module: str
    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    socket: int
    output: int
    plan: SandboxPlan = field(default_factory=SandboxPlan)
    cgroup: Path | None = None


class ZygoteCommand(Struct, frozen=True):
    """The command that a zygote is started with, apart from what its set declares."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    socket: int
    output: int


Fork = Callable[[SpawnRequest], ChildProcess]
"""Makes a worker in another way than by starting an interpreter. Raises OSError."""


class Channels(Struct, frozen=True):
    """The channels of a worker: its socket, where it has one, and the pipe for what it prints."""

    ours: socket.socket | None
    theirs: socket.socket | None
    log_read: int
    log_write: int

    def close_ours(self) -> None:
        os.close(self.log_read)
        if self.ours is not None:
            self.ours.close()

    def close_theirs(self) -> None:
        os.close(self.log_write)
        if self.theirs is not None:
            self.theirs.close()


def open_channels(*, frames: bool) -> Channels:
    """Raises SpawnFailed."""
    try:
        ours, theirs = socket.socketpair() if frames else (None, None)
    except OSError as error:
        raise SpawnFailed(f"no socket for a worker: {error.strerror}") from None
    try:
        log_read, log_write = log_pipe()
    except OSError as error:
        for end in (ours, theirs):
            if end is not None:
                end.close()
        raise SpawnFailed(f"no pipe for a worker: {error.strerror}") from None
    return Channels(ours, theirs, log_read, log_write)
