"""Receivers that hang, on loopback, and names that nobody answers for: other accounts' webhooks pass them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import BinaryIO

import pytest

from stoker.control.rules.access import Caller
from stoker.control.rules.submissions import Submission
from stoker.outbound.guard import Guard
from stoker.outbound.lookups import Lookups
from stoker.outbound.wait_limits import WEBHOOKS, Waiter
from tests.control.plane_world import World, endpoint, world

PATIENCE_S = 600.0  # no delivery that hangs ends during the test


class Receiver:
    """Answers what is posted to `/good`; whoever posts elsewhere is left waiting."""

    def __init__(self) -> None:
        self.good = asyncio.Queue[bytes]()
        self.hanging = 0
        self.some_hang = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST /good"):
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                self.good.put_nowait(await reader.readexactly(length))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                self.hanging += 1
                self.some_hang.set()
                await reader.read()  # until the sender goes
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiver() -> AsyncIterator[tuple[Receiver, int]]:
    made = Receiver()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        yield made, server.sockets[0].getsockname()[1]


async def ended(w: World, account: str, name: str, url: str, key: str = "", job_input: bytes = b"{}") -> None:
    named = w.plane.endpoints.find(account, name)
    submission = Submission(input=job_input, webhook=url)
    job = await w.plane.commands.submit(named, submission, sync=False, caller=Caller(account, key))
    await w.plane.commands.cancel(named, job.id)


def through(w: World, guard: Guard) -> None:
    async def post(url: str, body: bytes | BinaryIO, headers: Mapping[str, str], whose: Waiter) -> int:
        return await guard.post_json(url, body, headers, PATIENCE_S, whose)

    w.plane.webhooks._post = post


async def test_an_account_with_receivers_that_hang_holds_no_other_accounts_webhook_up() -> None:
    async def found(host: str, port: int, whose: Waiter) -> Sequence[str]:
        return ["127.0.0.1"]

    async with (
        world(endpoint(), endpoint("theirs", account="other")) as (w, _),
        receiver() as (there, port),
    ):
        through(w, Guard(allow_private=True, resolver=found))
        for n in range(WEBHOOKS.slots):
            await ended(w, "other", "theirs", f"http://slow-{n}.test:{port}/hang")
        await there.some_hang.wait()
        for _ in range(3):
            await ended(w, "default", "echo", f"http://good.test:{port}/good")
            assert b"CANCELLED" in await there.good.get()
        assert 0 < there.hanging <= WEBHOOKS.slots // 2


@pytest.mark.parametrize("large", [False, True])
async def test_eighty_receivers_of_one_key_that_hang_hold_no_other_key_or_endpoint_up(large: bool) -> None:
    """Each under a name of its own. Large: the body is taken, and the answer never comes."""
    job_input = json.dumps("x" * 1_100_000).encode() if large else b"{}"

    async def found(host: str, port: int, whose: Waiter) -> Sequence[str]:
        return ["127.0.0.1"]

    async with (
        world(endpoint(), endpoint("other")) as (w, _),
        receiver() as (there, port),
    ):
        through(w, Guard(allow_private=True, resolver=found))
        for n in range(40 if large else 80):
            await ended(w, "default", "echo", f"http://slow-{n}.test:{port}/hang", "bad", job_input)
        while there.hanging < WEBHOOKS.slots // 8:  # all that the key gets at this endpoint
            await there.some_hang.wait()
            there.some_hang.clear()
        for key, name in (("good", "echo"), ("bad", "other")):
            await ended(w, "default", name, f"http://good.test:{port}/good", key, job_input)
            assert b"CANCELLED" in await asyncio.wait_for(there.good.get(), 10)
        assert there.hanging == WEBHOOKS.slots // 8


async def test_names_that_nobody_answers_for_hold_neither_others_webhooks_nor_the_end_up() -> None:
    go, some_hang = threading.Event(), threading.Event()
    hanging: list[str] = []

    def look_up(host: str, port: int) -> Sequence[str]:
        if host != "good.test":
            hanging.append(host)
            some_hang.set()
            go.wait()
        return ["127.0.0.1"]

    try:
        async with (
            receiver() as (there, port),
            world(endpoint(), endpoint("theirs", account="other")) as (w, _),
        ):
            through(w, Guard(allow_private=True, resolver=Lookups(look_up)))
            for n in range(WEBHOOKS.slots):
                await ended(w, "other", "theirs", f"http://slow-{n}.test:{port}/hang")
            while not some_hang.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0)
            await ended(w, "default", "echo", f"http://good.test:{port}/good")
            assert b"CANCELLED" in await there.good.get()
        assert hanging
        assert not go.is_set(), "control's tasks have ended, and the name server has not answered yet"
    finally:
        go.set()
