"""Uploads to the platform's object store without credentials: control signs each request.

A file is measured first, because its size and digest are part of the signature; a large one is uploaded in
parts. Each step is one call in a thread, which reads and closes a duplicate of the descriptor.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from stoker.agent.jobs.uploads.store_calls import Calls
from stoker.outbound.errors import OutboundError
from stoker.outbound.s3.file_body import measure
from stoker.outbound.s3.presigned import ByteRange, SignedRequest, SignedRequests
from stoker.wire.messages import WANTED_MOST, Artifact, Grant, Ref, Signed, Wanted

log = logging.getLogger(__name__)

PART = 64 << 20
PARTS_MOST = 9_000
"""Less than the 10,000 parts, of at most 5 GiB each, that S3 allows."""


class Signer(Protocol):
    async def sign(self, grant: Grant, wanted: Sequence[Wanted]) -> tuple[Signed, ...]: ...


class _File(Struct, frozen=True):
    """A file to upload; `stopped` returns whether the upload must stop."""

    fd: int
    size: int
    sha256: str
    about: Wanted
    stopped: Callable[[], bool]


class SignedObjects:
    def __init__(self, signer: Signer, calls: Calls, part: int = PART) -> None:
        self._signer, self._calls, self._part = signer, calls, part
        self._requests = SignedRequests()

    async def put_file(
        self, grant: Grant, key: str, fd: int, media_type: str, name: str, stopped: Callable[[], bool]
    ) -> Artifact:
        """Uploads the file. `fd` must stay open until this returns or raises."""
        size, sha256 = await self._calls.with_file(grant, fd, lambda own: measure(own, stopped))
        about = Wanted("put", key, size, media_type, name, sha256)
        file = _File(fd, size, sha256, about, stopped)
        if size <= self._part:
            await self._put_whole(grant, file)
        else:
            await self._put_in_parts(grant, file)
        return Artifact(key, size, sha256, media_type or "application/octet-stream")

    async def put_bytes(self, grant: Grant, key: str, data: bytes, media_type: str) -> Ref:
        sha256 = hashlib.sha256(data).hexdigest()
        request = await self._signed(grant, Wanted("put", key, len(data), media_type, "", sha256))
        await self._calls.run(grant, lambda: self._requests.put(request, data, f"writing {key}"), len(data))
        return Ref(key, len(data), sha256)

    async def get(self, grant: Grant, ref: Ref) -> bytes:
        request = await self._signed(grant, Wanted("read", ref.key))
        return await self._calls.run(
            grant, lambda: self._requests.get(request, ref.size, ref.sha256, ref.key), ref.size
        )

    async def urls(self, grant: Grant, keys: Sequence[str]) -> list[str]:
        signed = await self._signer.sign(grant, [Wanted("link", key) for key in keys])
        return [one.url for one in signed]

    def close(self) -> None:
        self._requests.close()

    async def _put_whole(self, grant: Grant, file: _File) -> None:
        request, doing = await self._signed(grant, file.about), f"writing {file.about.key}"

        def put(own: int) -> None:
            stretch = ByteRange(own, 0, file.size)
            self._requests.put_stretch(request, stretch, hashlib.sha256(), file.sha256, file.stopped, doing)

        await self._calls.with_file(grant, file.fd, put)

    async def _put_in_parts(self, grant: Grant, file: _File) -> None:
        key, doing = file.about.key, f"writing {file.about.key}"
        start = await self._signed(grant, replace(file.about, verb="start"))
        upload = await self._calls.run(grant, lambda: self._requests.start(start, doing))
        try:
            etags = await self._put_parts(grant, file, upload)
            finish = await self._signed(grant, Wanted("finish", key, upload=upload))
            await self._calls.run(grant, lambda: self._requests.finish(finish, etags, doing))
        except Exception:
            await self._drop(grant, key, upload)
            raise

    async def _put_parts(self, grant: Grant, file: _File, upload: str) -> list[str]:
        """Uploads one part after the other: a store may hold parts that arrive early in memory."""
        part, digest, etags = max(self._part, -(-file.size // PARTS_MOST)), hashlib.sha256(), list[str]()
        starts = range(0, file.size, part)
        for some in (starts[n : n + WANTED_MOST] for n in range(0, len(starts), WANTED_MOST)):
            sizes = [min(part, file.size - at) for at in some]
            wanted = [
                Wanted("part", file.about.key, size, upload=upload, part=at // part + 1)
                for at, size in zip(some, sizes, strict=True)
            ]
            signed = await self._signer.sign(grant, wanted)
            for at, size, one in zip(some, sizes, signed, strict=True):
                etags.append(await self._put_part(grant, file, one, (at, size), digest))
        return etags

    async def _put_part(
        self, grant: Grant, file: _File, signed: Signed, where: tuple[int, int], digest: hashlib._Hash
    ) -> str:
        at, size = where
        expected = file.sha256 if at + size == file.size else ""

        def put(own: int) -> str:
            stretch, doing = ByteRange(own, at, size), f"writing {file.about.key}"
            return self._requests.put_stretch(
                _request(signed), stretch, digest, expected, file.stopped, doing
            )

        return await self._calls.with_file(grant, file.fd, put, size)

    async def _drop(self, grant: Grant, key: str, upload: str) -> None:
        """Drops an unfinished upload, which would otherwise take room in the store until its rules remove
        it."""
        try:
            drop = await self._signed(grant, Wanted("drop", key, upload=upload))
            await self._calls.run(grant, lambda: self._requests.drop(drop, f"dropping parts of {key}"))
        except OutboundError as error:
            log.warning("parts of %s may be left in the object store: %s", key, error)

    async def _signed(self, grant: Grant, wanted: Wanted) -> SignedRequest:
        (signed,) = await self._signer.sign(grant, [wanted])
        return _request(signed)


def _request(signed: Signed) -> SignedRequest:
    return SignedRequest(signed.url, signed.headers)
