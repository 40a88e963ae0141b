"""Receives the bodies of requests, within the rule of waits (`outbound.wait_limits`).

    in one piece ──────────────────────────────────────────────> bytes
    in several ── a slot of its caller ── memory, then a file ──> a file, at its start
        └── not begun, or not whole, within its deadline ──> BodyTooSlow

Most bodies are there when their request is looked at. One that is not holds a slot, and little memory: what
is over MEMORY_BYTES is in a file without a name from then on.
"""

from __future__ import annotations

import asyncio
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Protocol, cast

from starlette.types import Message, Receive

from stoker.control.errors import BodyTooSlow, TooLarge, Unavailable
from stoker.outbound.wait_limits import BODIES, Waiter, WaitRule
from stoker.outbound.waits import Waits

MEMORY_BYTES = 256 * 1024


class CallerLeft(Exception):
    """The connection closed before the request was complete: there is no caller to answer."""


class Sender(Protocol):
    """The sender of a body."""

    @property
    def receive(self) -> Receive: ...

    def waiter(self) -> Waiter: ...


class Bodies:
    """The bodies of requests, as they are read. `spool`: the folder for what is over MEMORY_BYTES; None: the
    system's for temporary files."""

    def __init__(self, spool: str | None = None, rule: WaitRule = BODIES) -> None:
        self._spool = spool
        self._rule = rule
        self._waits = Waits(rule)

    async def receive(self, sender: Sender, limit: int, size: int) -> bytes | BinaryIO:
        """Returns a body of at most `limit` bytes; the caller closes it if it is a file. `size`: what it is
        declared as, else the limit. Raises BodyTooSlow, TooLarge, CallerLeft and Unavailable."""
        within_s = self._rule.first_s
        try:
            async with asyncio.timeout(within_s):
                message = await sender.receive()
            data: bytes = message.get("body", b"")
            if message["type"] == "http.request" and not message.get("more_body") and len(data) <= limit:
                return data
            within_s = self._rule.within_s(size)
            async with asyncio.timeout(within_s), self._waits.slot(sender.waiter()):
                return await self._rest(message, sender, limit)
        except TimeoutError:
            raise BodyTooSlow(
                f"the body was not received within {within_s:.0f} s; send it faster, or a smaller one"
            ) from None

    async def _rest(self, message: Message, sender: Sender, limit: int) -> BinaryIO:
        file = cast(BinaryIO, SpooledTemporaryFile(max_size=MEMORY_BYTES, dir=self._spool))  # noqa: SIM115
        try:
            while True:
                if message["type"] == "http.disconnect":
                    raise CallerLeft
                _write(file, message.get("body", b""))
                if file.tell() > limit:
                    raise too_large(limit, "more was sent")
                if not message.get("more_body"):
                    break
                message = await sender.receive()
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file


def too_large(limit: int, found: str) -> TooLarge:
    return TooLarge(f"the body must be at most {limit} bytes; {found}")


def _write(file: BinaryIO, data: bytes) -> None:
    try:
        file.write(data)
    except OSError as error:
        raise Unavailable(f"the body cannot be kept for now: {error.strerror}; try again later") from None
