"""Files that callers upload for inputs that are URLs. The object store keeps them for 24 hours.

The files of each key may have so many bytes together (`control.rules.file_quota`). The deletion is noted
before the file is put, so that no crash leaves it behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import BinaryIO

from stoker.control import store
from stoker.control.errors import TooMany
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.rules.file_quota import FileQuota
from stoker.control.rules.limits import FILE_LIFE_S
from stoker.control.rules.types import Endpoint, UploadedFile
from stoker.control.store.database.commits import Commits
from stoker.wire import names


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
        self._quota = FileQuota(FILE_LIFE_S)

    async def keep(
        self, endpoint: Endpoint, api_key: str, name: str, file: BinaryIO, media_type: str
    ) -> UploadedFile:
        """Raises Unavailable where the object store does not take it, and TooMany. `api_key`: the id of the
        caller's key."""
        size = file.seek(0, os.SEEK_END)
        if wait_s := self._quota.admit(api_key, size, self._clock()):
            raise _too_many(self._quota, wait_s)
        try:
            return await self._kept(endpoint, name, file, media_type)
        except BaseException:
            self._quota.take_back(api_key, size)
            raise

    async def _kept(self, endpoint: Endpoint, name: str, file: BinaryIO, media_type: str) -> UploadedFile:
        key = names.uploaded_key(endpoint.id, names.short_id(self._rng), name)
        until = self._clock() + FILE_LIFE_S
        await self._commits.commit(lambda conn: store.note_orphans(conn, [key], until))
        ref = await self._artifacts.put_file(key, file, media_type)
        return UploadedFile(await self._artifacts.url(ref), ref.size, ref.sha256, until)


def _too_many(quota: FileQuota, wait_s: int) -> TooMany:
    hours, most = round(quota.kept_s / 3600), quota.most_bytes
    return TooMany(
        f"the files of one key may have {most} bytes together in {hours} hours; come back in {wait_s} s,"
        " or put large files into a bucket of your own",
        limit=most,
        window_s=round(quota.kept_s),
        retry_after=wait_s,
        of_bytes=True,
    )
