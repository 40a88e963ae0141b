"""Webhooks from the plane: every terminal state, three tries ten seconds apart, one id, a true signature."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from stoker.control import store
from stoker.control.rules.submissions import Submission
from stoker.outbound.errors import UrlRefused
from stoker.outbound.wait_limits import WEBHOOKS, Waiter
from stoker.wire.messages import Outcome
from tests.control.plane_world import World, endpoint, story, world

URL = "https://receiver.test/hook"
HOOKED = Submission(input=b'{"x":1}', webhook=URL)


async def posted(w: World, count: int) -> list[tuple[float, str, Any, dict[str, str]]]:
    while len(w.posted) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return w.posted


async def ended(w: World, tasks: asyncio.TaskGroup, end: str, **fields: Any) -> str:
    """A job with a webhook that an agent ends so; the agent stays connected."""
    agent = await w.working_agent(tasks)
    job = await w.plane.commands.submit(w.echo, HOOKED, sync=False)
    assign = await agent.assigned()
    await agent.report(Outcome(assign.job, 1, assign.worker, end, execution_ms=7, **fields))
    await w.plane.queries.wait(w.echo, job.id, 30)
    return job.id


@story
async def test_a_receiver_that_fails_twice_is_called_three_times_ten_seconds_apart_under_one_id() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        w.answers = [500, UrlRefused("not today"), 200]
        job = await ended(w, tasks, "completed", output=b'{"ok":true}')
        tries = await posted(w, 3)
        ids = {headers["webhook-id"] for *_, headers in tries}
        assert len(ids) == 1
        assert [url for _, url, *_ in tries] == [URL] * 3
        gaps = [later[0] - earlier[0] for earlier, later in pairwise(tries)]
        assert all(10.0 <= gap < 12.0 for gap in gaps), gaps
        body = tries[-1][2]
        assert body["delayTime"] >= 0
        assert body == {
            "id": job,
            "status": "COMPLETED",
            "delayTime": body["delayTime"],
            "executionTime": 7,
            "workerId": body["workerId"],
            "output": {"ok": True},
            "input": {"x": 1},
            "webhook": URL,
        }
        await asyncio.sleep(60)
        assert len(w.posted) == 3


@story
async def test_after_three_failures_nothing_is_sent_any_more_and_the_job_is_as_it_was() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        w.answers = [301, 404, 201, 200]
        job = await ended(w, tasks, "completed", output=b"1")
        await asyncio.sleep(120)
        assert len(w.posted) == 3
        assert (await w.plane.queries.status(w.echo, job)).output == b"1"


@story
async def test_failed_timed_out_cancelled_and_purged_jobs_are_reported_too() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        cancelled = await w.plane.commands.submit(w.echo, HOOKED, sync=False)
        await w.plane.commands.cancel(w.echo, cancelled.id)
        purged = await w.plane.commands.submit(w.echo, HOOKED, sync=False)
        assert await w.plane.commands.purge(w.echo) == 1
        bodies = {body["id"]: body for _, _, body, _ in await posted(w, 2)}
        assert bodies[cancelled.id]["status"] == "CANCELLED"
        assert (bodies[purged.id]["status"], bodies[purged.id]["reason"]) == ("CANCELLED", "purged")
    for end, status in (("failed", "FAILED"), ("timed_out", "TIMED_OUT")):
        async with world(endpoint(workers_min=1)) as (w, tasks):
            await ended(w, tasks, end, error="it did not work")
            ((_, _, body, _),) = await posted(w, 1)
            assert (body["status"], body["error"]) == (status, "it did not work")


@story
async def test_a_receiver_can_check_the_signature_and_a_forger_cannot_make_one() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        kept: list[tuple[bytes, dict[str, str]]] = []

        async def post(_: str, body: bytes, headers: Any, __: str) -> int:
            kept.append((body, dict(headers)))
            return 200

        w.plane.webhooks._post = post
        job = await w.plane.commands.submit(w.echo, HOOKED, sync=False)
        await w.plane.commands.cancel(w.echo, job.id)
        while not kept:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        ((body, headers),) = kept
        secret = await w.commits.commit(store.webhook_secret)
        assert secret.startswith("whsec_")
        checker = Webhook(secret)
        signed = checker.sign(headers["webhook-id"], _at(headers), body.decode())
        assert headers["webhook-signature"] == signed
        with pytest.raises(WebhookVerificationError):
            checker.verify(body.replace(b"CANCELLED", b"COMPLETED"), _fresh(headers))


@story
async def test_a_receiver_can_check_with_either_secret_until_the_old_one_is_dropped() -> None:
    """No delivery is lost between, whichever of them a receiver has already."""
    async with world(endpoint(workers_max=0)) as (w, _):
        kept: list[tuple[str, dict[str, str]]] = []

        async def post(_: str, body: bytes, headers: Any, __: str) -> int:
            kept.append((body.decode(), dict(headers)))
            return 200

        w.plane.webhooks._post = post

        async def signed_by(*secrets: str) -> list[bool]:
            job = await w.plane.commands.submit(w.echo, HOOKED, sync=False)
            await w.plane.commands.cancel(w.echo, job.id)
            while not kept:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            body, headers = kept.pop()
            wanted = [Webhook(one).sign(headers["webhook-id"], _at(headers), body) for one in secrets]
            return [one in headers["webhook-signature"].split(" ") for one in wanted]

        old = await w.commits.commit(store.webhook_secret)
        assert await signed_by(old) == [True]
        new = await w.commits.commit(store.rotate_webhook_secret)
        assert await signed_by(new, old) == [True, True]
        await w.commits.commit(store.drop_webhook_secret)
        assert await signed_by(new, old) == [True, False]


def _at(headers: dict[str, str]) -> datetime:
    return datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)


def _fresh(headers: dict[str, str]) -> dict[str, str]:
    """The checker compares with the real clock, and the story's is another."""
    return headers | {"webhook-timestamp": str(int(datetime.now(UTC).timestamp()))}


