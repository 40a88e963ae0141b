"""The ports of the http workers that run on this node, and the connections to each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class _Ports:
    """`when_idle` is set once the worker takes no new connections."""

    requests: int
    health: int
    connections: set[asyncio.StreamWriter] = field(default_factory=set)
    when_idle: Callable[[], None] | None = None


class WorkerPorts:
    def __init__(self) -> None:
        self._of: dict[str, _Ports] = {}

    def add(self, worker: str, requests: int, health: int) -> None:
        self._of[worker] = _Ports(requests, health)

    def remove(self, worker: str) -> None:
        """The worker has ended."""
        self._of.pop(worker, None)

    def taken(self) -> set[int]:
        return {port for ports in self._of.values() for port in (ports.requests, ports.health)}

    def of(self, worker: str) -> int | None:
        """Where the worker takes requests; None for one that takes no new connections."""
        ports = self._of.get(worker)
        return None if ports is None or ports.when_idle is not None else ports.requests

    def close(self, worker: str, when_idle: Callable[[], None]) -> None:
        """It takes no new connections. Calls `when_idle` once those that are open have ended, once."""
        if (ports := self._of.get(worker)) is not None:
            ports.when_idle = when_idle
            self._look(ports)

    @contextmanager
    def connected(self, worker: str, connection: asyncio.StreamWriter) -> Iterator[None]:
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
    """It was called already."""
