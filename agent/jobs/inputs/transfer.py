"""The transfer of a URL, and the requests that wait for it.

    join ── waits ── done: returns a descriptor of its own
                 ├── refused: more arrived than this request allows; the others go on
                 └── leaves (cancelled or timed out); when the last one leaves, the transfer is cancelled

This module uses neither network nor cache: its owner passes in the data and the end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from msgspec import Struct

from stoker.agent.interfaces import FetchedInput, InputRefused
from stoker.outbound.errors import TooLarge
from stoker.outbound.guard import ResponseHead, Sink
from stoker.outbound.refused_addresses import redacted_url

ROOM_STEP = 16 << 20
"""How many bytes arrive before the free disk space is checked again."""


class OpenContent(Struct, frozen=True):
    """A complete content as an open file. Its owner closes it."""

    fd: int
    size: int
    sha256: str

    def close(self) -> None:
        os.close(self.fd)

    def reopen(self, url: str, most_bytes: int) -> FetchedInput:
        """Opens the file again, because duplicated descriptors share their position. Raises InputRefused."""
        if self.size > most_bytes:
            raise too_large(url, self.size, most_bytes)
        again = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        return FetchedInput(again, self.size, self.sha256)


class _Waiter(Struct, eq=False):
    most_bytes: int
    result: asyncio.Future[InputRefused | None]


class Transfer:
    """The transfer of one input to this host. `room` raises InputRefused if the disk has no room for a number
    of bytes. Requests may join only while `open`."""

    def __init__(self, url: str, room: Callable[[int], None]) -> None:
        self.open = True
        self.task: asyncio.Task[None] | None = None
        self._url = url
        self._room = room
        self._waiters: set[_Waiter] = set()
        self._file: Sink | None = None
        self._announced = 0
        self._size = 0
        self._content: OpenContent | None = None

    async def join(self, most_bytes: int) -> FetchedInput:
        """Waits until the transfer ends, or exceeds `most_bytes`. Raises InputRefused."""
        waiter = _Waiter(most_bytes, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        self._refuse_too_large()
        try:
            refused = await waiter.result
            if refused is not None:
                raise InputRefused(refused.reason, str(refused), retryable=refused.retryable)
            assert self._content is not None
            return self._content.reopen(self._url, most_bytes)
        finally:
            self._leave(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        self._waiters.discard(waiter)
        if self._waiters:
            return
        if self._content is not None:
            self._content.close()
            self._content = None
        elif self.task is not None:
            self.open = False
            self.task.cancel()

    # -- for the owner, and as a `Sink`

    def into(self, file: Sink) -> Transfer:
        """Writes what arrives from now on to `file`. May be called again, which starts from the beginning."""
        self._file, self._announced, self._size = file, 0, 0
        return self

    def begun(self, answer: ResponseHead) -> None:
        if not answer.unchanged:
            self._announced = answer.size or 0
            self._room(self._announced)
            self._check_size()

    def write(self, data: bytes, /) -> None:
        assert self._file is not None
        before, self._size = self._size, self._size + len(data)
        self._check_size()
        if before // ROOM_STEP != self._size // ROOM_STEP:
            self._room(ROOM_STEP)
        self._file.write(data)

    def done(self, content: OpenContent) -> None:
        """Takes over `content`, and closes it once every waiting request has its own descriptor."""
        self.open = False
        if self._waiters:
            self._content = content
            self._finish(None)
        else:
            content.close()

    def fail(self, refused: InputRefused) -> None:
        self.open = False
        self._finish(refused)

    def _finish(self, end: InputRefused | None) -> None:
        for waiter in self._waiters:
            if not waiter.result.done():
                waiter.result.set_result(end)

    def _check_size(self) -> None:
        """Raises TooLarge if no request is left that allows this size."""
        self._refuse_too_large()
        if all(waiter.result.done() for waiter in self._waiters):
            self.open = False
            raise TooLarge(f"{redacted_url(self._url)} is larger than any request allows")

    def _refuse_too_large(self) -> None:
        size = max(self._size, self._announced)
        for waiter in self._waiters:
            if waiter.most_bytes < size and not waiter.result.done():
                waiter.result.set_result(too_large(self._url, size, waiter.most_bytes))


def too_large(url: str, size: int, most_bytes: int) -> InputRefused:
    """Returns the refusal of a file that is too large. `size` is the whole size if it is known, or else what
    has arrived."""
    return InputRefused(
        "too_large", f"{redacted_url(url)} has {size} bytes or more; at most {most_bytes} are allowed"
    )
