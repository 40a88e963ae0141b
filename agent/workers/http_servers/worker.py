"""Runs http workers: starts the program and probes its health. Implements WorkerProcess and Spawner.

    agent --stop--> no new connections; SIGTERM once the open ones have ended, or after the ladder's time
    agent <--ready, setup_failed, unfit, fit-- agent.workers.http_servers.health <--probes--
    agent.workers.http_servers.probe

- The process itself (session, environment, log, kill of everything that it started) is started by
  `agent.workers.processes.local_spawner` or `agent.workers.containers.spawner`.
- It gets no jobs: control sends requests to its port by way of `agent.workers.http_servers.gateway_port`.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from stoker.agent.alarm import Alarm, loop_time
from stoker.agent.errors import SpawnFailed
from stoker.agent.host.free_ports import NoPort
from stoker.agent.interfaces import WorkerExit, WorkerProcess, WorkerWatcher
from stoker.agent.workers.http_servers import health
from stoker.agent.workers.http_servers.environment import (
    health_path,
    http_environment,
    ports_needed,
    takes_proof,
)
from stoker.agent.workers.http_servers.listeners import FOREIGN
from stoker.agent.workers.http_servers.probe import probe
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts
from stoker.agent.workers.processes.by_kind import ProgramSpawner
from stoker.agent.workers.processes.program_process import ProgramProcess
from stoker.agent.workers.processes.spawn_request import Program
from stoker.wire.messages import Device, WorkerSpec
from stoker.worker.connection_proof import line_of
from stoker.worker.frames import Frame


class HttpSpawner:
    """Starts programs with `programs`, which it does not close."""

    def __init__(self, programs: ProgramSpawner, ports: WorkerPorts) -> None:
        self._programs, self._ports = programs, ports
        self._probes: set[asyncio.Task[None]] = set()

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> HttpProcess:
        if not spec.command and not spec.image:
            raise SpawnFailed(f"endpoint {spec.endpoint} names no command for its http worker")
        try:
            found = self._ports.take(spec.worker, ports_needed(spec.env))
        except NoPort as error:
            raise SpawnFailed(str(error)) from None
        process = HttpProcess(spec, watcher, self._ports, found[-1], self._probes)
        proof = secrets.token_urlsafe(32) if takes_proof(spec) else ""
        environment = http_environment(spec, found[0], found[-1], proof)
        program = Program(
            spec.command,
            Path(spec.handler),
            environment,
            lambda network: self._ports.enter(spec.worker, network),
        )
        try:
            child = self._programs.spawn(spec, device, process, program)
        except SpawnFailed:
            self._ports.remove(spec.worker)
            raise
        self._ports.add(spec.worker, found[0], child.pid, line_of(proof) if proof else b"")
        process.begin(child)
        return process

    async def close(self) -> None:
        if self._probes:
            await asyncio.wait(self._probes)


class HttpProcess(ProgramProcess):
    """A program: a WorkerProcess for the agent, and the watcher of the program's process. `probes` holds the
    task of its probe while that runs."""

    def __init__(
        self,
        spec: WorkerSpec,
        watcher: WorkerWatcher,
        ports: WorkerPorts,
        health_port: int,
        probes: set[asyncio.Task[None]],
    ) -> None:
        self._spec, self._watcher, self._ports = spec, watcher, ports
        self._health_port, self._path = health_port, health_path(spec.env)
        self._probes = probes
        self._probing: asyncio.Task[None] | None = None
        self._state = health.begin(loop_time())
        self._ready = False
        self._replaced = ""
        self._alarm = Alarm(self._on_alarm)

    def begin(self, child: WorkerProcess) -> None:
        """Probes from now on."""
        self.child = child
        self._alarm.set(health.wake_at(self._state))

    def send(self, frame: Frame) -> None:
        if frame.kind == "stop":
            self._ports.close(self._spec.worker, self.child.terminate)

    def terminate(self) -> None:
        self.child.terminate()

    def pause(self) -> None:
        """Does nothing: an http worker sends nothing that could wait."""

    def resume(self) -> None:
        pass

    # -- its health

    def _on_alarm(self, at: float) -> None:
        self._step(health.Tick(at))

    def _step(self, event: health.Event) -> None:
        self._state, commands = health.step(self._state, event, self._spec.start_timeout_s)
        self._alarm.set(health.wake_at(self._state))
        for command in commands:
            match command:
                case health.Probe():
                    self._probing = asyncio.create_task(self._probe(), name="probe of an http worker")
                    self._probes.add(self._probing)
                    self._probing.add_done_callback(self._probes.discard)
                case health.Announce(why):
                    self._watcher.on_frame(self._announcement(why))
                case health.Replace(why) if self._ready:
                    self._replaced = why
                    self.child.kill()
                case health.Replace(why):
                    self._watcher.on_frame(Frame("setup_failed", {"error": why}))

    async def _probe(self) -> None:
        if await self._ports.foreign(self._spec.worker, self._health_port):
            status, why = None, FOREIGN.format(port=self._health_port)
        else:
            opening = self._ports.opening(self._spec.worker)
            connect = partial(self._ports.tcp_socket, self._spec.worker)
            status, why = await probe(self._health_port, self._path, opening, connect)
        self._step(health.Probed(loop_time(), status, why, self._path))

    def _announcement(self, why: str) -> Frame:
        if why:
            return Frame("unfit", {"reason": why})
        if self._ready:
            return Frame("fit")
        self._ready = True
        return Frame("ready")

    # -- its process

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        self._alarm.set(None)
        self._ports.remove(self._spec.worker)
        if self._probing is not None:
            self._probing.cancel()
        self._watcher.on_exit(replace(exit, reason=self._replaced) if self._replaced else exit)
