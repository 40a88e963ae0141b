"""The flow of what routes yield: no function runs far ahead of the reader of its response."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker.worker.errors import HandlerError
from stoker.worker.functions.child import AHEAD
from stoker.worker.functions.interpreter import Interpreter
from stoker.worker.functions.streams import Ended, OnChunk, Yielded
from tests.worker.functions.function_apps import joined_watchers

SOURCE = """
import time
yielded = 0

def plain():
    global yielded
    for yielded in range(1, 500):
        yield yielded

async def asynchronous():
    global yielded
    for yielded in range(1, 500):
        yield yielded

def looks():
    while not yielded:
        time.sleep(0)
    for _ in range(100):
        time.sleep(0)
    return yielded
"""


def ignore(value: Any) -> None:
    """A test of chunks does not look at progress."""


@pytest.mark.parametrize("name", ["plain", "asynchronous"])
@pytest.mark.parametrize("leaves", [False, True])
async def test_a_function_waits_for_its_reader(tmp_path: Path, name: str, leaves: bool) -> None:
    (tmp_path / "app.py").write_text(SOURCE)
    request = {"method": "GET", "path": "/", "query": "", "headers": {}, "body": ""}
    message = {"module": "app", "names": {}, "request": request}
    reads, taken = asyncio.Event(), list[int]()

    async def take(chunk: int) -> None:
        taken.append(chunk)
        await reads.wait()

    async def nothing(chunk: Any) -> None:
        raise AssertionError(f"it yields nothing; got {chunk}")

    with joined_watchers():
        there = await Interpreter.start(sys.executable, str(tmp_path), "", 2)
        call = asyncio.create_task(there.call({**message, "callable": name}, ignore, take))
        ahead = await there.call({**message, "callable": "looks"}, ignore, nothing)
        assert ahead <= AHEAD + 1
        if leaves:
            call.cancel()
            await asyncio.wait([call])
            assert there.alive, "the function has ended: its process need not be killed"
        else:
            reads.set()
            assert await call is None
            assert taken == list(range(1, 500))
        await there.close()


async def test_a_call_goes_on_when_its_part_is_taken_and_ends_when_it_is_closed() -> None:
    steps: list[str] = []

    async def call(on_chunk: OnChunk) -> None:
        try:
            for part in "abcd":
                await on_chunk(part)
                steps.append(part)
        finally:
            steps.append("over")

    yielded = Yielded(call, {})
    assert await yielded.begin() == "a"
    assert await yielded.next() == b"a"
    for _ in range(20):
        await asyncio.sleep(0)
    assert steps == ["a", "b"], "one part waits to be taken, and the next with its function"
    await yielded.close()
    assert steps == ["a", "b", "over"]


async def test_what_was_returned_or_raised_is_the_beginning() -> None:
    async def returns(on_chunk: OnChunk) -> int:
        return 1

    async def fails(on_chunk: OnChunk) -> None:
        raise HandlerError("no")

    yielded = Yielded(returns, {})
    assert await yielded.begin() == Ended(1)
    await yielded.close()
    yielded = Yielded(fails, {})
    with pytest.raises(HandlerError, match="no"):
        await yielded.begin()
    await yielded.close()
