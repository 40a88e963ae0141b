"""A rogue worker says every word of the vocabulary about things that are not its own, and in every wrong way.

The table is made of the vocabulary itself: a new kind of frame, or a new field, has its rows at once, and one
for which no hostile value is known fails the test. Each row: the rogue is ended with words that name what is
wrong, logged once, its job is to be tried again, an honest neighbour on the same agent serves meanwhile, and
no descriptor, process or task is left.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stoker.agent.worker_frames import FRAME_RULES, Field, FrameRule
from stoker.agent.workers.processes import frame_socket
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from tests.load_module import load_module

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

HERE = Path(__file__).parent


scripted = load_module("rogue_agent_tests", HERE.parent / "agent" / "conftest.py")

RIGHT = {
    "concurrency": 1, "serves": "x", "ahead": 0, "n": 0, "error": "x", "reason": "x", "lost": False,
    "name": "a", "media_type": "a/b",
    "url": "http://x", "max_bytes": 1, "timeout_s": 1, "has_output": True, "in_file": False, "files": 0,
    "metrics": {}, "stages_ms": {}, "retryable": False, "yielded": False, "upto": 0, "first": 0,
}  # fmt: skip
"""A value that is allowed for each field: what else is wrong must be the row's own."""

HOSTILE: dict[str, object] = {
    "null": None,
    "text": "1",
    "negative": -1,
    "fraction": 1.5,
    "list": [1],
    "object": {"a": {"a": True}},
    "surrogate": "\ud800",
    "huge": 10**999,
    "infinite": float("inf"),
}
LITERALS = {"infinity": "Infinity", "nan": "NaN", "1e999": "1e999", "nested": "[" * 20_000 + "]" * 20_000}


@dataclass(frozen=True)
class Row:
    kind: str
    name: str
    message: str
    says: dict[str, Any]
    first: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}".replace(" ", "_")


def frame_of(kind: str, word: FrameRule, **changes: Any) -> dict[str, Any]:
    """A well-formed frame of this kind, but for the changes; as `rogue_worker` takes it."""
    fields: dict[str, Any] = {name: RIGHT[name] for name in word.fields}
    if kind == "slots":
        fields["n"] = 1
    literals = changes.pop("literals", {})
    if word.job == "must":
        fields |= {"job": "JOB", "attempt": "ATTEMPT"}
    body, fds = (
        changes.pop("body", "1" if word.body == "must" or kind in ("chunk", "done") else ""),
        changes.pop("fds", None),
    )
    if fds is None:
        fds = ["of another"] if word.descriptor == "must" else []
    fields |= changes
    for gone in [name for name, value in fields.items() if value is ...]:
        del fields[gone]
    header = {"t": kind, **({"fd": 1} if fds else {}), **fields}
    text = json.dumps(header).replace('"ATTEMPT"', "ATTEMPT")
    for name, literal in literals.items():
        text = text[:-1] + f', "{name}": {literal}}}'
    return {"header": text, "body": body, "fds": fds}


def refused(rule: Field) -> Iterator[tuple[str, object]]:
    for name, value in HOSTILE.items():
        try:
            rule.check(value)
        except ValueError:
            yield name, value


def rows_of(kind: str, word: FrameRule) -> Iterator[Row]:
    if word.program:
        yield Row(kind, "not a worker's to say", "which no worker may send", frame_of(kind, word))
        return
    yield from of_its_fields(kind, word)
    if word.job == "must":
        yield from of_its_job(kind, word)
    if kind in ("ready", "setup_failed"):
        yield Row(kind, "again", "for a second time", frame_of(kind, word))
    yield from of_its_body(kind, word)
    yield from of_its_descriptor(kind, word)
    yield Row(kind, "half of it", "and not the rest", {**frame_of(kind, word, fds=[]), "cut": 11})


def of_its_fields(kind: str, word: FrameRule) -> Iterator[Row]:
    for name, rule in word.fields.items():
        for what, value in refused(rule):
            literal = type(value) is float and value == float("inf")
            message = "a frame header is" if literal else f"frame has {name} "
            yield Row(kind, f"{name} {what}", message, frame_of(kind, word, **{name: value}))
        if name in ("n", "error", "reason", "url"):
            yield Row(kind, f"no {name}", f"frame has no {name}", frame_of(kind, word, **{name: ...}))
    name = next(iter(word.fields), "attempt")
    for what, literal in LITERALS.items():
        if what != "1e999" or kind == "slots":
            says = frame_of(kind, word, **{name: ...}, literals={name: literal})
            yield Row(kind, f"{name} as {what}", "", says)


