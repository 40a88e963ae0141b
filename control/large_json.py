"""Work on JSON texts beside the loop where they are large, one text at a time.

Each step of a parser holds the interpreter, and several threads would hold it one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from stoker.control.rules.json_size import refuse_many_parts
from stoker.outbound.run_in_thread import run_in_thread

T = TypeVar("T")

LARGE_BYTES = 256 * 1024
"""A text above this is read and written in a thread."""


class LargeJson:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, what: str, size: int, work: Callable[[], T]) -> T:
        """Returns or raises what `work` does with texts of so many bytes. `what` names its thread."""
        if size <= LARGE_BYTES:
            return work()
        async with self._turn:
            return await run_in_thread(what, work)

    async def read(self, parse: Callable[[bytes], T], body: bytes) -> T:
        """Returns or raises what `parse` does with a caller's body. Raises BadRequest for a large body of too
        many parts."""
        if len(body) <= LARGE_BYTES:
            return parse(body)

        def bounded() -> T:
            refuse_many_parts(body)
            return parse(body)

        return await self.run("read a body", len(body), bounded)
