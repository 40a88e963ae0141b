"""Control's object store in memory, which can be made to fail. It behaves like `S3Artifacts`."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import BinaryIO

from stoker.control.errors import ControlError
from stoker.control.jobs.artifacts import Blobs, as_control_error, grant_for
from stoker.outbound.errors import ObjectMissing, ObjectStoreDown
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.wire.messages import Ref, Signed, Wanted


class MemoryArtifacts:
    """An object store without threads and sockets. `blobs` may be shared with an agent's fake; `down = True`
    fails all calls."""

    def __init__(self, config: ObjectStoreConfig | None = None, blobs: Blobs | None = None) -> None:
        self._config = config or ObjectStoreConfig(
            "http://objects.test", "", "us-east-1", "stoker", "id", "secret"
        )
        self.grant = grant_for(self._config)
        self.blobs: Blobs = {} if blobs is None else blobs
        self.down = False

    async def put_bytes(self, key: str, data: bytes, media_type: str = "application/json") -> Ref:
        await self._called()
        self.blobs[self._config.bucket, key] = data
        return Ref(key, len(data), hashlib.sha256(data).hexdigest())

    async def put_file(self, key: str, file: BinaryIO, media_type: str) -> Ref:
        file.seek(0)
        return await self.put_bytes(key, file.read(), media_type)

    async def get(self, ref: Ref) -> bytes:
        await self._called()
        data = self.blobs.get((self._config.bucket, ref.key))
        if data is None:
            raise as_control_error(ObjectMissing(f"reading {ref.key} failed: there is no such object"))
        if ref.sha256 and hashlib.sha256(data).hexdigest() != ref.sha256:
            raise ControlError(f"the object {ref.key} was altered: it is not the one that was stored")
        return data

    async def url(self, ref: Ref) -> str:
        await self._called()
        return f"{self._config.endpoint_url}/{self._config.bucket}/{ref.key}?signed"

    async def sign(self, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        await asyncio.sleep(0)
        return tuple(Signed(f"{self._config.endpoint_url}/{one.key}?{one.verb}") for one in wanted)

    async def delete(self, key: str) -> None:
        await self._called()
        self.blobs.pop((self._config.bucket, key), None)

    async def delete_prefix(self, prefix: str) -> None:
        if not prefix.endswith("/") or prefix == "/":
            raise ValueError(f"a prefix to delete must end in / and name a folder, not {prefix!r}")
        await self._called()
        for bucket, key in list(self.blobs):
            if bucket == self._config.bucket and key.startswith(prefix):
                del self.blobs[bucket, key]

    async def close(self) -> None:
        """Does nothing: there is nothing to end."""

    async def _called(self) -> None:
        await asyncio.sleep(0)
        if self.down:
            raise as_control_error(ObjectStoreDown("the object store is down, as the test has set it"))
