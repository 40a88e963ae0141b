"""A node in words, and the wait for the end of its work."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stoker.cli.errors import CliError
from stoker.cli.manage import node_commands
from stoker.cli.manage.node_text import counted, lines_of
from stoker.cli.manage.resource_commands import Service

NODE: dict[str, Any] = {
    "id": "n1",
    "name": "gpu-host-1",
    "state": "connected",
    "drained": True,
    "agentVersion": "0.2.0",
    "lastSeenAt": "2026-01-01T00:00:00Z",
    "labels": {"tier": "gold"},
    "facts": {"vcpus": "64", "cuda": "12.8"},
    "workers": 2,
    "jobs": 1,
    "pods": 0,
    "diskFreeInBytes": 812_000_000_000,
    "diskTotalInBytes": 1_900_000_000_000,
    "devices": [
        {
            "id": "GPU-0",
            "name": "NVIDIA H200",
            "memoryInBytes": 150_000_000_000,
            "memoryUsedInBytes": 80_000_000_000,
            "utilization": 62,
            "temperature": 41,
            "heldBy": [{"workerId": "w1"}, {"podId": "p1"}],
        },
        {"id": "GPU-1", "name": "NVIDIA H200", "heldBy": [], "ill": "Xid 79"},
        {"id": "cpu", "name": "Xeon", "heldBy": []},
    ],
    "avoidedFor": [{"endpointId": "e1", "untilAt": "2026-01-01T00:01:00Z", "reason": "no\nmodule"}],
}


def test_a_node_reads_line_by_line() -> None:
    assert list(lines_of(NODE)) == [
        "id: n1",
        "name: gpu-host-1",
        "state: connected, drained",
        "agentVersion: 0.2.0",
        "lastSeenAt: 2026-01-01T00:00:00Z",
        "work: 2 workers, 1 job, 0 pods",
        "disk: 812.0 GB free of 1900.0 GB",
        "devices:",
        "  GPU-0 NVIDIA H200: 80.0 GB of 150.0 GB, 62 % busy, 41 °C, held by w1, p1",
        "  GPU-1 NVIDIA H200: out of use: Xid 79",
        "  cpu Xeon",
        "avoided for:",
        "  e1 until 2026-01-01T00:01:00Z: no module",
        "labels:",
        "  tier=gold",
        "facts:",
        "  cuda: 12.8",
        "  vcpus: 64",
    ]
    assert counted(NODE["devices"]) == "2 x NVIDIA H200, Xeon"


class Nodes:
    """A service on which one thing ends at each look."""

    def __init__(self, *left: tuple[int, int]) -> None:
        self.left, self.calls = list(left), list[str]()

    def list(self, **query: object) -> list[Mapping[str, Any]]:
        return [NODE]

    def _next(self) -> Mapping[str, Any]:
        workers, jobs = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return NODE | {"workers": workers, "jobs": jobs}

    def drain(self, member: str) -> Mapping[str, Any]:
        self.calls.append(f"drain {member}")
        return self._next()

    def get(self, member: str) -> Mapping[str, Any]:
        self.calls.append(f"get {member}")
        return self._next()


def drained(
    monkeypatch: pytest.MonkeyPatch, nodes: Nodes, *, wait: bool, deadline_s: float | None = None
) -> list[str]:
    class Stoker:
        class manage:
            nodes: Any

    Stoker.manage.nodes = nodes

    @contextmanager
    def opened(url: str, data_dir: Path) -> Iterator[type[Stoker]]:
        yield Stoker

    printed = io.StringIO()
    monkeypatch.setattr(node_commands, "open_client", opened)
    monkeypatch.setattr(node_commands, "plain_console", lambda **_: Console(file=printed))
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    try:
        node_commands.drain(
            Service("http://x", Path()),
            "gpu-host-1",
            wait=wait,
            deadline_s=deadline_s,
            sleep=sleep,
            clock=lambda: now[0],
        )
    except CliError as error:
        printed.write(str(error))
    return printed.getvalue().splitlines()


def test_a_wait_says_what_is_left_whenever_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes((2, 3), (2, 3), (1, 1), (0, 0))
    assert drained(monkeypatch, nodes, wait=True, deadline_s=60) == [
        "node gpu-host-1: 2 workers, 3 jobs left",
        "node gpu-host-1: 1 worker, 1 job left",
        "node gpu-host-1 is drained, and no worker is left",
    ]
    assert nodes.calls == ["drain n1", *["get n1"] * 3]


def test_a_deadline_ends_the_wait_and_not_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes((1, 1))
    assert drained(monkeypatch, nodes, wait=True, deadline_s=3) == [
        "node gpu-host-1: 1 worker, 1 job left",
        "node gpu-host-1 still has 1 worker, 1 job after 3 s; the node is drained, and"
        " `stoker node resume n1` takes it back",
    ]
    assert len(nodes.calls) == 4


def test_without_a_wait_it_says_what_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drained(monkeypatch, Nodes((1, 2)), wait=False) == [
        "node gpu-host-1 takes nothing new; left there: 1 worker, 2 jobs"
    ]
