"""Stories of attempts that read their kept chunks: from control and the store, however these come and go."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from msgspec.structs import replace

from stoker.agent.jobs.inputs.kept_pages import KeptPages
from stoker.agent.jobs.inputs.kept_requests import AT_ONCE, NOT_GIVEN, KeptRequests
from stoker.agent.worker_frames import Kept
from stoker.outbound.errors import ObjectStoreDown, ObjectStoreRefused
from stoker.wire.messages import AttemptKey, KeptAsk, KeptPage, Ref, Saved
from stoker.worker.frames import BODY_MAX, Frame
from stoker.worker.job.saves import packed
from tests.agent.conftest import GRANT

VALUES = ["a", "b", {"c": [1, "x" * 2_000]}, "d"]
"""Chunks that are kept; the third is an object."""

SCRIPT = json.dumps({"chunks": [*VALUES, "e"], "saves": 1, "output": {}, "run_s": 1}).encode()


def value(n):
    return json.dumps(VALUES[n]).encode()


def stored(host, n=2):
    body = value(n)
    ref = Ref(f"e1/j1/1/chunk-{n}", len(body), hashlib.sha256(body).hexdigest())
    host.objects.blobs["bucket", ref.key] = body
    return ref


def goes_on(a_job, upto=4, script=SCRIPT):
    """The second attempt. Its save holds nothing that the chunks hold."""
    state = packed(json.dumps([None] * upto).encode(), {})
    return replace(a_job("j1", script), attempt=2, saved=Saved(upto, state))


def gives_all(host):
    host.control.pages = {
        0: KeptPage(0, values=(value(0), value(1))),
        2: KeptPage(0, ref=stored(host)),
        3: KeptPage(0, values=(value(3),)),
    }


async def made(host):
    outcome = await host.control.outcome("j1", 2)
    assert outcome.end == "completed", outcome.error
    return json.loads(outcome.output)["made"]


def test_values_and_objects_come_back_in_order_page_by_page(play, a_worker, a_job):
    async def story(host):
        host.control.gives_kept = True
        gives_all(host)
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job))
        assert await made(host) == [*VALUES, "e"]
        asked = [(ask.job, ask.attempt, ask.first, ask.upto) for ask in host.control.kept_asks]
        assert asked == [("j1", 2, first, 4) for first in (0, 2, 3)]

    play(story)


def test_an_attempt_that_does_not_ask_costs_no_message(play, a_worker, a_job):
    async def story(host):
        host.control.gives_kept = True
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job, script=b'{"output": 1}'))
        assert (await host.control.outcome("j1", 2)).end == "completed"
        assert host.control.kept_asks == []

    play(story)


def test_a_control_that_gives_none_is_not_asked(play, a_worker, a_job):
    async def story(host):
        assert not host.control.gives_kept
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job))
        assert await made(host) == [None] * 4 + ["e"], "the worker was told to ask for none"
        assert host.control.kept_asks == []

    play(story)


def test_an_ask_is_sent_again_in_the_next_session(play, a_worker, a_job):
    async def story(host):
        host.control.gives_kept = True
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job))
        await host.control.until(lambda: host.control.kept_asks)
        gives_all(host)
        host.control.stream.end("control restarts")
        assert await made(host) == [*VALUES, "e"]
        assert [ask.first for ask in host.control.kept_asks] == [0, 0, 2, 3]

    play(story)


def test_a_control_that_is_replaced_by_one_without_them_ends_the_waiting(play, a_worker, a_job):
    async def story(host):
        host.control.gives_kept = True
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job))
        await host.control.until(lambda: host.control.kept_asks)
        host.control.gives_kept = False
        host.control.stream.end("an earlier control starts")
        outcome = await host.control.outcome("j1", 2)
        assert (outcome.end, outcome.error, outcome.retryable) == ("failed", NOT_GIVEN, False)

    play(story)


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (KeptPage(0, "this node holds no attempt 2"), "this node holds no attempt 2"),
        (KeptPage(0), "control gave 0 of 4 back"),
        (KeptPage(0, values=(b"1",) * 5), "control gave 5 of 4 back"),
        (
            KeptPage(0, ref=Ref("k", BODY_MAX + 1, "ab")),
            f"chunk 0 has {BODY_MAX + 1} bytes; at most {BODY_MAX} come back",
        ),
    ],
)
def test_the_handler_learns_why_there_are_none(play, a_worker, a_job, page, error):
    async def story(host):
        host.control.gives_kept = True
        host.control.pages = {0: page}
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job))
        outcome = await host.control.outcome("j1", 2)
        assert (outcome.end, outcome.error) == ("failed", error)

    play(story)


def test_what_may_pass_is_waited_for(play, a_worker, a_job):
    async def story(host):
        host.control.gives_kept = True
        gives_all(host)
        first = host.control.pages[0]
        host.control.pages[0] = KeptPage(0, "the database does not answer", retryable=True)
        host.objects.fail(2, ObjectStoreDown("no route"))
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job))
        await host.control.until(lambda: len(host.control.kept_asks) == 3)
        host.control.pages[0] = first
        assert await made(host) == [*VALUES, "e"]

    play(story)


def test_an_object_that_is_gone_is_said(play, a_worker, a_job):
    async def story(host):
        host.control.gives_kept = True
        gives_all(host)
        host.objects.fail(1, ObjectStoreRefused("no such object"))
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job))
        assert (await host.control.outcome("j1", 2)).error == "no such object"

    play(story)


@pytest.mark.parametrize("end", ["cancel", "time limit", "exit"])
def test_the_end_of_the_attempt_ends_the_asking(play, a_worker, a_job, end):
    async def story(host):
        host.control.gives_kept = True
        await host.control.ready(a_worker())
        await host.control.assign(replace(goes_on(a_job), execution_timeout_ms=5_000))
        await host.control.until(lambda: host.control.kept_asks)
        if end == "cancel":
            await host.control.cancel("j1", 2)
        elif end == "exit":
            host.spawner.processes[0].exit(-9)
        ended = (await host.control.outcome("j1", 2)).end
        assert ended == {"cancel": "cancelled", "time limit": "timed_out", "exit": "lost"}[end]
        await host.until(lambda: not host.agent.kept_requests._asked)
        assert host.agent.kept_requests.unsent == set()

    play(story)


@pytest.mark.parametrize("first", [4, 2**31 - 1])
def test_a_worker_that_asks_for_what_is_not_kept_is_replaced(play, a_worker, a_job, first):
    async def story(host):
        host.control.gives_kept = True
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job))
        await host.control.until(lambda: host.control.kept_asks)
        host.spawner.processes[0].emit(Frame("kept", {"job": "j1", "attempt": 2, "n": 1, "first": first}))
        outcome = await host.control.outcome("j1", 2)
        assert outcome.end == "lost"
        assert f"it asked for kept chunk {first} of 4" in outcome.error

    play(story)


def test_a_worker_that_asks_for_much_at_once_is_told_so(play, a_worker, a_job):
    async def story(host):
        host.control.gives_kept = True
        await host.control.ready(a_worker())
        await host.control.assign(goes_on(a_job))
        await host.control.until(lambda: host.control.kept_asks)
        process = host.spawner.processes[0]
        for n in range(9):
            process.emit(Frame("kept", {"job": "j1", "attempt": 2, "n": 10 + n, "first": 0}))
        outcome = await host.control.outcome("j1", 2)
        assert outcome.error == "a job reads at most 4 pages at once"

    play(story)


def test_few_large_chunks_are_in_memory_at_once(in_time):
    class Slow:
        now = most = 0

        async def get(self, grant, ref):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(1)
            self.now -= 1
            return b"1"

    async def story():
        requests, sent, objects = KeptRequests(asyncio.Event()), [], Slow()
        requests.welcomed(kept=True)
        spawn = lambda coroutine, name: asyncio.create_task(coroutine, name=name)  # noqa: E731
        for n in range(3 * AT_ONCE):
            key = AttemptKey(f"j{n}", 2)
            KeptPages(key, 1, requests, objects, GRANT, spawn, sent.append).begin(Kept(key, 0, 0))
        while len(sent) < 3 * AT_ONCE:
            await asyncio.sleep(0.1)
            for ask in requests.take():
                requests.answered(KeptPage(ask.number, ref=Ref("k", 50_000_000, "ab")))
        assert {frame.kind for frame in sent} == {"kept_page"}
        assert objects.most == AT_ONCE

    in_time(story())


def test_few_asks_of_a_node_are_under_way_at_once_and_a_cancelled_one_makes_room(in_time):
    async def story():
        requests = KeptRequests(asyncio.Event())
        requests.welcomed(kept=True)
        jobs = [f"j{n}" for n in range(AT_ONCE + 2)]
        asking = {job: asyncio.create_task(requests.page(AttemptKey(job, 2), 0, 1), name=job) for job in jobs}
        await asyncio.sleep(1)
        asks = requests.take()
        assert asks == tuple(KeptAsk(n, ask.job, 2, 0, 1) for n, ask in enumerate(asks, 1))
        assert len(asks) == AT_ONCE
        assert requests.take() == ()
        asking[asks[0].job].cancel()
        requests.answered(KeptPage(2, values=(b"1",)))
        await asyncio.sleep(1)
        more = requests.take()
        assert {ask.job for ask in (*asks, *more)} == set(jobs)
        requests.answered(KeptPage(1, values=(b"late",)))
        assert (await asking[asks[1].job]).values == (b"1",)
        for task in asking.values():
            task.cancel()
        await asyncio.wait(asking.values())
        assert requests._asked == {}

    in_time(story())
