"""One transfer of one URL, and those who wait for it: its guests.

    join ── waits ── done: a descriptor of its own
                 ├── refused: more came than this guest takes; the others wait on
                 └── leaves (cancelled, out of patience); with the last one the transfer is cancelled

Knows no network and no cache: it is told what comes and how it ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from stoker.agent.seams import FetchedInput, InputRefused
from stoker.outbound.addresses import shown
from stoker.outbound.errors import TooLarge
from stoker.outbound.guard import Answer, Sink

ROOM_STEP = 16 << 20
"""After so many bytes the disk is looked at again."""


@dataclass(frozen=True, slots=True)
class Held:
    """A whole content, open. Whoever holds it closes it."""

    fd: int
    size: int
    sha256: str

    def close(self) -> None:
        os.close(self.fd)

    def handed(self, url: str, most: int) -> FetchedInput:
        """Opened anew: descriptors that are copies share one position. Raises InputRefused."""
        if self.size > most:
            raise too_large(url, self.size, most)
        again = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        return FetchedInput(again, self.size, self.sha256)


@dataclass(eq=False, slots=True)
class _Guest:
    most: int
    told: asyncio.Future[InputRefused | None]


class Transfer:
    """`room` raises InputRefused where the disk has none for so many bytes. Nobody may join unless `open`."""

    def __init__(self, url: str, room: Callable[[int], None]) -> None:
        self.open = True
        self.task: asyncio.Task[None] | None = None
        self._url = url
        self._room = room
        self._guests: set[_Guest] = set()
        self._file: Sink | None = None
        self._announced = 0
        self._size = 0
        self._held: Held | None = None

    async def join(self, most: int) -> FetchedInput:
        """Waits to its end, or to the byte that is too many for this guest. Raises InputRefused."""
        guest = _Guest(most, asyncio.get_running_loop().create_future())
        self._guests.add(guest)
        self._turn_away()
        try:
            refused = await guest.told
            if refused is not None:
                raise InputRefused(refused.reason, str(refused), retryable=refused.retryable)
            assert self._held is not None
            return self._held.handed(self._url, most)
        finally:
            self._leave(guest)

    def _leave(self, guest: _Guest) -> None:
        self._guests.discard(guest)
        if self._guests:
            return
        if self._held is not None:
            self._held.close()
            self._held = None
        elif self.task is not None:
            self.open = False
            self.task.cancel()

    # -- what the transfer is told; it is a `Sink`, too

    def into(self, file: Sink) -> Transfer:
        """What comes from now on goes there. It may be asked for twice, and begins anew."""
        self._file, self._announced, self._size = file, 0, 0
        return self

    def begun(self, answer: Answer) -> None:
        if not answer.unchanged:
            self._announced = answer.size or 0
            self._room(self._announced)
            self._go_on()

    def write(self, data: bytes, /) -> None:
        assert self._file is not None
        before, self._size = self._size, self._size + len(data)
        self._go_on()
        if before // ROOM_STEP != self._size // ROOM_STEP:
            self._room(ROOM_STEP)
        self._file.write(data)

    def done(self, held: Held) -> None:
        """Takes `held` over."""
        self.open = False
        if self._guests:
            self._held = held
            self._tell(None)
        else:
            held.close()

    def fail(self, refused: InputRefused) -> None:
        self.open = False
        self._tell(refused)

    def _tell(self, end: InputRefused | None) -> None:
        for guest in self._guests:
            if not guest.told.done():
                guest.told.set_result(end)

    def _go_on(self) -> None:
        """Raises TooLarge when nobody is left who would take so much."""
        self._turn_away()
        if all(guest.told.done() for guest in self._guests):
            self.open = False
            raise TooLarge(f"{shown(self._url)} is larger than anybody wants it")

    def _turn_away(self) -> None:
        size = max(self._size, self._announced)
        for guest in self._guests:
            if guest.most < size and not guest.told.done():
                guest.told.set_result(too_large(self._url, size, guest.most))


def too_large(url: str, size: int, most: int) -> InputRefused:
    """`size` is what is known of it: all, or what came before it was given up."""
    return InputRefused("too_large", f"{shown(url)} has {size} bytes or more; at most {most} are allowed")