@story
async def test_a_webhook_outlives_the_record_and_a_new_control_process_delivers_it() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        w.answers = [500]
        job = await w.plane.commands.submit(w.echo, HOOKED, sync=False)
        await w.plane.commands.cancel(w.echo, job.id)
        await posted(w, 1)
        w.moved += 2_000  # its retention has passed, and so has the time of the next try
        assert [body["id"] for _, _, body, _ in await posted(w, 2)] == [job.id] * 2
        assert await w.commits.read(lambda conn: store.due_webhook(conn, w.now() + 1e6)) is None


@story
async def test_a_large_input_and_output_are_put_back_into_the_body() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        large = {"x": "y" * 2_000_000}
        input_json = Submission(input=json.dumps(large).encode(), webhook=URL)
        await w.plane.commands.submit(w.echo, input_json, sync=False)
        assign = await agent.assigned()
        assert assign.input_ref is not None
        ref = await w.artifacts.put_bytes(f"echo/{assign.job}/1/output.json", json.dumps(large).encode())
        await agent.report(Outcome(assign.job, 1, assign.worker, "completed", output_ref=ref))
        ((_, _, body, _),) = await posted(w, 1)
        assert (body["input"], body["output"]) == (large, large)


@story
async def test_a_store_of_objects_that_is_down_does_not_use_up_a_try() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await w.plane.commands.submit(w.echo, HOOKED, sync=False)
        assign = await agent.assigned()
        ref = await w.artifacts.put_bytes(f"echo/{assign.job}/1/output.json", b'"large"')
        w.artifacts.down = True
        await agent.report(Outcome(assign.job, 1, assign.worker, "completed", output_ref=ref))
        await asyncio.sleep(60)
        assert w.posted == []
        w.artifacts.down = False
        ((_, _, body, _),) = await posted(w, 1)
        assert body["output"] == "large"


async def cancelled(w: World, job_input: Submission = HOOKED) -> str:
    job = await w.plane.commands.submit(w.echo, job_input, sync=False)
    await w.plane.commands.cancel(w.echo, job.id)
    return job.id


@story
async def test_webhooks_that_wait_for_the_object_store_hold_no_other_up() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        large = Submission(input=json.dumps("x" * 1_100_000).encode(), webhook=URL)
        waiting = [await w.plane.commands.submit(w.echo, large, sync=False) for _ in range(72)]
        w.artifacts.down = True
        await w.plane.commands.purge(w.echo)
        await asyncio.sleep(5)
        job, began = await cancelled(w), w.now()
        ((at, _, body, _),) = await posted(w, 1)
        assert body["id"] == job
        assert at - began < 5
        w.artifacts.down = False
        received = {body["id"] for _, _, body, _ in await posted(w, 1 + len(waiting))}
        assert received == {job, *(one.id for one in waiting)}


@story
async def test_a_webhook_whose_payload_was_altered_or_lost_does_not_stay_for_ever() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        large = Submission(input=json.dumps("x" * 1_100_000).encode(), webhook=URL)
        lost = await w.plane.commands.submit(w.echo, large, sync=False)
        assert len(w.artifacts.blobs) == 1
        w.artifacts.blobs.clear()
        altered = await w.plane.commands.submit(w.echo, large, sync=False)
        (key,) = w.artifacts.blobs
        w.artifacts.blobs[key] = b"1"
        for job in (lost, altered):
            await w.plane.commands.cancel(w.echo, job.id)
        await asyncio.sleep(60)
        assert await w.commits.read(store.next_webhook_at) is None
        assert w.posted == []


