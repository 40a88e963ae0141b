"""An object store in memory that can be made to fail. It behaves like `S3Objects`.

It uses no thread, no socket and no clock. Its objects, a dictionary from (bucket, key) to bytes, may be
shared with control's `MemoryArtifacts`. `fail(2)` makes the next two calls raise ObjectStoreDown; `down =
True` makes all calls fail until it is False again; `delay`, which may be changed at any time, returns how
many seconds each call takes. With a `signer`, calls for the platform's store request signatures first.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import Callable, MutableMapping, Sequence

from stoker.agent.jobs.uploads.objects import refuse_outside
from stoker.agent.jobs.uploads.signed_objects import Signer
from stoker.outbound.errors import ObjectDamaged, ObjectMissing, ObjectStoreDown, OutboundError, TooLarge
from stoker.wire.messages import Artifact, Grant, Ref, Wanted

Blobs = MutableMapping[tuple[str, str], bytes]


def read_whole(fd: int) -> bytes:
    chunks, at = [], 0
    while chunk := os.pread(fd, 1 << 20, at):
        chunks.append(chunk)
        at += len(chunk)
    return b"".join(chunks)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class FakeObjects:
    def __init__(
        self,
        blobs: Blobs | None = None,
        *,
        read: Callable[[int], bytes] = read_whole,
        delay: Callable[[], float] = lambda: 0.0,
        signer: Signer | None = None,
    ) -> None:
        self.blobs: Blobs = {} if blobs is None else blobs
        self.media_types: dict[tuple[str, str], str] = {}
        self.names: dict[tuple[str, str], str] = {}
        self.down = False
        self.refusal: OutboundError | None = None
        """What buckets of callers refuse files with."""
        self.calls: list[str] = []
        """All calls, refused or not: "put key", "get key", "try bucket"."""
        self._failures: deque[OutboundError] = deque()
        self._read, self._signer, self.delay = read, signer, delay

    def fail(self, times: int, error: OutboundError | None = None) -> None:
        """Makes the next `times` calls raise `error`, or ObjectStoreDown."""
        self._failures.extend(
            [error or ObjectStoreDown("the object store is down, as the test requested")] * times
        )

    async def try_bucket(self, grant: Grant) -> None:
        self.calls.append(f"try {grant.bucket}")
        await asyncio.sleep(self.delay())
        if self.refusal is not None:
            raise self.refusal

    async def put_file(self, grant: Grant, key: str, fd: int, media_type: str, name: str) -> Artifact:
        refuse_outside(grant, key)
        data = self._read(fd)
        await self._sign(grant, Wanted("put", key, len(data), media_type, name, _digest(data)))
        await self._called("put", key)
        digest = self._store(grant, key, data, media_type)
        self.names[grant.bucket, key] = name
        return Artifact(key, len(data), digest, media_type)

    async def put_bytes(self, grant: Grant, key: str, data: bytes, media_type: str) -> Ref:
        refuse_outside(grant, key)
        await self._sign(grant, Wanted("put", key, len(data), media_type, "", _digest(data)))
        await self._called("put", key)
        return Ref(key, len(data), self._store(grant, key, data, media_type))

    async def get(self, grant: Grant, ref: Ref) -> bytes:
        await self._sign(grant, Wanted("read", ref.key))
        await self._called("get", ref.key)
        data = self.blobs.get((grant.bucket, ref.key))
        if data is None:
            raise ObjectMissing(f"reading {ref.key} failed: there is no such object")
        if len(data) > ref.size:
            raise TooLarge(f"the object {ref.key} is more than the {ref.size} bytes that are allowed")
        if _digest(data) != ref.sha256:
            raise ObjectDamaged(f"the object {ref.key} was altered: it is not the one that was stored")
        return data

    async def urls(self, grant: Grant, keys: Sequence[str]) -> list[str]:
        await self._sign(grant, *(Wanted("link", key) for key in keys))
        bucket = f"{grant.public_endpoint or grant.endpoint_url}/{grant.bucket}"
        return [f"{bucket}/{key}?X-Amz-Expires=604800" for key in keys]

    async def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def _store(self, grant: Grant, key: str, data: bytes, media_type: str) -> str:
        self.blobs[grant.bucket, key] = data
        self.media_types[grant.bucket, key] = media_type
        return _digest(data)

    async def _sign(self, grant: Grant, *wanted: Wanted) -> None:
        if self._signer is not None and grant.signed:
            await self._signer.sign(grant, wanted)

    async def _called(self, verb: str, key: str) -> None:
        self.calls.append(f"{verb} {key}")
        await asyncio.sleep(self.delay())
        if self._failures:
            raise self._failures.popleft()
        if self.down:
            raise ObjectStoreDown("the object store is down, as the test requested")
