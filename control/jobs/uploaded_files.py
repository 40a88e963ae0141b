"""Files that callers upload for inputs that are URLs. The object store keeps them for 24 hours.

The files of each key, and of an endpoint that says so, may have so many bytes together
(`control.rules.quotas`). The deletion is noted before the file is put, so that no crash leaves the
file behind.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import BinaryIO

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import TooLarge, TooMany
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.rules.access import Caller
from stoker.control.rules.limits import FILE_LIFE_S
from stoker.control.rules.quotas import MOST_BYTES, FileCounts
from stoker.control.rules.types import Endpoint, UploadedFile
from stoker.wire.ids import short_id
from stoker.wire.object_keys import uploaded_key


class UploadedFiles:
    def __init__(self, context: Context, artifacts: Artifacts) -> None:
        self._commits, self._clock, self._rng = context.commits, context.clock, context.rng
        self._artifacts = artifacts
        self._quota = FileCounts(FILE_LIFE_S)

    async def keep(
        self, endpoint: Endpoint, caller: Caller, name: str, file: BinaryIO, media_type: str
    ) -> UploadedFile:
        """Raises TooMany and TooLarge by the quotas of key and endpoint, and Unavailable where the object
        store does not take the file."""
        size = file.seek(0, os.SEEK_END)
        with ExitStack() as admitted:
            for whose, most in _bounds(endpoint, caller):
                self._admit(whose, size, most)
                admitted.callback(self._quota.take_back, whose, size)
            kept = await self._kept(endpoint, name, file, media_type)
            admitted.pop_all()
        return kept

    def bytes_kept(self, whose: str) -> int:
        """Returns how many bytes of files are kept now, of "key ID" or "endpoint ID"."""
        return self._quota.kept(whose, self._clock())

    def _admit(self, whose: str, size: int, most: int) -> None:
        if size > most:
            raise TooLarge(f"the file has {size} bytes, and {whose} may keep {most} bytes of files at once")
        if wait_s := self._quota.admit(whose, size, self._clock(), most):
            raise _too_many(whose, most, wait_s)

    async def _kept(self, endpoint: Endpoint, name: str, file: BinaryIO, media_type: str) -> UploadedFile:
        key = uploaded_key(endpoint.id, short_id(self._rng), name)
        until = self._clock() + FILE_LIFE_S
        await self._commits.commit(lambda conn: store.note_orphans(conn, [key], until))
        ref = await self._artifacts.put_file(key, file, media_type)
        return UploadedFile(await self._artifacts.url(ref), ref.size, ref.sha256, until)


def _bounds(endpoint: Endpoint, caller: Caller) -> list[tuple[str, int]]:
    """Returns whose files this one counts among, and how many bytes each may keep."""
    of_key = caller.quota.file_bytes
    bounds = [(f"key {caller.key}", MOST_BYTES if of_key is None else of_key)]
    if endpoint.quota.file_bytes is not None:
        bounds.append((f"endpoint {endpoint.id}", endpoint.quota.file_bytes))
    return bounds


def _too_many(whose: str, most: int, wait_s: int) -> TooMany:
    return TooMany(
        f"the files of {whose} may have {most} bytes together in {round(FILE_LIFE_S / 3600)} hours;"
        f" come back in {wait_s} s, or put large files into a bucket of your own",
        limit=most,
        window_s=round(FILE_LIFE_S),
        retry_after=wait_s,
        unit="content-bytes",
    )
