"""Moves an attempt's payloads between this node and the object store.

`deliver` may be called again after it failed: files that were uploaded are not uploaded again. The attempt
machine decides whether and when. `fetch` retries until it is cancelled.
"""

from __future__ import annotations

import asyncio
import os

from msgspec import Struct, field

from stoker.agent.interfaces import Objects
from stoker.agent.jobs.uploads import outputs
from stoker.outbound.errors import OutboundError
from stoker.wire.messages import Artifact, Grant, Ref
from stoker.wire.object_keys import artifact_key, output_key

OUTPUT_MAX = 1_000_000
"""The largest output in bytes that is part of the job's record; a larger one is put into the object store."""

FETCH_FIRST_S = 0.2
FETCH_LONGEST_S = 10.0


class HandedFile(Struct, frozen=True):
    """A file that a handler handed over, checked and open. The owner of this object closes it."""

    n: int
    fd: int
    name: str
    media_type: str
    size: int = 0

    def close(self) -> None:
        os.close(self.fd)


class Payload(Struct):
    """The result that an attempt delivers. `uploaded` holds the files that are in the store already."""

    output: bytes | None = None
    output_file: HandedFile | None = None  # instead of `output`, if that is very large
    cost_usd: float | None = None
    files: dict[int, HandedFile] = field(default_factory=dict)
    uploaded: dict[int, Artifact] = field(default_factory=dict)
    output_ref: Ref | None = None

    def close(self) -> None:
        for file in self.files.values():
            file.close()
        self.files.clear()
        if self.output_file is not None:
            self.output_file.close()
            self.output_file = None


async def deliver(payload: Payload, grant: Grant, objects: Objects, files_grant: Grant | None = None) -> None:
    """Uploads the files, puts their URLs into the output, and uploads the output itself if it is too large.

    Files go to the caller's own bucket if there is one. The output never does, because control must read it.
    An output that is a file is uploaded unchanged.
    """
    if payload.output_file is not None:
        key = output_key(grant.prefix)
        stored = await objects.put_file(grant, key, payload.output_file.fd, "application/json", "output.json")
        payload.output_ref, payload.cost_usd = Ref(stored.key, stored.size, stored.sha256), None
        return
    own = files_grant or grant
    for n, file in sorted(payload.files.items()):
        if n not in payload.uploaded:
            key = artifact_key(own.prefix, n, file.name)
            payload.uploaded[n] = await objects.put_file(own, key, file.fd, file.media_type, file.name)
    keys = [artifact.key for artifact in payload.uploaded.values()]
    urls = dict(zip(payload.uploaded, await objects.urls(own, keys) if keys else [], strict=True))
    output = outputs.finished(payload.output, urls, payload.cost_usd)
    if output is not None and len(output) > OUTPUT_MAX:
        key = output_key(grant.prefix)
        payload.output_ref = await objects.put_bytes(grant, key, output, "application/json")
        output = None
    payload.output, payload.cost_usd = output, None


async def fetch(ref: Ref, grant: Grant, objects: Objects) -> bytes:
    """Fetches an input that was too large for its Assign. Retries while the store is down, until
    cancelled."""
    wait = FETCH_FIRST_S
    while True:
        try:
            return await objects.get(grant, ref)
        except OutboundError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(wait)
        wait = min(wait * 2, FETCH_LONGEST_S)
