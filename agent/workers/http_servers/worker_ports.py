"""The ports of the http workers that run on this node, and the connections to each."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct, field

from stoker.agent.host.free_ports import HostPorts
from stoker.agent.host.own_network import OwnNetwork
from stoker.agent.workers.http_servers.listeners import Listeners
from stoker.agent.workers.http_servers.port_filter import PortFilter


class _Ports(Struct):
    """The ports of one worker. `opening` is what each connection begins with. `network` is the worker's, if
    it has one of its own. `when_idle` is set once the worker takes no new ones."""

    requests: int
    pid: int
    opening: bytes = b""
    network: OwnNetwork | None = None
    connections: set[socket.socket] = field(default_factory=set)
    when_idle: Callable[[], None] | None = None


class WorkerPorts:
    """The ports of all http workers. `host` gives out ports, and `keeping` keeps neighbours from them, where
    this host can."""

    def __init__(self, host: HostPorts, keeping: PortFilter | None = None) -> None:
        self.host = host
        self._keeping = keeping
        self._of: dict[str, _Ports] = {}
        self._listeners = Listeners()

    def take(self, worker: str, count: int) -> list[int]:
        """Takes free ports for the worker, which nobody else can connect to. Raises NoPort, SpawnFailed."""
        found = self.host.take(worker, count)
        if self._keeping is not None:
            try:
                self._keeping.protect(worker, found)
            except BaseException:
                self.host.give_back(worker)
                raise
        return found

    def add(self, worker: str, requests: int, pid: int, opening: bytes = b"") -> None:
        """Adds a worker. `pid` is its process; 0 where that cannot be seen."""
        self._of[worker] = _Ports(requests, pid, opening)
        if self._keeping is not None:
            self._keeping.admit(worker)

    def enter(self, worker: str, network: OwnNetwork) -> None:
        """Makes connections to the worker inside this network from now on."""
        if (ports := self._of.get(worker)) is not None:
            ports.network = network

    def tcp_socket(self, worker: str) -> socket.socket:
        """Returns a TCP socket that reaches the worker at its port of loopback. Raises OSError, NoEntry."""
        ports = self._of.get(worker)
        if ports is None or ports.network is None:
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        return ports.network.tcp_socket()

    def remove(self, worker: str) -> None:
        """Removes a worker that has ended."""
        ports = self._of.pop(worker, None)
        if self._keeping is not None:
            self._keeping.release(worker)
        self.host.give_back(worker)
        if ports is not None:
            self._listeners.forget(ports.pid)

    async def foreign(self, worker: str, port: int, *, connected: bool = False) -> bool:
        """Returns whether another process than the worker's listens at a port of the worker, or has taken a
        connection."""
        ports = self._of.get(worker)
        return ports is not None and await self._listeners.foreign(port, ports.pid, connected=connected)

    def of(self, worker: str) -> int | None:
        """Returns where the worker takes requests; None for a worker that takes no new connections."""
        ports = self._of.get(worker)
        return None if ports is None or ports.when_idle is not None else ports.requests

    def opening(self, worker: str) -> bytes:
        """Returns what a connection to the worker begins with, before any request."""
        ports = self._of.get(worker)
        return b"" if ports is None else ports.opening

    def close(self, worker: str, when_idle: Callable[[], None]) -> None:
        """Closes the worker to new connections. Calls `when_idle` once those that are open have ended,
        once."""
        if (ports := self._of.get(worker)) is not None:
            ports.when_idle = when_idle
            self._look(ports)

    @contextmanager
    def connected(self, worker: str, connection: socket.socket) -> Iterator[None]:
        ports = self._of.get(worker)
        if ports is None:
            yield
            return
        ports.connections.add(connection)
        try:
            yield
        finally:
            ports.connections.discard(connection)
            self._look(ports)

    def _look(self, ports: _Ports) -> None:
        if ports.when_idle is not None and not ports.connections:
            call, ports.when_idle = ports.when_idle, _nothing
            call()


def _nothing() -> None:
    """Stands in for `when_idle` once that was called."""
