"""Who receives webhooks: programs that take them, fail, hang, or answer something else.

A delivery may come more than once, as after a crash; it says the same each time, under the same id. It tells
the end that it was stored with.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from random import Random
from typing import BinaryIO

from stoker.outbound.errors import FetchFailed
from stoker.outbound.wait_limits import Waiter
from tests.simulation.wishes import Request
from tests.simulation.witness import Tale, Witness

TRIES = 3
TIMEOUT_S = 10.0


class Receivers:
    def __init__(self, rng: Random, witness: Witness) -> None:
        self.rng = rng
        self.witness = witness
        self.bad = 0.3
        """How often one does not take what it is sent."""
        self.bodies: dict[str, bytes] = {}
        self.tries: dict[str, int] = {}
        self.taken: dict[str, int] = {}

    async def post(
        self, _url: str, body: bytes | BinaryIO, headers: Mapping[str, str], _whose: Waiter
    ) -> int:
        delivery = headers["webhook-id"]
        self._received(delivery, body if isinstance(body, bytes) else body.read())
        await asyncio.sleep(self.rng.random() * 0.2)
        if self.rng.random() < self.bad:
            return await self._refuses()
        self.taken[delivery] = self.taken.get(delivery, 0) + 1
        return 200

    async def _refuses(self) -> int:
        match self.rng.randrange(4):
            case 0:
                raise FetchFailed("the receiver closed the connection")
            case 1:
                await asyncio.sleep(TIMEOUT_S)
                raise FetchFailed("the receiver did not answer within 10 s")
            case 2:
                return 204
            case _:
                return 500

    def _received(self, delivery: str, body: bytes) -> None:
        self.tries[delivery] = self.tries.get(delivery, 0) + 1
        reported = json.loads(body)
        self.witness.note("webhook {} of {}: {}", delivery, reported["id"], reported["status"])
        if self.bodies.setdefault(delivery, body) != body:
            self.witness.fail(f"webhook {delivery} said {self.bodies[delivery]!r} and then {body!r}")
        tale = self.witness.tales[reported["id"]]
        job, number = self.witness.deliveries.get(delivery, ("", 0))
        end = tale.ends[number] if job == tale.id else None
        if end is None or (end.state, end.error) != (reported["status"], reported.get("error")):
            self.witness.fail(f"webhook {delivery} of {end} tells {reported}, which never was: {tale.ends}")
        if reported["input"]["request"] != tale.request:
            self.witness.fail(
                f"webhook {delivery} tells of request {reported['input']}, not of {tale.request}"
            )

    def check(self, tale: Tale, request: Request, *, crashes: bool) -> None:
        """Each end was told; without a crash not once more than it may be tried."""
        stored = {end: delivery for delivery, end in self.witness.deliveries.items()}
        for number, end in enumerate(tale.ends):
            delivery = stored.get((tale.id, number), "")
            tries, taken = self.tries.get(delivery, 0), self.taken.get(delivery, 0)
            if request.webhook is None:
                if delivery:
                    self.witness.fail(f"a webhook of {tale.id}, and nobody had asked for one")
            elif not tries or (not taken and tries < TRIES):
                self.witness.fail(f"the webhook of {tale.id}, {end.state}, was tried {tries} times")
            elif not crashes and (tries > TRIES or taken > 1):
                self.witness.fail(f"the webhook of {tale.id} was tried {tries} times, taken {taken} times")
