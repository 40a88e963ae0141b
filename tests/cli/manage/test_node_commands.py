"""A node in words, and the wait for the end of its work."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from stoker.cli.consoles import plain_console, print_table
from stoker.cli.errors import CliError
from stoker.cli.manage import node_commands, resource_commands
from stoker.cli.manage.node_text import COLUMNS, counted, lines_of, row_of
from stoker.cli.manage.resource_commands import Service
from stoker.cli.manage.resource_kinds import KINDS

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
    "avoidedFor": [
        {"endpointId": "e1", "nodeId": "n1", "untilAt": "2026-01-01T00:01:00Z", "reason": "no\nmodule"}
    ],
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


H200S: dict[str, Any] = NODE | {
    "id": "4nqjm2vd8t9w1k",
    "drained": False,
    "workers": 12,
    "jobs": 112,
    "devices": [
        *({"id": f"GPU-{number}", "name": "NVIDIA H200"} for number in range(8)),
        {"id": "cpu", "name": "AMD EPYC 9654 96-Core Processor"},
    ],
}


@pytest.mark.parametrize(
    "changes",
    [{}, {"drained": True}, {"drained": True, "state": "silent"}],
    ids=["connected", "drained", "silent"],
)
def test_a_list_of_nodes_fits_a_terminal_of_80_columns(changes: dict[str, Any]) -> None:
    output = io.StringIO()
    print_table(plain_console(file=output, width=80), COLUMNS, [row_of(H200S | changes)])
    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 3, "the heading, and a row of two lines"
    words = " ".join(lines).split()
    assert {"4nqjm2vd8t9w1k", "gpu-host-1", "H200,", "112", "812.0", "0.2.0"} <= set(words)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("AMD EPYC 9654 96-Core Processor", "EPYC 9654"),
        ("Intel(R) Xeon(R) Platinum 8480+", "Xeon Platinum 8480+"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
        ("CPU", "CPU"),
    ],
)
def test_devices_in_a_list_lack_their_makers_words(name: str, short: str) -> None:
    assert row_of(NODE | {"devices": [{"id": "x", "name": name}]})[3] == short


class Nodes:
    """A service on which one thing ends at each look."""

    def __init__(self, *left: tuple[int, int]) -> None:
        self.left, self.calls = list(left), list[str]()

    def list(self, **query: object) -> list[Mapping[str, Any]]:
        return [NODE]

    def _next(self) -> Mapping[str, Any]:
        workers, jobs = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return NODE | {"workers": workers, "jobs": jobs}

    def drain(self, member: str, *, jobs_yield: bool) -> Mapping[str, Any]:
        self.calls.append(f"drain {member}{' and have its jobs yield' if jobs_yield else ''}")
        return self._next()

    def get(self, member: str) -> Mapping[str, Any]:
        self.calls.append(f"get {member}")
        return self._next()


def opening(nodes: Any) -> Callable[[str, Path], AbstractContextManager[Any]]:
    @contextmanager
    def opened(url: str, data_dir: Path) -> Iterator[Any]:
        yield SimpleNamespace(manage=SimpleNamespace(nodes=nodes))

    return opened


def drained(
    monkeypatch: pytest.MonkeyPatch, nodes: Nodes, *, wait: bool, deadline_s: float | None = None
) -> list[str]:
    printed = io.StringIO()
    monkeypatch.setattr(node_commands, "open_client", opening(nodes))
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
    assert nodes.calls == ["drain n1 and have its jobs yield", *["get n1"] * 3]


def test_a_deadline_ends_the_wait_and_not_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes((1, 1))
    assert drained(monkeypatch, nodes, wait=True, deadline_s=3) == [
        "node gpu-host-1: 1 worker, 1 job left",
        "node gpu-host-1 still has 1 worker, 1 job after 3 s; the node is drained, and"
        " `stoker node resume n1` takes it back",
    ]
    assert len(nodes.calls) == 4


def test_without_a_wait_it_says_what_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes((1, 2))
    assert drained(monkeypatch, nodes, wait=False) == [
        "node gpu-host-1 takes nothing new; left there: 1 worker, 2 jobs"
    ]
    assert nodes.calls == ["drain n1"], "what runs goes on to its end"


def listed(monkeypatch: pytest.MonkeyPatch, *found: Mapping[str, Any], terminal: bool) -> list[str]:
    class Output(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    printed = Output()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", printed)
    monkeypatch.setattr(
        resource_commands, "open_client", opening(SimpleNamespace(list=lambda **query: list(found)))
    )
    kind = next(kind for kind in KINDS if kind.command == "node")
    resource_commands.run_command(Service("http://x", Path()), kind, "list", (), {})
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())
    return [line.rstrip() for line in plain.splitlines()]


def test_the_list_is_short_at_a_terminal_and_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = listed(monkeypatch, H200S | {"avoidedFor": None}, terminal=True)
    assert lines[0].split() == list(COLUMNS)
    assert max(map(len, lines)) <= 80
    (line,) = listed(monkeypatch, H200S, terminal=False)
    assert "connected\tno\t8 x NVIDIA H200, AMD EPYC 9654 96-Core Processor\t12\t112\t812.0 GB\t" in line


def test_the_list_says_why_a_node_is_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = listed(monkeypatch, H200S, terminal=True)
    assert lines[-1] == "gpu-host-1 is avoided for e1 until 2026-01-01T00:01:00Z: no module"
    (line,) = listed(monkeypatch, H200S, terminal=False)
    assert line.endswith("\te1 on n1 until 2026-01-01T00:01:00Z (no module)")