@story
async def test_a_post_that_breaks_in_an_unforeseen_way_is_a_try_like_any_other() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        w.answers = [UnicodeError("label empty or too long")] * 9
        await cancelled(w)
        await asyncio.sleep(120)
        assert len(w.posted) == 3
        assert await w.commits.read(store.next_webhook_at) is None


@story
async def test_what_was_delivered_is_not_sent_again_while_the_store_is_full() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):

        async def post(*_: object) -> int:
            w.commits.full = True
            sent.append(w.now())
            return 200

        sent: list[float] = []
        w.plane.webhooks._post = post
        await cancelled(w)
        await asyncio.sleep(300)
        assert len(sent) == 1
        w.commits.full = False
        await asyncio.sleep(10)
        assert len(sent) == 1
        assert await w.commits.read(store.next_webhook_at) is None


@story
async def test_a_slow_look_at_the_outbox_sends_nothing_twice() -> None:
    """One that was under way when the store was read may be done, and its row gone, when it was."""
    async with world(endpoint(workers_max=0)) as (w, _):
        read = w.commits.read

        async def slow(fn: Any) -> Any:
            found = await read(fn)
            await asyncio.sleep(1)
            return found

        async def post(_: str, body: bytes, *__: Any) -> int:
            await asyncio.sleep(0.5)
            sent.append(json.loads(body)["id"])
            return 200

        sent: list[str] = []
        w.plane.webhooks._post = post
        w.commits.read = slow  # type: ignore[method-assign]
        jobs = [await cancelled(w) for _ in range(3) if not await asyncio.sleep(1.1)]
        await asyncio.sleep(30)
        assert sorted(sent) == sorted(jobs)


@story
async def test_receivers_that_hang_hold_no_other_up_however_much_waits_for_them() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        quick: list[str] = []

        async def post(url: str, body: bytes, *_: Any) -> int:
            if "slow" in url:
                await asyncio.sleep(10)
                return 500
            quick.append(json.loads(body)["id"])
            return 200

        w.plane.webhooks._post = post
        slow = [Submission(input=b"{}", webhook=f"https://slow-{n}.test/") for n in range(3)]
        jobs = [
            await w.plane.commands.submit(w.echo, one, sync=False) for one in [*slow * WEBHOOKS.slots, HOOKED]
        ]
        began = w.loop.time()
        await w.plane.commands.purge(w.echo)
        while not quick:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert w.loop.time() - began < 2
        assert quick == [jobs[-1].id]


@story
async def test_an_account_whose_receivers_all_hang_holds_no_other_account_up() -> None:
    """Each under a host name of its own, as a wildcard in the name service makes them."""
    async with world(endpoint(), endpoint("theirs", account="other")) as (w, _):
        received: list[str] = []

        async def post(url: str, body: bytes, _: Any, whose: Waiter) -> int:
            if "slow" in url:
                assert whose.account == "other"
                await asyncio.sleep(10)
                return 500
            received.append(json.loads(body)["id"])
            return 200

        w.plane.webhooks._post = post
        for n in range(WEBHOOKS.slots):
            slow = Submission(input=b"{}", webhook=f"https://slow-{n}.test/")
            await w.plane.commands.submit(w.plane.endpoints.find("other", "theirs"), slow, sync=False)
        await w.plane.commands.purge(w.plane.endpoints.find("other", "theirs"))
        await asyncio.sleep(1)
        for _ in range(20):
            began = w.loop.time()
            job = await cancelled(w)
            while job not in received:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert w.loop.time() - began < 2


@story
async def test_large_deliveries_that_hang_hold_no_other_accounts_up() -> None:
    async with world(endpoint(), endpoint("theirs", account="other")) as (w, _):
        received: list[str] = []

        async def post(url: str, *_: Any) -> int:
            if "slow" in url:
                await asyncio.sleep(10)
                return 500
            received.append(url)
            return 200

        w.plane.webhooks._post = post
        large = json.dumps("x" * 1_100_000).encode()
        for n in range(8):
            slow = Submission(input=large, webhook=f"https://slow-{n}.test/")
            await w.plane.commands.submit(w.plane.endpoints.find("other", "theirs"), slow, sync=False)
        await w.plane.commands.purge(w.plane.endpoints.find("other", "theirs"))
        await asyncio.sleep(1)
        await cancelled(w, Submission(input=large, webhook=URL))
        began = w.loop.time()
        while not received:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert w.loop.time() - began < 2
