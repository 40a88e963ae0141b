"""Files that callers bring along, for inputs that are URLs: kept for a day in the object store, then deleted.

The deletion is noted before the file is put, so that no crash leaves it behind.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from stoker.control import store
from stoker.control.artifacts import Artifacts
from stoker.control.commit import Commits
from stoker.control.types import GivenFile
from stoker.wire import names

KEPT_S = 86_400.0


class GivenFiles:
    def __init__(
        self, commits: Commits, artifacts: Artifacts, clock: Callable[[], float], rng: Random
    ) -> None:
        self._commits, self._artifacts, self._clock, self._rng = commits, artifacts, clock, rng

    async def keep(self, endpoint: str, name: str, data: bytes, media_type: str) -> GivenFile:
        """Raises Unavailable where the object store does not take it."""
        key = names.given_key(endpoint, names.short_id(self._rng), name)
        until = self._clock() + KEPT_S
        await self._commits.commit(lambda conn: store.note_leftovers(conn, [key], until))
        ref = await self._artifacts.put_bytes(key, data, media_type)
        return GivenFile(await self._artifacts.url(ref), ref.size, ref.sha256, until)
