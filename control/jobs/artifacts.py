"""Control's way to the object store: spilled inputs and outputs, requests signed for agents, and deleting.

`S3Artifacts` runs the synchronous store of `outbound` on a few daemon threads, whose calls end with control
at the latest. What the store refuses is raised as one of control's own errors:

    down, full, or refusing us   -> Unavailable 503   nothing was accepted; its message says which
    no such object               -> NotFound 404      past its retention, or deleted by hand
    anything else                -> ControlError 500
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from stoker.control.errors import ControlError, NotFound, Unavailable
from stoker.outbound.errors import (
    ObjectMissing,
    ObjectStoreDown,
    ObjectStoreFull,
    ObjectStoreRefused,
    OutboundError,
)
from stoker.outbound.line import LineEnded
from stoker.outbound.s3.bucket_folder import BucketFolder
from stoker.outbound.s3.buckets import ObjectHeaders, ObjectStoreConfig, refuse_short_credentials
from stoker.outbound.s3.objects import ObjectStore
from stoker.outbound.wait_limits import NOBODY, WaitRule
from stoker.outbound.waits import Waits, WaitTooLong
from stoker.wire.messages import Grant, Ref, Signed, Wanted

log = logging.getLogger(__name__)

T = TypeVar("T")
Blobs = MutableMapping[tuple[str, str], bytes]

_RETRY_AFTER_S = 5

WITHIN_S = 600.0
"""How long one call to the store may take: the deletion of a thousand files, for instance."""

CLOSE_S = 2.0
"""How long `close` waits for calls to finish, and then for their threads to end."""

SIGNED_S = 3600
"""How long an agent's request may begin after it was signed. Each try is signed again."""


