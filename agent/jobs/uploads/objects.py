"""Reads and writes object stores from the agent: the platform's store, for which control signs the requests,
and callers' own buckets, whose credentials are part of their jobs.

Each attempt has its own grants; clients of buckets are cached by endpoint, bucket and credentials. Writing
outside a grant's prefix is refused before anything is sent. Nothing is retried here: the attempt machine
decides that.

A file is read through a duplicate of its descriptor, made before the first await, so that its owner may close
it or cancel at any time. A cancelled upload ends at once, in its own thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from stoker.agent.jobs.uploads.signed_objects import PART, SignedObjects, Signer
from stoker.agent.jobs.uploads.store_calls import Calls
from stoker.outbound.errors import ObjectStoreRefused, OutboundError
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.file_body import UploadStopped
from stoker.outbound.s3.objects import ObjectStore
from stoker.outbound.s3.styles import Found
from stoker.outbound.wait_limits import UPLOADS, WaitRule
from stoker.wire.messages import Artifact, Grant, Ref

log = logging.getLogger(__name__)

_STORES_MAX = 16
_TRIED_MAX = 1_024
TRIAL_S = 5.0
"""How long a job waits for its bucket to be tried."""
TRIED_S = 300.0
"""How long a bucket is not tried again, unless it refused."""


def config_of(grant: Grant) -> ObjectStoreConfig:
    return ObjectStoreConfig(
        endpoint_url=grant.endpoint_url,
        public_endpoint=grant.public_endpoint or grant.endpoint_url,
        region=grant.region,
        bucket=grant.bucket,
        access_id=grant.access_id,
        access_secret=grant.access_secret,
        allow_private=not grant.guarded,
    )


def refuse_outside(grant: Grant, key: str) -> None:
    """Raises ObjectStoreRefused if the grant does not allow writing the key."""
    if not grant.prefix or not key.startswith(grant.prefix) or key == grant.prefix:
        raise ObjectStoreRefused(
            f"{key} lies outside the prefix {grant.prefix!r} that this attempt may write to"
        )


class S3Objects:
    """Implements `interfaces.Objects`. Large files are uploaded to the platform's store in parts of `part`
    bytes. `rule` and `open_store` are for tests."""

    def __init__(
        self,
        signer: Signer,
        rule: WaitRule = UPLOADS,
        open_store: Callable[[ObjectStoreConfig, Found], ObjectStore] = ObjectStore,
        part: int = PART,
    ) -> None:
        self._calls = Calls(rule)
        self._signed = SignedObjects(signer, self._calls, part)
        self._open_store = open_store
        self._found: Found = {}
        self._stores: OrderedDict[ObjectStoreConfig, ObjectStore] = OrderedDict()
        self._tried: dict[ObjectStoreConfig, float] = {}
        self._stops: set[threading.Event] = set()

    async def try_bucket(self, grant: Grant) -> None:
        config, now = config_of(grant), asyncio.get_running_loop().time()
        if now < self._tried.get(config, now):
            return
        store = self._store(grant)

        def trying() -> None:
            store.warm()
            store.try_to_write(f"{grant.prefix}trial")

        try:
            async with asyncio.timeout(TRIAL_S):
                await self._calls.run(grant, trying)
        except ObjectStoreRefused:
            self._tried.pop(config, None)
            raise
        except (OutboundError, TimeoutError) as error:
            why = error if str(error) else f"no answer within {TRIAL_S:g} s"
            log.warning("the bucket %s at %s is not known to work: %s", grant.bucket, grant.endpoint_url, why)
        if len(self._tried) >= _TRIED_MAX:
            del self._tried[next(iter(self._tried))]
        self._tried[config] = now + TRIED_S

    async def put_file(self, grant: Grant, key: str, fd: int, media_type: str, name: str) -> Artifact:
        refuse_outside(grant, key)
        stop, own = threading.Event(), os.dup(fd)
        self._stops.add(stop)
        try:
            if grant.signed:
                return await self._signed.put_file(grant, key, own, media_type, name, stop.is_set)
            return await self._put_own(grant, key, own, media_type, name, stop.is_set)
        except UploadStopped:
            raise ObjectStoreRefused(f"the upload of {key} was stopped") from None
        finally:
            stop.set()
            self._stops.discard(stop)
            os.close(own)

    async def put_bytes(self, grant: Grant, key: str, data: bytes, media_type: str) -> Ref:
        """Writes to the platform's store, also if the grant is of another: control must read it."""
        refuse_outside(grant, key)
        return await self._signed.put_bytes(grant, key, data, media_type)

    async def get(self, grant: Grant, ref: Ref) -> bytes:
        return await self._signed.get(grant, ref)

    async def urls(self, grant: Grant, keys: Sequence[str]) -> list[str]:
        if grant.signed:
            return await self._signed.urls(grant, keys)
        store = self._store(grant)
        return await self._calls.run(grant, lambda: [store.presign_get(key) for key in keys])

    async def close(self) -> None:
        """Ends uploads, and waits for their threads for a short time."""
        for stop in tuple(self._stops):
            stop.set()
        await self._calls.close()
        self._signed.close()
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    async def _put_own(
        self, grant: Grant, key: str, fd: int, media_type: str, name: str, stopped: Callable[[], bool]
    ) -> Artifact:
        store = self._store(grant)

        def upload(own: int) -> Artifact:
            store.warm()
            stored = store.put_file(key, own, media_type, name, stopped)
            return Artifact(stored.key, stored.size, stored.sha256, stored.media_type)

        return await self._calls.with_file(grant, fd, upload)

    def _store(self, grant: Grant) -> ObjectStore:
        """Returns the store's client. Closes the least recently used one if there are too many: that ends its
        idle connections, and those in use once they are released. Must be called on the loop."""
        config = config_of(grant)
        store = self._stores.pop(config, None) or self._open_store(config, self._found)
        self._stores[config] = store
        if len(self._stores) > _STORES_MAX:
            self._stores.popitem(last=False)[1].close()
        return store
