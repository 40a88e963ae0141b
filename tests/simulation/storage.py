"""What is shared by all and may fail: the database, with one writer, and the object store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from stoker.agent.jobs.uploads.signed_objects import Signer
from stoker.control.errors import Unavailable
from stoker.control.jobs.artifacts import as_control_error
from stoker.control.store.database.commits import run_batch
from stoker.outbound.errors import ObjectStoreDown, ObjectStoreFull, OutboundError
from stoker.testing.fake_objects import FakeObjects
from stoker.testing.memory_artifacts import MemoryArtifacts

T = TypeVar("T")


@dataclass
class Shop:
    """The object store: `error` is what every call meets, `slow_s` how long one takes at most."""

    rng: Random
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    error: str | None = None
    slow_s: float = 0.0

    async def visit(self, writes: bool) -> None:
        await asyncio.sleep(self.rng.random() * self.slow_s)
        refusal = self.refusal(writes)
        if refusal is not None:
            raise refusal

    def refusal(self, writes: bool) -> OutboundError | None:
        if self.error == "down":
            return ObjectStoreDown("the object store is down, as it was told to be")
        if self.error == "full" and writes:
            return ObjectStoreFull("the object store is full, as it was told to be")
        return None


class SimObjects(FakeObjects):
    """An agent's way to the shop."""

    def __init__(self, shop: Shop, signer: Signer) -> None:
        super().__init__(shop.blobs, signer=signer)
        self._shop = shop

    async def _called(self, verb: str, key: str) -> None:
        await self._shop.visit(verb == "put")


class SimArtifacts(MemoryArtifacts):
    """Control's way to the shop."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(blobs=shop.blobs)
        self._shop = shop

    async def put_bytes(self, key: str, data: bytes, media_type: str = "application/json") -> Any:
        if self._shop.error == "full":
            raise as_control_error(ObjectStoreFull("the object store is full, as it was told to be"))
        return await super().put_bytes(key, data, media_type)

    async def _called(self) -> None:
        try:
            await self._shop.visit(writes=False)
        except OutboundError as error:
            raise as_control_error(error) from None


@dataclass
class Disk:
    """Control's disk: shared by a control process and the one after it."""

    rng: Random
    full: bool = False
    fails: float = 0.0  # the share of COMMITs that fail after something was done early
    slow_s: float = 0.002
    free_at: float = 0.0


class SimCommitter:
    """One writer: commits take their time and their turn. `before` and `after` may kill the process. What is
    done early is done some time before its COMMIT, which may fail then, or never come.

    `settled` hears whether what was done counts, before anybody is told.
    """

    def __init__(
        self,
        conn: Any,
        disk: Disk,
        *,
        settled: Callable[[bool], None],
        before: Callable[[], bool],
        after: Callable[[], bool],
    ) -> None:
        self.uncertain_commit = asyncio.Event()
        self._conn = conn
        self._disk = disk
        self._settled = settled
        self._before = before
        self._after = after
        self._lock = asyncio.Lock()  # the connection may be in the middle of a transaction
        conn.rollback()  # of an earlier process, killed before its COMMIT
        settled(False)

    async def commit(self, fn: Callable[[Any], T], early: Callable[[T], None] | None = None) -> T:
        await self._turn()
        if self._before():
            await asyncio.get_running_loop().create_future()  # dead: nobody is told anything
        if self._disk.full and (early is None or self._disk.rng.random() < 0.5):
            raise Unavailable("nothing was stored: the disk is full, as it was told to be")
        error: Exception | None
        async with self._lock:
            if early is None:
                ((value, error),) = run_batch(self._conn, [fn])
                self._settled(error is None)
            else:
                value, error = await self._in_two_steps(fn, early)
        self._after()
        await asyncio.sleep(0)
        if error is not None:
            raise error
        result: T = value
        return result

    async def _in_two_steps(self, fn: Callable[[Any], T], early: Callable[[T], None]) -> Any:
        self._conn.begin()
        try:
            value = fn(self._conn)
        except Exception as error:
            self._conn.rollback()
            self._settled(False)
            return None, error
        early(value)
        try:
            await asyncio.sleep(self._disk.rng.random() * self._disk.slow_s)
        except asyncio.CancelledError:  # who asked has given up; the COMMIT goes on
            self._conn.commit()
            self._settled(True)
            raise
        if self._before():
            await asyncio.get_running_loop().create_future()
        if self._disk.full or self._disk.rng.random() < self._disk.fails:
            self._conn.rollback()
            self._settled(False)
            return None, Unavailable("nothing was stored: the disk failed, as it was told to")
        self._conn.commit()
        self._settled(True)
        return value, None

    async def _turn(self) -> None:
        now, disk = asyncio.get_running_loop().time(), self._disk
        disk.free_at = max(now, disk.free_at) + 1e-5 + disk.rng.random() * disk.slow_s
        await asyncio.sleep(disk.free_at - now)

    async def read(self, fn: Callable[[Any], T]) -> T:
        async with self._lock:
            self._conn.begin(to_read=True)
            try:
                value = fn(self._conn)
            finally:
                self._conn.rollback()
        await asyncio.sleep(0)
        return value

    async def close(self) -> None:
        await asyncio.sleep(0)
