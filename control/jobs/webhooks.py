"""Delivers webhooks from the store's outbox: each a few times, each time with the same id, signed.

    due ──> body (record + input + webhook), signed ──> post ── 200 ──> the row goes
             │                                           └── anything else ──> again in 10 s, thrice in all
             └── one of our stores is down ──> others first, and no try is used up

Rows are written by the transaction that ended the job, so a crash loses none; one between an answer and its
note sends that delivery once more, under the same id. While the store takes nothing, what was sent waits to
be noted, and is not sent again. The way out is the guard's (`outbound.guard`): it
refuses private addresses, pins what it resolved and follows no redirect. A delivery that fails changes
nothing about its job.

Deliveries under way share slots by the rule of waits (`outbound.wait_limits`): receivers that never answer
leave slots for those of other callers. One with a spilled payload is in memory only while it is put
together: it is sent from a file, so that a receiver that hangs holds no memory.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import BinaryIO

from standardwebhooks import Webhook

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import Unavailable, UncertainCommit, level_of
from stoker.control.jobs import records
from stoker.control.jobs.queries import JobQueries
from stoker.control.rules.retries import is_delivered
from stoker.control.rules.types import Delivery
from stoker.control.store import Conn
from stoker.outbound.wait_limits import OTHERS, WEBHOOKS, Group, Held, Waiter, take

log = logging.getLogger(__name__)

Post = Callable[[str, bytes | BinaryIO, Mapping[str, str], Waiter], Awaitable[int]]
"""URL, JSON text (or a file of it), headers and the caller of the job, to the answer's status. Raises
OutboundError where there was none."""

LARGE_AT_ONCE = 4
"""Deliveries with a spilled payload that are put together at once: each is in memory several times over, and
may have 40 MB."""

LOOKED_UP = 32
"""The most deliveries that one look at the store begins."""

LOOK_S = 5.0
STORE_RETRY_S = 2.0
"""The pause after the store, or the object store, has failed."""


class Webhooks:
    """The deliverer of webhooks. `wake` is set when a job with a webhook has ended."""

    def __init__(
        self,
        context: Context,
        queries: JobQueries,
        post: Post,
        wake: asyncio.Event,
        count: Callable[[bool], None],
    ) -> None:
        """Begins with no delivery under way. `count` is called with the result of each try."""
        self._commits, self._clock, self._spool = context.commits, context.clock, context.settings.spool
        self._queries, self._post, self._count, self._wake = queries, post, count, wake
        self._under_way: dict[str, Waiter] = {}
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def run(self) -> None:
        """Delivers webhooks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                try:
                    wait_s = await self._send_due(tasks)
                except Exception as error:  # the rows stay: the next look finds them
                    log.log(level_of(error), "webhooks are not delivered for now: %r", error)
                    wait_s = STORE_RETRY_S
                try:
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    async def _send_due(self, tasks: asyncio.TaskGroup) -> float:
        """Starts what is due and not under way; how long until the next look."""
        now, under_way = self._clock(), dict(self._under_way)
        due, next_at = await self._commits.read(
            lambda conn: (_shared_out(conn, now, under_way), store.next_webhook_at(conn))
        )
        for delivery in due:
            self._under_way[delivery.id] = delivery.whose
            tasks.create_task(self._deliver(delivery), name=f"webhook {delivery.id}")
        if len(due) == LOOKED_UP:
            return 0.0
        if next_at is None or next_at <= now:  # those that are under way look again when they are done
            return LOOK_S
        return min(next_at - now, LOOK_S)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            await self._note(delivery, await self._tried(delivery))
        finally:
            del self._under_way[delivery.id]
            self._wake.set()

    async def _tried(self, delivery: Delivery) -> bool | None:
        """Tries to deliver a webhook. Returns whether it was delivered. None: the store or the object store
        is down, and the webhook was not tried.

        Whatever else goes wrong is a try that failed: a part of it that is lost, a URL that cannot be
        resolved. So no row stays without end.
        """
        try:
            body, headers = await self._ready(delivery)
        except Unavailable as error:
            log.log(level_of(error), "webhook %s of job %s waits: %s", delivery.id, delivery.view.id, error)
            return None
        except Exception as error:
            log.error("webhook %s of job %s: %r", delivery.id, delivery.view.id, error)
            return False
        try:
            with _closing(body):
                status = await self._post(delivery.url, body, headers, delivery.whose)
        except Exception as error:
            result = str(error) or repr(error)
        else:
            if is_delivered(status):
                return True
            result = f"it answered {status}"
        job, number = delivery.view.id, delivery.tries + 1
        log.warning("webhook %s of job %s, try %d: %s", delivery.id, job, number, result)
        return False

    async def _note(self, delivery: Delivery, delivered: bool | None) -> None:
        """Stores the result of a try, again until the store takes it: a row that stays as it was would be
        sent again at once."""
        if delivered is not None:
            self._count(delivered)
        logged = False
        while True:
            now = self._clock()

            def note(conn: Conn, now: float = now) -> None:
                if delivered is None:
                    store.webhook_later(conn, delivery.id, now + STORE_RETRY_S)
                else:
                    store.webhook_tried(conn, delivery.id, now, delivered=delivered)

            try:
                await self._commits.commit(note)
                return
            except UncertainCommit:
                return  # reported twice, a failure would count twice
            except Exception as error:
                if not logged:
                    log.log(
                        level_of(error), "what became of webhook %s cannot be stored: %r", delivery.id, error
                    )
                logged = True
            await asyncio.sleep(STORE_RETRY_S)

    async def _ready(self, delivery: Delivery) -> tuple[bytes | BinaryIO, dict[str, str]]:
        """Returns the body and its headers. A large body is in a file."""
        if delivery.input_ref is None and delivery.view.output_ref is None:
            body = await self._body(delivery)
            return body, await self._headers(delivery.id, body)
        async with self._large:
            body = await self._body(delivery)
            headers = await self._headers(delivery.id, body)
            file: BinaryIO = tempfile.TemporaryFile(dir=self._spool)  # noqa: SIM115
            file.write(body)
            file.seek(0)
            return file, headers

    async def _body(self, delivery: Delivery) -> bytes:
        """Raises NotFound where a part of it has been lost from the object store."""
        view = await self._queries.whole(delivery.view)
        input_json = delivery.input
        if delivery.input_ref is not None:
            input_json = await self._queries.payload(delivery.input_ref)
        return records.webhook_body(view, input_json or b"null")

    async def _headers(self, delivery: str, body: bytes) -> dict[str, str]:
        """Returns the headers of the Standard Webhooks convention: the receiver checks them with any of its
        libraries, which accept one right signature of several. A command may rotate the secrets at any time,
        so they are read for each delivery."""
        at = datetime.fromtimestamp(int(self._clock()), UTC)
        secrets = await self._commits.read(store.webhook_secrets)
        if not secrets:
            secrets = (await self._commits.commit(store.webhook_secret),)
        return {
            "webhook-id": delivery,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": " ".join(Webhook(one).sign(delivery, at, body.decode()) for one in secrets),
        }


@contextmanager
def _closing(body: bytes | BinaryIO) -> Iterator[None]:
    try:
        yield
    finally:
        if not isinstance(body, bytes):
            body.close()


def _shared_out(conn: Conn, now: float, under_way: dict[str, Waiter]) -> list[Delivery]:
    """Returns the due deliveries that get a free slot. `under_way`: the callers of those that have a slot, by
    id."""
    due, held = list[Delivery](), Counter[Group]()
    for whose in under_way.values():
        take(held, whose.group)
    while len(due) < LOOKED_UP:
        delivery = store.due_webhook(conn, now, under_way, partial(left_out, held))
        if delivery is None:
            break
        under_way[delivery.id] = delivery.whose
        take(held, delivery.whose.group)
        due.append(delivery)
    return due


def left_out(held: Held, account: str) -> list[Group] | None:
    """Returns the keys of the account, their endpoints and receivers that get no further slot now; None:
    nobody of the account gets a slot."""
    within = (OTHERS, account)
    full = WEBHOOKS.full_groups(held, within)
    return None if full is None else [group[len(within) :] for group in full]
