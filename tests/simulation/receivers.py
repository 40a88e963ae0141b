"""Who receives webhooks: programs that take them, fail, hang, or answer something else.

A delivery may come more than once, as after a crash; it says the same each time, under the same id.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from random import Random

from wishes import Request
from witness import Tale, Witness

from stoker.outbound.errors import FetchFailed

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

    async def post(self, _url: str, body: bytes, headers: Mapping[str, str]) -> int:
        delivery = headers["webhook-id"]
        self._heard(delivery, body)
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

    def _heard(self, delivery: str, body: bytes) -> None:
        self.tries[delivery] = self.tries.get(delivery, 0) + 1
        said = json.loads(body)
        self.witness.note("webhook {} of {}: {}", delivery, said["id"], said["status"])
        if self.bodies.setdefault(delivery, body) != body:
            self.witness.fail(f"webhook {delivery} said {self.bodies[delivery]!r} and then {body!r}")
        tale = self.witness.tales[said["id"]]
        if all(delivery != delivery_of(tale.id, end.attempt, end.state) for end in tale.ends):
            self.witness.fail(f"webhook {delivery} tells of {said}, which never was: {tale.ends}")
        if said["input"]["request"] != tale.request:
            self.witness.fail(f"webhook {delivery} tells of request {said['input']}, not of {tale.request}")

    def check(self, tale: Tale, request: Request, *, crashes: bool) -> None:
        """Each end was told; without a crash not once more than it may be tried."""
        for end in tale.ends:
            delivery = delivery_of(tale.id, end.attempt, end.state)
            tries, taken = self.tries.get(delivery, 0), self.taken.get(delivery, 0)
            if request.webhook is None:
                if tries:
                    self.witness.fail(f"a webhook of {tale.id}, and nobody had asked for one")
            elif not tries or (not taken and tries < TRIES):
                self.witness.fail(f"the webhook of {tale.id}, {end.state}, was tried {tries} times")
            elif not crashes and (tries > TRIES or taken > 1):
                self.witness.fail(f"the webhook of {tale.id} was tried {tries} times, taken {taken} times")


def delivery_of(job: str, attempt: int, state: str) -> str:
    return "msg_" + hashlib.sha256(f"{job}/{attempt}/{state}".encode()).hexdigest()[:24]
