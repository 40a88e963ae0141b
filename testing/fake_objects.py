"""An object store in memory that can be told to fail. It promises what `S3Objects` does.

No thread, no socket, no clock. What it holds may be shared with control's `MemoryArtifacts`: a dictionary
from (bucket, key) to bytes. `fail(2)` makes the next two calls raise ObjectStoreDown; `down = True` makes all
of them, until it is False again; `delay`, which may be changed at any time, says in seconds how long each
call takes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import Callable, MutableMapping

from stoker.agent.objects import refuse_outside
from stoker.outbound.errors import ObjectDamaged, ObjectMissing, ObjectStoreDown, OutboundError, TooLarge
from stoker.wire.messages import Artifact, Grant, Ref

Blobs = MutableMapping[tuple[str, str], bytes]


def read_whole(fd: int) -> bytes:
    pieces, at = [], 0
    while piece := os.pread(fd, 1 << 20, at):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


class FakeObjects:
    def __init__(
        self,
        blobs: Blobs | None = None,
        *,
        read: Callable[[int], bytes] = read_whole,
        delay: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.blobs: Blobs = {} if blobs is None else blobs
        self.media_types: dict[tuple[str, str], str] = {}
        self.names: dict[tuple[str, str], str] = {}
        self.down = False
        self.calls: list[str] = []
        """What was asked, refused or not: "put key", "get key"."""
        self._failures: deque[OutboundError] = deque()
        self._read = read
        self.delay = delay

    def fail(self, times: int, error: OutboundError | None = None) -> None:
        """The next `times` calls raise `error`, or say that the store is down."""
        self._failures.extend(
            [error or ObjectStoreDown("the object store is down, as it was told to be")] * times
        )

    async def put_file(self, grant: Grant, key: str, fd: int, media_type: str, name: str) -> Artifact:
        refuse_outside(grant, key)
        data = self._read(fd)
        await self._called("put", key)
        digest = self._store(grant, key, data, media_type)
        self.names[grant.bucket, key] = name
        return Artifact(key, len(data), digest, media_type)

    async def put_bytes(self, grant: Grant, key: str, data: bytes, media_type: str) -> Ref:
        refuse_outside(grant, key)
        await self._called("put", key)
        return Ref(key, len(data), self._store(grant, key, data, media_type))

    async def get(self, grant: Grant, ref: Ref) -> bytes:
        await self._called("get", ref.key)
        data = self.blobs.get((grant.bucket, ref.key))
        if data is None:
            raise ObjectMissing(f"reading {ref.key} failed: there is no such object")
        if len(data) > ref.size:
            raise TooLarge(f"the object {ref.key} is more than the {ref.size} bytes that are allowed")
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise ObjectDamaged(f"the object {ref.key} was altered: it is not the one that was stored")
        return data

    def url(self, grant: Grant, key: str) -> str:
        return f"{grant.public_endpoint or grant.endpoint_url}/{grant.bucket}/{key}?X-Amz-Expires=604800"

    async def close(self) -> None:
        """Nothing to end."""

    def _store(self, grant: Grant, key: str, data: bytes, media_type: str) -> str:
        self.blobs[grant.bucket, key] = data
        self.media_types[grant.bucket, key] = media_type
        return hashlib.sha256(data).hexdigest()

    async def _called(self, verb: str, key: str) -> None:
        self.calls.append(f"{verb} {key}")
        await asyncio.sleep(self.delay())
        if self._failures:
            raise self._failures.popleft()
        if self.down:
            raise ObjectStoreDown("the object store is down, as it was told to be")


__all__ = ["Blobs", "FakeObjects", "read_whole"]
