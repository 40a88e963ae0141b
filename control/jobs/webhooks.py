"""Delivers webhooks from the store's outbox: each a few times, each time with the same id, signed.

    due ──> body (record + input + webhook), signed ──> post ── 200 ──> the row goes
             │                                           └── anything else ──> again in 10 s, thrice in all
             └── one of our stores is down ──> others first, and no try is used up

Rows are written by the transaction that ended the job, so a crash loses none; one between an answer and its
note sends that delivery once more, under the same id. While the store takes nothing, what was sent waits to
be noted, and is not sent again. The way out is the guard's (`outbound.guard`): it
refuses private addresses, pins what it resolved and follows no redirect. A delivery that fails changes
nothing about its job.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from standardwebhooks import Webhook

from stoker.control import store
from stoker.control.errors import Unavailable, UncertainCommit
from stoker.control.jobs import records
from stoker.control.jobs.queries import JobQueries
from stoker.control.rules.types import Delivery
from stoker.control.rules.webhook_retries import is_delivered
from stoker.control.store import Conn
from stoker.control.store.database.commits import Commits
from stoker.outbound.fair_semaphore import FairSemaphore
from stoker.outbound.fair_shares import Requester, SlotsInUse, account_is_full, admits

log = logging.getLogger(__name__)

Post = Callable[[str, bytes, Mapping[str, str], str], Awaitable[int]]
"""URL, JSON text, headers and the account, to the answer's status. Raises OutboundError where there
was none."""

AT_ONCE = 64
"""Deliveries under way: a receiver that does not answer holds one of them for ten seconds. They are shared
by account and receiver (`outbound.fair_shares`), so receivers that never answer leave slots for the rest."""

LARGE_AT_ONCE = 4
"""Of those with a spilled payload: each is in memory several times over, and may have 40 MB."""

LOOK_S = 5.0
STORE_RETRY_S = 2.0
"""The pause after the store, or the object store, has failed."""


class Webhooks:
    """`wake` is set when a job with a webhook has ended."""

    def __init__(
        self,
        commits: Commits,
        queries: JobQueries,
        post: Post,
        wake: asyncio.Event,
        clock: Callable[[], float],
    ) -> None:
        self._commits = commits
        self._queries = queries
        self._post = post
        self._clock = clock
        self._under_way: dict[str, Requester] = {}
        self._large = FairSemaphore(LARGE_AT_ONCE)
        self._secret = ""
        self._wake = wake

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                try:
                    wait_s = await self._send_due(tasks)
                except Exception as error:  # the rows stay: the next look finds them
                    log.error("webhooks are not delivered for now: %r", error)
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
        if next_at is None or next_at <= now:  # those that are under way look again when they are done
            return LOOK_S
        return min(next_at - now, LOOK_S)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            if delivery.input_ref is None and delivery.view.output_ref is None:
                delivered = await self._tried(delivery)
            else:
                async with self._large.slot(delivery.whose):
                    delivered = await self._tried(delivery)
            await self._note(delivery, delivered)
        finally:
            del self._under_way[delivery.id]
            self._wake.set()

    async def _tried(self, delivery: Delivery) -> bool | None:
        """Whether it was delivered. None: the store or the object store is down, and it was not tried.

        Whatever else goes wrong is a try that failed: a part of it that is lost, a URL that cannot be
        resolved. So no row stays without end.
        """
        try:
            body = await self._body(delivery)
            headers = await self._headers(delivery.id, body)
        except Unavailable as error:
            log.error("webhook %s of job %s waits: %s", delivery.id, delivery.view.id, error)
            return None
        except Exception as error:
            log.error("webhook %s of job %s: %r", delivery.id, delivery.view.id, error)
            return False
        try:
            status = await self._post(delivery.url, body, headers, delivery.whose[0])
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
        """Until it is stored: a row that stays as it was would be sent again at once."""
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
                    log.error("what became of webhook %s cannot be stored: %r", delivery.id, error)
                logged = True
            await asyncio.sleep(STORE_RETRY_S)

    async def _body(self, delivery: Delivery) -> bytes:
        """Raises NotFound where a part of it has been lost from the object store."""
        view = await self._queries.whole(delivery.view)
        input_json = delivery.input
        if delivery.input_ref is not None:
            input_json = await self._queries.payload(delivery.input_ref)
        return records.webhook_body(view, input_json or b"null")

    async def _headers(self, delivery: str, body: bytes) -> dict[str, str]:
        """Of the Standard Webhooks convention: the receiver checks them with any of its libraries."""
        at = datetime.fromtimestamp(int(self._clock()), UTC)
        if not self._secret:
            self._secret = await self._commits.commit(store.webhook_secret)
        return {
            "webhook-id": delivery,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": Webhook(self._secret).sign(delivery, at, body.decode()),
        }


def _shared_out(conn: Conn, now: float, under_way: dict[str, Requester]) -> list[Delivery]:
    """The due deliveries that get a free slot. `under_way`: the requester of each that has one, by id."""
    due: list[Delivery] = []
    while len(under_way) < AT_ONCE:
        delivery = store.due_webhook(conn, now, under_way, partial(full, Counter(under_way.values())))
        if delivery is None:
            break
        under_way[delivery.id] = delivery.whose
        due.append(delivery)
    return due


def full(in_use: SlotsInUse, account: str) -> list[str] | None:
    """The receivers that get no further slot for this account now; None: no receiver gets one."""
    if account_is_full(in_use, account, AT_ONCE):
        return None
    return [host for one, host in in_use if one == account and not admits(in_use, (one, host), AT_ONCE)]
