"""Delivers webhooks from the store's outbox: each a few times, each time with the same id, signed.

    due ──> body (record + input + webhook), signed ──> post ── 200 ──> the row goes
                                                         └── anything else ──> again in 10 s, thrice in all

Rows are written by the transaction that ended the job, so a crash loses none; one between an answer and its
note sends that delivery once more, under the same id. The way out is the guard's (`outbound.guard`): it
refuses private addresses, pins what it resolved and follows no redirect. A delivery that fails changes
nothing about its job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from standardwebhooks import Webhook

from stoker.control import records, store
from stoker.control.commit import Commits
from stoker.control.errors import ControlError, NotFound
from stoker.control.types import Delivery
from stoker.control.views import Views
from stoker.outbound.errors import OutboundError

log = logging.getLogger(__name__)

Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[int]]
"""URL, JSON text and headers to the answer's status. Raises OutboundError where there was none."""

AT_ONCE = 32
"""Deliveries under way: a receiver that does not answer holds one of them for ten seconds."""

LOOK_S = 5.0
AGAIN_S = 2.0
_OK = 200


class Webhooks:
    """`wake` is set when a job with a webhook has ended."""

    def __init__(
        self, commits: Commits, views: Views, post: Post, wake: asyncio.Event, clock: Callable[[], float]
    ) -> None:
        self._commits = commits
        self._views = views
        self._post = post
        self._clock = clock
        self._under_way: set[str] = set()
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
                    log.error("webhooks are not looked after for now: %r", error)
                    wait_s = AGAIN_S
                try:
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    async def _send_due(self, tasks: asyncio.TaskGroup) -> float:
        """Starts what is due and not under way; how long until the next look."""
        now = self._clock()
        due, next_at = await self._commits.read(
            lambda conn: (store.due_webhooks(conn, now, 2 * AT_ONCE), store.next_webhook_at(conn))
        )
        for delivery in due:
            if delivery.id not in self._under_way and len(self._under_way) < AT_ONCE:
                self._under_way.add(delivery.id)
                tasks.create_task(self._deliver(delivery), name=f"webhook {delivery.id}")
        if next_at is None or next_at <= now:  # those that are under way look again when they are done
            return LOOK_S
        return min(next_at - now, LOOK_S)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            body = await self._body(delivery)
            delivered = body is not None and await self._try(delivery, body)
            now = self._clock()
            await self._commits.commit(
                lambda conn: store.webhook_tried(conn, delivery.id, now, delivered=delivered)
            )
        except Exception as error:  # the object store or the store is down: it was not tried
            log.error("webhook %s of job %s waits: %r", delivery.id, delivery.view.id, error)
            await asyncio.sleep(AGAIN_S)
        finally:
            self._under_way.discard(delivery.id)
            self._wake.set()

    async def _body(self, delivery: Delivery) -> bytes | None:
        """None when a part of it has been lost from the object store: that never comes back."""
        try:
            view = await self._views.whole(delivery.view)
            given = delivery.input
            if delivery.input_ref is not None:
                given = await self._views.payload(delivery.input_ref)
        except NotFound as error:
            log.error("webhook %s of job %s: %s", delivery.id, delivery.view.id, error)
            return None
        return records.webhook_body(view, given or b"null")

    async def _try(self, delivery: Delivery, body: bytes) -> bool:
        try:
            status = await self._post(delivery.url, body, await self._headers(delivery.id, body))
            said = f"it answered {status}"
        except (OutboundError, ControlError) as error:
            status, said = 0, str(error)
        if status != _OK:
            job, number = delivery.view.id, delivery.tries + 1
            log.warning("webhook %s of job %s, try %d: %s", delivery.id, job, number, said)
        return status == _OK

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
