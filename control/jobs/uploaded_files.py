"""Files that callers upload for inputs that are URLs. The object store keeps them for 24 hours.

The deletion is noted before the file is put, so that no crash leaves it behind.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from stoker.control import store
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.rules.types import Endpoint, UploadedFile
from stoker.control.store.database.commits import Commits
from stoker.wire import names

KEPT_S = 86_400.0


class UploadedFiles:
    def __init__(
        self,
        commits: Commits,
        artifacts: Artifacts,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._commits = commits
        self._artifacts = artifacts
        self._clock = clock
        self._rng = rng

    async def keep(self, endpoint: Endpoint, name: str, data: bytes, media_type: str) -> UploadedFile:
        """Raises Unavailable where the object store does not take it."""
        key = names.uploaded_key(endpoint.id, names.short_id(self._rng), name)
        until = self._clock() + KEPT_S
        await self._commits.commit(lambda conn: store.note_orphans(conn, [key], until))
        ref = await self._artifacts.put_bytes(key, data, media_type)
        return UploadedFile(await self._artifacts.url(ref), ref.size, ref.sha256, until)