def of_its_job(kind: str, word: FrameRule) -> Iterator[Row]:
    for what, about in {
        "an unknown job": {"job": "nobodys"},
        "a neighbour's job": {"job": "NEIGHBOUR"},
        "another attempt": {"attempt": 2},
    }.items():
        yield Row(kind, what, "which is not its own", frame_of(kind, word, **about))
    ended = frame_of("done", FRAME_RULES["done"])
    yield Row(kind, "a job that it has ended", "", frame_of(kind, word), first=ended)
    yield Row(kind, "a job's name without end", "has job", frame_of(kind, word, job="x" * 60_000))


def of_its_body(kind: str, word: FrameRule) -> Iterator[Row]:
    if word.body == "no":
        yield Row(kind, "a body", "frame came with a body", frame_of(kind, word, body="1"))
        return
    if kind != "failed":
        yield Row(kind, "no body", "frame came without a body", frame_of(kind, word, body=""))
    for what, body in {} if word.raw else {"half": '{"a":', "NaN": "NaN", "not UTF-8": '"\xff"'}.items():
        yield Row(kind, f"a body {what}", "is not JSON", frame_of(kind, word, body=body))
    outside = frame_of(kind, word, body="", fds=[])
    outside["header"] = outside["header"][:-1] + ', "memfd": 1048576}'
    for what in ("pipe", "socket", "folder", "process", "memory of a process", "device", "memfd", "sparse"):
        yield Row(kind, f"a body in a {what}", "a body lies in", {**outside, "fds": [what]})
    if word.raw:
        yield Row(kind, "more than there is", "covers 5 chunks", frame_of(kind, word, n=0, upto=5))
        yield Row(kind, "a number that is not next", "came instead of 0", frame_of(kind, word, n=5))
    else:
        yield Row(kind, "a body of zeros in a memfd", "is not JSON", {**outside, "fds": ["zeros"]})


def of_its_descriptor(kind: str, word: FrameRule) -> Iterator[Row]:
    if word.descriptor == "no":
        yield Row(kind, "a descriptor", "frame came with a descriptor", frame_of(kind, word, fds=["pipe"]))
        return
    if word.descriptor == "must":
        yield Row(kind, "no descriptor", "frame came without a descriptor", frame_of(kind, word, fds=[]))
    for what in ("pipe", "socket", "folder", "process", "event", "device"):
        frame = frame_of(kind, word, body="", fds=[what])
        yield Row(kind, f"a {what}", "instead of a regular file", frame)
    frame = frame_of(kind, word, body="", fds=["pipe"])
    yield Row(kind, "more descriptors than it says", "", {**frame, "fds": ["pipe"] * 3})
    fds = ["sparse"] if kind == "file" else []
    yield Row(kind, "a number that is not next", "came instead of 0", frame_of(kind, word, n=5, fds=fds))


ROWS = [row for kind, word in FRAME_RULES.items() for row in rows_of(kind, word)]
BREAKERS = [
    Row("stranger", "an unknown word", "which no worker may send", {"header": '{"t":"sudo"}'}),
    Row(
        "stranger",
        "the agent's own word",
        "which no worker may send",
        {"header": '{"t":"run","job":"JOB","attempt":1}'},
    ),
    Row("stranger", "no word", "not a JSON object with a kind", {"header": "{}"}),
    Row("stranger", "a list", "not a JSON object with a kind", {"header": "[]"}),
    Row("stranger", "nothing", "not a JSON object with a kind", {"header": ""}),
    Row("stranger", "nested without end", "nested too deeply", {"header": "[" * 60_000}),
    Row("stranger", "a header of a megabyte", "a frame announces", {"header": " " * 1_000_000}),
]


def quick(rows: list[Row]) -> list[Row]:
    """Of each kind one, and one kind whole but for its fields: each takes a process, and to the agent many
    are the same."""
    chosen = {"a neighbour's job", "again", "not a worker's to say", "n huge", "lost text"}
    return [row for row in rows if row.name in chosen or (row.kind == "chunk" and "n " not in row.name[:2])]


