"""What is open when its key is revoked, expires or loses rights ends within seconds."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import h11
from sqlalchemy import update

from stoker.control.auth.callers import REMEMBERED_S
from stoker.control.auth.while_valid import RECHECK_S
from stoker.control.errors import Unavailable
from stoker.control.rules.access import Access
from stoker.control.store import Conn
from stoker.control.store.resources.keys import create_key
from stoker.control.store.tables.accounts import keys
from tests.control.http.gateway.memory_worker import Caller, Served, Site, app_endpoint, site
from tests.control.http.gateway.test_upgrades import Handshake, echo
from tests.control.plane_world import endpoint, one, story

WITHIN_S = RECHECK_S + REMEMBERED_S + 1.0
ENDS = ("revoked", "expired", "less right")


async def use_new_key(s: Site) -> str:
    """The site's callers use a key of their own from now on."""
    make = partial(create_key, name="x", now=0.0)
    record, s.w.key = await s.w.commits.commit(make)
    return record.id


async def end(s: Site, key: str, how: str) -> None:
    """As another control does: this one has to notice."""
    change: dict[str, object] = {
        "revoked": {"revoked_at": s.w.now()},
        "expired": {"expires_at": s.w.now() + 0.5},
        "less right": {"access": Access("restricted", "read", {"another": "write"}).stored()},
    }[how]

    def changed(conn: Conn) -> None:
        conn.execute(update(keys).where(keys.c.id == key).values(change))

    await s.w.commits.commit(changed)


async def drips(served: Served) -> None:
    """Sends a byte each second, without an end."""
    served.head()
    while not served.pipe.closed:
        served.send(h11.Data(b"x"))
        await asyncio.sleep(1.0)


@story
async def test_a_web_socket_ends_with_its_key() -> None:
    async with site(echo) as s:
        await s.ready()
        for how in ENDS:
            key = await use_new_key(s)
            one_socket = Handshake(s, "/v2/app/chat")
            assert (await one_socket.head())[0] == 101
            await asyncio.sleep(100.0)
            assert one_socket.tasks
            await end(s, key, how)
            await asyncio.sleep(WITHIN_S)
            assert (how, one_socket.tasks, one_socket.to_caller.closed) == (how, set(), True)
            assert all(pipe.closed for pipe in s.workers.pipes)
        assert s.w.plane.requests.in_progress("app") == 0


@story
async def test_a_response_under_way_ends_with_its_key() -> None:
    async with site(drips) as s:
        await s.ready()
        for how in ENDS:
            key = await use_new_key(s)
            caller = s.caller()
            running = asyncio.create_task(caller.run())
            await caller.until(b"x" * 10)
            await end(s, key, how)
            async with asyncio.timeout(WITHIN_S):
                await running
            assert (caller.status, caller.complete) == (200, False)


@story
async def test_a_request_that_waits_for_a_worker_is_refused_with_its_key() -> None:
    async with site(echo, workers_min=0, workers_max=0) as s:
        key = await use_new_key(s)
        caller, handshake = s.caller(), Handshake(s, "/v2/app/chat")
        running = asyncio.create_task(caller.run())
        await asyncio.sleep(1.0)
        await end(s, key, "revoked")
        await asyncio.sleep(WITHIN_S)
        assert (running.done(), caller.status, (await handshake.head())[0]) == (True, 401, 401)


@story
async def test_held_polls_and_event_streams_end_with_their_key() -> None:
    async with site(echo, app_endpoint(), endpoint(workers_max=0)) as s:
        for how in ENDS:
            job = (await s.w.plane.commands.submit(s.w.echo, one(), sync=False)).id
            key = await use_new_key(s)
            held = s.caller(f"/v2/echo/status-sync/{job}?wait=300000")
            events = s.caller(f"/v2/echo/stream/{job}", accept="text/event-stream")
            lines = s.caller(f"/v2/echo/logs/{job}?follow=true")
            chat = s.caller("/v2/echo/openai/v1/chat/completions", "POST")
            running = [asyncio.create_task(caller.run()) for caller in (held, events, lines)]
            running.append(asyncio.create_task(chat.run(b'{"messages":[]}')))
            await asyncio.sleep(1.0)
            await end(s, key, how)
            await asyncio.sleep(WITHIN_S)
            assert (how, [task.done() for task in running]) == (how, [True] * 4)
            assert [held.status, chat.status] == [401, 401]
            assert (events.status, events.complete, b"event: end" in events.body) == (200, True, False)
            assert (lines.status, lines.complete) == (200, True)
            assert "revoked" in json.loads(held.body)["error"]


@story
async def test_what_has_its_key_goes_on_while_the_store_is_down() -> None:
    async with site(drips) as s:
        await s.ready()
        caller: Caller = s.caller()
        running = asyncio.create_task(caller.run())
        await caller.until(b"x")
        asked = 0

        async def is_down(_: object) -> None:
            nonlocal asked
            asked += 1
            raise Unavailable("the store cannot be reached")

        s.w.commits.read = is_down  # type: ignore[method-assign,assignment]
        await asyncio.sleep(3 * WITHIN_S)
        assert (asked > 2, running.done()) == (True, False)
        del s.w.commits.read  # type: ignore[method-assign]
        caller.leave()
        await running