class Artifacts(Protocol):
    """Control's way to the object store. `grant`: where agents may have requests signed, and nothing to sign
    them with; of no prefix yet."""

    grant: Grant

    async def put_bytes(self, key: str, data: bytes, media_type: str = "application/json") -> Ref: ...

    async def put_file(self, key: str, file: BinaryIO, media_type: str) -> Ref:
        """Stores the whole file; its position does not matter."""

    async def get(self, ref: Ref) -> bytes:
        """Returns the object, at most as many bytes as the ref says. An object whose ref has no digest is not
        compared."""

    async def url(self, ref: Ref) -> str:
        """Returns a signed address under which a caller can read the object."""

    async def delete(self, key: str) -> None:
        """Deletes the object; an object that is not there is fine."""

    async def delete_prefix(self, prefix: str) -> None:
        """Deletes everything below `prefix`, which ends in a slash."""

    async def sign(self, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        """Signs requests that an agent may send. `control.nodes.signing` decides whether the agent may. Calls
        no store.
        """

    async def close(self) -> None: ...


class S3Artifacts:
    def __init__(self, config: ObjectStoreConfig, threads: int = 4) -> None:
        refuse_short_credentials(config)
        self.grant = grant_for(config)
        self._store = ObjectStore(config)
        self._waits = Waits(WaitRule(slots=threads, leaves=threads + 1, first_s=WITHIN_S))
        self._signing = ThreadPoolExecutor(1, thread_name_prefix="signing")  # waits for no store

    async def start(self) -> None:
        """Makes the bucket if need be and proves that it can be written. Raises an OutboundError.

        Through S3; but the embedded store, whose server and credentials are our own, in its folder: botocore
        is imported by the first file then. A full store is only logged: what needs no room goes on, and
        results wait for room.
        """
        config = self._store.config
        make, check = self._store.ensure_bucket, self._store.check
        if config.folder:
            folder = BucketFolder(Path(config.folder, config.bucket))
            make, check = folder.make, partial(folder.check, config.reserve_bytes)
        await self._waiting(make)
        try:
            await self._waiting(check)
        except ObjectStoreFull as full:
            log.error("%s; inputs over 1 MB are refused until there is room", full)

    async def put_bytes(self, key: str, data: bytes, media_type: str = "application/json") -> Ref:
        stored = await self._run(lambda: self._store.put_bytes(key, data, media_type))
        return Ref(stored.key, stored.size, stored.sha256)

    async def put_file(self, key: str, file: BinaryIO, media_type: str) -> Ref:
        if isinstance(file, BytesIO):
            return await self.put_bytes(key, file.getvalue(), media_type)
        within_s = self._waits.rule.within_s()
        putting = self._waits.with_file(
            NOBODY,
            "artifacts",
            file.fileno(),
            lambda own: self._store.put_file(key, own, media_type),
            within_s,
        )
        with _as_control_errors():
            stored = await putting
        return Ref(stored.key, stored.size, stored.sha256)

    async def get(self, ref: Ref) -> bytes:
        return await self._run(lambda: self._store.get_bytes(ref.key, ref.size, ref.sha256))

    async def url(self, ref: Ref) -> str:
        return await self._run(lambda: self._store.presign_get(ref.key))

    async def sign(self, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        signing = self._signing.submit(lambda: tuple(sign(self._store, one) for one in wanted))
        with _as_control_errors():
            return await asyncio.wrap_future(signing)

    async def delete(self, key: str) -> None:
        await self._run(lambda: self._store.delete_keys([key]))

    async def delete_prefix(self, prefix: str) -> None:
        await self._run(lambda: self._store.delete_prefix(prefix))

    async def close(self) -> None:
        """Waits a moment for what is running, and ends it then."""
        await self._waits.close(CLOSE_S, finish_s=CLOSE_S)
        self._signing.shutdown()
        self._store.close()

    async def _run(self, call: Callable[[], T]) -> T:
        with _as_control_errors():
            return await self._waiting(call)

    async def _waiting(self, call: Callable[[], T]) -> T:
        return await self._waits.run(NOBODY, "artifacts", call, self._waits.rule.within_s())


@contextmanager
def _as_control_errors() -> Iterator[None]:
    try:
        yield
    except OutboundError as error:
        raise as_control_error(error) from error
    except (WaitTooLong, LineEnded) as error:
        raise Unavailable(f"the object store did not do it: {error}", _RETRY_AFTER_S) from error


def grant_for(config: ObjectStoreConfig) -> Grant:
    return Grant(
        endpoint_url=config.endpoint_url,
        public_endpoint=config.public_endpoint or config.endpoint_url,
        region=config.region,
        bucket=config.bucket,
        prefix="",
        access_id="",
    )


def sign(objects: ObjectStore, wanted: Wanted) -> Signed:
    key, part = wanted.key, {"UploadId": wanted.upload}
    match wanted.verb:
        case "put" | "start":
            about = ObjectHeaders(wanted.media_type, wanted.name, wanted.sha256)
            return Signed(
                *objects.presign_put(key, wanted.size, about, SIGNED_S, in_parts=wanted.verb == "start")
            )
        case "part":
            size = {"PartNumber": wanted.part, "ContentLength": wanted.size}
            return Signed(objects.presign("upload_part", key, SIGNED_S, **part, **size))
        case "finish":
            return Signed(objects.presign("complete_multipart_upload", key, SIGNED_S, **part))
        case "drop":
            return Signed(objects.presign("abort_multipart_upload", key, SIGNED_S, **part))
        case "read":
            return Signed(objects.presign("get_object", key, SIGNED_S))
        case "link":
            return Signed(objects.presign_get(key))
        case other:
            raise ValueError(f"verb {other!r} is not known")


def as_control_error(error: OutboundError) -> ControlError:
    match error:
        case ObjectStoreDown() | ObjectStoreFull() | ObjectStoreRefused():
            return Unavailable(str(error), _RETRY_AFTER_S)
        case ObjectMissing():
            return NotFound(str(error))
        case _:
            return ControlError(str(error))