class Node:
    """A real agent, with an honest worker that serves all along."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = scripted.Host()
        self.host.spawner = LocalSpawner(folder / "agent", module="rogue_worker")
        self.host.scratch = ScratchFolders(folder / "scratch")
        self.host.new_agent()
        self.control = self.host.control
        env = {"PYTHONPATH": str(HERE)}
        self.good = scripted.worker(
            "good", handler=f"{HERE.parent}/handlers/outputs/echo.py:handler", env=env
        )
        self.numbers = itertools.count(1)
        self.before: tuple[int, int] = (0, 0)

    async def serves(self) -> None:
        job = f"good-{next(self.numbers)}"
        await self.control.assign(scripted.job(job, b'"next"', on="good"))
        outcome = await self.control.outcome(job)
        assert (outcome.end, outcome.output) == ("completed", b'"next"')

    async def rogue(self, how: str, **env: str) -> Any:
        environment = {"PYTHONPATH": str(HERE), "STOKER_ROGUE": how, **env}
        spec = scripted.worker(f"rogue-{next(self.numbers)}", endpoint="e2", env=environment)
        await self.control.desire(self.good, spec)
        return spec

    async def gone(self, spec: Any) -> None:
        await self.control.desire(self.good)
        await self.control.until(lambda: self.control.news(spec.worker)[-1].state == "gone")

    def seen(self) -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: Any) -> AsyncIterator[Node]:
    made = Node(tmp_path_factory.mktemp("rogue"))
    running = asyncio.create_task(made.host.agent.run())
    await made.control.ready(made.good)
    await made.serves()
    made.before = made.seen()
    yield made
    made.host.agent.stop()
    async with asyncio.timeout(60):
        await running
    assert os.listdir(made.folder / "scratch") == []
    for task in made.control._tasks:
        task.cancel()


async def put_to_it(node: Node, row: Row, logged: pytest.LogCaptureFixture) -> None:
    logged.clear()
    spec = await node.rogue("yes")
    await node.control.worker_is(spec.worker, "ready")
    job = f"job-{next(node.numbers)}"
    says = [row.first, row.says] if row.first else [row.says]
    job_input = json.dumps(says).replace("NEIGHBOUR", "good-1").encode()
    await node.control.assign(scripted.job(job, job_input, on=spec.worker))
    await node.serves()
    if row.first is None:
        outcome = await node.control.outcome(job)
        assert (outcome.end, outcome.retryable) == ("lost", True)
        assert "broke the worker protocol" in outcome.error
        assert row.message in outcome.error, outcome.error
    await node.control.until(
        lambda: any(
            news.state != "ready" and "broke the" in news.reason for news in node.control.news(spec.worker)
        )
    )
    await node.gone(spec)
    await node.serves()
    warned = [
        r
        for r in logged.records
        if "broke the worker protocol" in r.getMessage() and spec.worker in r.getMessage()
    ]
    assert len(warned) == 1, "logged once"
    await node.host.until(lambda: node.seen() <= node.before)


@pytest.mark.parametrize("row", quick(ROWS) + BREAKERS[:2], ids=str)
async def test_some_of_each_word(
    node: Node, row: Row, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_socket, "FRAME_S", 0.2)
    with caplog.at_level(logging.WARNING):
        await put_to_it(node, row, caplog)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS + BREAKERS, ids=str)
async def test_every_word_about_every_foreign_thing(
    node: Node, row: Row, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_socket, "FRAME_S", 0.2)
    with caplog.at_level(logging.WARNING):
        await put_to_it(node, row, caplog)


@pytest.mark.parametrize("kind", sorted(FRAME_RULES))
async def test_no_word_is_without_rows(kind: str) -> None:
    word = FRAME_RULES[kind]
    mine = [row.name for row in ROWS if row.kind == kind]
    if word.program:
        assert mine == ["not a worker's to say"]
        return
    for name, rule in word.fields.items():
        assert name in RIGHT, f"the new field {name} needs a value that is allowed"
        assert any(row.startswith(f"{name} ") for row in mine), f"{kind}.{name} has no hostile value"
        assert list(refused(rule))
    assert any("descriptor" in row for row in mine)
    assert any("body" in row for row in mine)
    assert ("a neighbour's job" in mine) == (word.job == "must")
