"""The agent's way to object stores: the synchronous store of `outbound` on a few threads of its own.

Each attempt brings its own grant, most of them to the same store: clients are kept by endpoint, bucket and
credentials. Writing outside a grant's prefix is refused here, before anything is sent. No retries: the
attempt machine decides when an upload is tried again.

A file is read through a duplicate of its descriptor, made before the first await, so that its owner may
close or cancel at any time; a cancelled upload stops at its next piece, on its own thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from stoker.outbound.errors import ObjectStoreRefused
from stoker.outbound.objects import ObjectStore, ObjectStoreConfig, UploadStopped, region_of
from stoker.wire.messages import Artifact, Grant, Ref

T = TypeVar("T")

_KEPT = 16


def config_of(grant: Grant) -> ObjectStoreConfig:
    return ObjectStoreConfig(
        endpoint_url=grant.endpoint_url,
        public_endpoint=grant.public_endpoint or grant.endpoint_url,
        region=grant.region or region_of(grant.endpoint_url),
        bucket=grant.bucket,
        access_id=grant.access_id,
        access_secret=grant.access_secret,
        allow_private=not grant.guarded,
    )


def refuse_outside(grant: Grant, key: str) -> None:
    """A grant is the right to write below one prefix."""
    if not grant.prefix or not key.startswith(grant.prefix) or key == grant.prefix:
        raise ObjectStoreRefused(
            f"{key} lies outside the prefix {grant.prefix!r} that this attempt may write to"
        )


class S3Objects:
    """Implements `seams.Objects`. `open_store` is for tests that want other settings."""

    def __init__(
        self, threads: int = 4, open_store: Callable[[ObjectStoreConfig], ObjectStore] = ObjectStore
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="objects")
        self._open_store = open_store
        self._stores: OrderedDict[ObjectStoreConfig, ObjectStore] = OrderedDict()
        self._running: set[Future[Any]] = set()
        self._stops: set[threading.Event] = set()

    async def put_file(self, grant: Grant, key: str, fd: int, media_type: str, name: str) -> Artifact:
        refuse_outside(grant, key)
        store, stop, own = self._store(grant), threading.Event(), os.dup(fd)
        self._stops.add(stop)

        def upload() -> Artifact:
            try:
                store.warm()
                stored = store.put_file(key, own, media_type, name, stop.is_set)
            finally:
                self._stops.discard(stop)
                os.close(own)
            return Artifact(stored.key, stored.size, stored.sha256, stored.media_type)

        try:
            running = self._pool.submit(upload)
        except RuntimeError:
            os.close(own)
            raise
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            stop.set()
            if running.cancel():  # it never began: nobody else closes the duplicate
                self._stops.discard(stop)
                os.close(own)
            raise
        except UploadStopped:
            raise ObjectStoreRefused(f"the upload of {key} was stopped") from None

    async def put_bytes(self, grant: Grant, key: str, data: bytes, media_type: str) -> Ref:
        refuse_outside(grant, key)
        store = self._store(grant)
        stored = await self._run(lambda: store.put_bytes(key, data, media_type))
        return Ref(stored.key, stored.size, stored.sha256)

    async def get(self, grant: Grant, ref: Ref) -> bytes:
        store = self._store(grant)
        return await self._run(lambda: store.get_bytes(ref.key, ref.size, ref.sha256))

    def url(self, grant: Grant, key: str) -> str:
        """Only arithmetic where something was uploaded with this grant before, as it always was."""
        return self._store(grant).presign_get(key)

    async def close(self) -> None:
        """Stop what is uploading at its next piece, wait for it, end the threads."""
        for stop in tuple(self._stops):
            stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = [asyncio.wrap_future(future) for future in tuple(self._running)]
        await asyncio.gather(*running, return_exceptions=True)
        self._pool.shutdown()  # its threads are idle now, and end at once
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    async def _run(self, call: Callable[[], T]) -> T:
        running = self._pool.submit(call)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(running)

    def _store(self, grant: Grant) -> ObjectStore:
        """Called on the loop only. Closing the one that was not used longest hurts nobody who is still in it:
        its idle connections end, one in use ends when it is given back."""
        config = config_of(grant)
        store = self._stores.pop(config, None) or self._open_store(config)
        self._stores[config] = store
        if len(self._stores) > _KEPT:
            self._stores.popitem(last=False)[1].close()
        return store


__all__ = ["S3Objects", "config_of", "refuse_outside"]
