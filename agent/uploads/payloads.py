"""Moving an attempt's payloads between this node and the object store.

`deliver` may be called again after it failed: what is already up stays up. Whether and when it is tried
again is the attempt machine's decision; `fetch` tries for as long as it is let.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field

from stoker.agent import outputs
from stoker.agent.seams import Objects
from stoker.outbound.errors import OutboundError
from stoker.wire import names
from stoker.wire.messages import Artifact, Grant, Ref

OUTPUT_MAX = 1_000_000
"""An output above this lies in the object store; its record only says where."""

FETCH_FIRST_S = 0.2
FETCH_LONGEST_S = 10.0


@dataclass(frozen=True, slots=True)
class HandedFile:
    """A file of a handler, checked and open. Whoever holds this closes it."""

    n: int
    fd: int
    name: str
    media_type: str

    def close(self) -> None:
        os.close(self.fd)


@dataclass(slots=True)
class Parcel:
    """What an attempt made, on its way. `up` are the files that are there already."""

    output: bytes | None = None
    output_file: HandedFile | None = None  # instead of `output`, where that is very large
    cost_usd: float | None = None
    files: dict[int, HandedFile] = field(default_factory=dict)
    up: dict[int, Artifact] = field(default_factory=dict)
    output_ref: Ref | None = None

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(self.up[n] for n in sorted(self.up))

    def close(self) -> None:
        for file in self.files.values():
            file.close()
        self.files.clear()
        if self.output_file is not None:
            self.output_file.close()
            self.output_file = None


async def deliver(parcel: Parcel, grant: Grant, objects: Objects, files_grant: Grant | None = None) -> None:
    """Uploads the files, puts their URLs into the output, and the output itself where it is too large.

    Files go to the caller's own bucket where there is one; an output that control must read never does. An
    output that came as a file is uploaded as it is: nothing is added to it.
    """
    if parcel.output_file is not None:
        key = names.output_key(grant.prefix)
        stored = await objects.put_file(grant, key, parcel.output_file.fd, "application/json", "output.json")
        parcel.output_ref, parcel.cost_usd = Ref(stored.key, stored.size, stored.sha256), None
        return
    own = files_grant or grant
    for n, file in sorted(parcel.files.items()):
        if n not in parcel.up:
            key = names.artifact_key(own.prefix, n, file.name)
            parcel.up[n] = await objects.put_file(own, key, file.fd, file.media_type, file.name)
    urls = {n: objects.url(own, artifact.key) for n, artifact in parcel.up.items()}
    output = outputs.finished(parcel.output, urls, parcel.cost_usd)
    if output is not None and len(output) > OUTPUT_MAX:
        key = names.output_key(grant.prefix)
        parcel.output_ref = await objects.put_bytes(grant, key, output, "application/json")
        output = None
    parcel.output, parcel.cost_usd = output, None


async def fetch(ref: Ref, grant: Grant, objects: Objects) -> bytes:
    """An input that was too large for its Assign. Goes on until it is cancelled, while the store is down."""
    wait = FETCH_FIRST_S
    while True:
        try:
            return await objects.get(grant, ref)
        except OutboundError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(wait)
        wait = min(wait * 2, FETCH_LONGEST_S)
