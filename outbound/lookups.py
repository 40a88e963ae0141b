"""Resolves host names to addresses with the system's resolver, in threads.

A name server that does not answer blocks a thread until the system gives up, which is later than the caller
does. So the threads are few, shared by the rule of waits (`outbound.wait_limits`), and held until they have
really ended. They are daemon threads: the process can exit while they run.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from stoker.outbound.wait_limits import LOOKUPS, Waiter
from stoker.outbound.waits import Waits, WaitTooLong

LookUp = Callable[[str, int], Sequence[str]]
"""Maps host and port to addresses as text; may take long. Raises OSError if the name has none."""


def system(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class Lookups:
    """A `guard.Resolver`."""

    def __init__(self, look_up: LookUp = system) -> None:
        self._look_up = look_up
        self._waits = Waits(LOOKUPS)

    async def __call__(self, host: str, port: int, whose: Waiter) -> Sequence[str]:
        try:
            return await self._waits.run(
                whose.at(host), f"look up {host}", lambda: self._look_up(host, port), LOOKUPS.within_s()
            )
        except WaitTooLong as error:
            raise OSError(str(error)) from None
