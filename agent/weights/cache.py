"""Brings the weights that workers need, each entry once however many workers wait for it.

    hold ── each entry: looked at, fetched where it is not here (`fetching`) ── in use ──> ready
         └── a failure: said, and tried again later (`tries`)                    until release

An entry that nobody waits for any more is no longer fetched; what has arrived stays, and is resumed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from stoker.agent.weights import tries
from stoker.agent.weights.fetching import Fetcher, Try
from stoker.agent.weights.interfaces import WeightsFailed, WeightsNews
from stoker.agent.weights.room import available_bytes, most_bytes, room_bytes
from stoker.outbound.run_in_thread import run_in_thread
from stoker.wire.messages import LockedWeights
from stoker.wire.messages.weights import AVAILABLE, HELD, MOST, ROOM, SIZES

log = logging.getLogger(__name__)

QUICK_S = 0.5
"""What takes no longer is not reported: the weights were here."""
STOPPING_S = 5.0
"""How long a try of the same entry that was stopped is waited for: it ends with its next bytes."""
FACT_MAX = 4096
"""How many characters control takes of a fact."""


class _Waiting(Struct, eq=False):
    """A worker, until all of its entries are here."""

    heard: Callable[[WeightsNews], None]
    missing: dict[str, LockedWeights]


class WeightsCache:
    """Implements `interfaces.Weights`. `node` is its name in what is said."""

    def __init__(self, fetcher: Fetcher, node: str, *, progress_s: float = tries.PROGRESS_S) -> None:
        self.looked = asyncio.Event()
        self._fetcher, self._store = fetcher, fetcher.store
        self._node, self._progress_s = node, progress_s
        self._waiting: dict[str, _Waiting] = {}  # by worker
        self._uses: dict[str, dict[str, int]] = {}  # by worker: the descriptors of its entries, by folder
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by the entry's key
        self._stopping: dict[str, asyncio.Future[None]] = {}  # by the entry's key: a try that was stopped
        self._failing: set[str] = set()  # the keys of entries between two tries
        self._group: asyncio.TaskGroup | None = None
        self._reporting, self._changed = asyncio.Lock(), asyncio.Event()
        self._report: Callable[[Mapping[str, str]], None] = lambda facts: None

    def report_to(self, changed: Callable[[Mapping[str, str]], None]) -> None:
        self._report = changed

    async def run(self) -> None:
        try:
            await self._sweep()
            await self._report_facts()
            self.looked.set()
            async with asyncio.TaskGroup() as self._group:
                for waiting in self._waiting.values():
                    self._begin(waiting.missing.values())
                await self._report_changes()
        finally:
            self._group = None
            for worker in list(self._uses):
                self.release(worker)

    async def _report_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._report_facts()

    async def _sweep(self) -> None:
        try:
            await run_in_thread("look for weights", self._store.sweep)
        except OSError as error:
            log.warning("the folder of weights cannot be tidied: %s", error)

    def hold(
        self, worker: str, weights: Sequence[LockedWeights], heard: Callable[[WeightsNews], None]
    ) -> None:
        self._waiting[worker] = _Waiting(heard, {entry.key: entry for entry in weights})
        self._begin(weights)

    def release(self, worker: str) -> None:
        left = self._waiting.pop(worker, None)
        self._changed.set()
        for name, fd in self._uses.pop(worker, {}).items():
            os.close(fd)
            self._store.touch(name)
        for key in left.missing if left else ():
            if not self._waits_for(key) and key in self._tasks:
                self._tasks.pop(key).cancel()

    def _waits_for(self, key: str) -> list[tuple[str, _Waiting]]:
        return [(worker, one) for worker, one in self._waiting.items() if key in one.missing]

    def _begin(self, weights: Iterable[LockedWeights]) -> None:
        for entry in weights:
            if self._group is not None and entry.key not in self._tasks:
                task = self._group.create_task(self._bring(entry), name=f"weights {entry.name}")
                self._tasks[entry.key] = task

    async def _bring(self, entry: LockedWeights) -> None:
        """Fetches the entry until it is here, or nobody waits for it any more."""
        failures = 0
        while self._waits_for(entry.key):
            one = Try()
            try:
                await self._try(entry, one)
                self._arrived(entry)
                return
            except WeightsFailed as failed:
                following = self._failed(entry, one, failures, failed)
            except Exception as error:
                log.exception("fetching the weights %s failed", entry.name)
                following = self._failed(entry, one, failures, WeightsFailed(repr(error)))
            finally:
                one.stopped = True
            failures = following.failures
            await self._pause(entry, following.wait_s)

    async def _pause(self, entry: LockedWeights, wait_s: float) -> None:
        self._failing.add(entry.key)
        try:
            await self._report_facts()
            await asyncio.sleep(wait_s)
        finally:
            self._failing.discard(entry.key)

    def _awaited(self) -> frozenset[str]:
        """Returns the entries that workers wait for, which no other is to be fetched in place of; but not
        those that failed: they may never come."""
        missing = (key for one in self._waiting.values() for key in one.missing)
        return frozenset(missing) - self._failing

    def _failed(self, entry: LockedWeights, one: Try, failures: int, failed: WeightsFailed) -> tries.NextTry:
        gained = max(one.here_bytes - one.found_bytes, 0)
        following = tries.after_failure(failures, definite=failed.definite, gained_bytes=gained)
        text = tries.failing(self._node, entry.name, str(failed), following.wait_s)
        log.warning("%s", text)
        for worker, _ in self._waits_for(entry.key):  # it has no process: what it used may be replaced
            if (fd := self._uses.get(worker, {}).pop(self._store.name_of(entry), None)) is not None:
                os.close(fd)
        self._tell(entry.key, WeightsNews(text=text, failed=True))
        return following

    async def _try(self, entry: LockedWeights, one: Try) -> None:
        if (before := self._stopping.get(entry.key)) is not None:
            await asyncio.wait({before}, timeout=STOPPING_S)
        future = run_in_thread(
            f"weights {entry.name}", partial(self._fetcher.bring, entry, one, self._awaited())
        )
        wait_s = QUICK_S
        try:
            while not (await asyncio.wait({future}, timeout=min(wait_s, self._progress_s)))[0]:
                if one.does:
                    if wait_s == QUICK_S:  # what it fetches takes room from now on
                        self._changed.set()
                    text = tries.doing(self._node, one.does, entry.name, one.here_bytes, entry.size)
                    self._tell(entry.key, WeightsNews(text=text))
                    wait_s = self._progress_s
            future.result()
        except asyncio.CancelledError:
            self._stops(entry.key, future)
            raise
        if one.does:
            log.info("the weights %s are here", entry.name)
            await self._report_facts()

    def _stops(self, key: str, future: asyncio.Future[None]) -> None:
        def ended(_: object) -> None:
            future.exception()  # its end is reported to nobody
            if self._stopping.get(key) is future:
                del self._stopping[key]

        self._stopping[key] = future
        future.add_done_callback(ended)

    def _arrived(self, entry: LockedWeights) -> None:
        """Hands an entry that has arrived to each worker that waits for it. Raises WeightsFailed if it was
        just removed."""
        waiting, name = self._waits_for(entry.key), self._store.name_of(entry)
        for worker, _ in waiting:
            uses = self._uses.setdefault(worker, {})
            if name not in uses and (fd := self._store.use(name)) is not None:
                uses[name] = fd
        self._store.link(entry)
        self._changed.set()
        self._tasks.pop(entry.key, None)
        for worker, one in waiting:
            del one.missing[entry.key]
            if not one.missing:
                del self._waiting[worker]
                one.heard(WeightsNews(ready=True))

    def _tell(self, key: str, news: WeightsNews) -> None:
        for _, one in self._waits_for(key):
            one.heard(news)

    async def _report_facts(self) -> None:
        try:
            async with self._reporting:  # so that an older look does not come after a newer one
                self._report(await run_in_thread("look for weights", self._facts))
        except OSError as error:
            log.warning("the folder of weights cannot be read: %s", error)

    def _facts(self) -> dict[str, str]:
        kept, limits = self._store.kept().values(), self._store.limits()
        held = _fitting(self._store.held())
        return {
            HELD: ", ".join(held),
            SIZES: ", ".join(map(str, held.values())),
            ROOM: str(room_bytes(list(kept), limits)),
            AVAILABLE: str(available_bytes(list(kept), limits)),
            MOST: str(most_bytes(list(kept), limits)),
        }


def _fitting(held: Mapping[str, int]) -> dict[str, int]:
    """Returns as many entries as a fact names: no size has more characters than its key."""
    fitting, characters = {}, 0
    for key, size in held.items():
        characters += len(key) + len(", ")
        if characters > FACT_MAX:
            break
        fitting[key] = size
    return fitting
