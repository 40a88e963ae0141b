"""Measures the network volumes that control names, and removes those that control has deleted.

    named ──FIRST_S──> measured ──EVERY_S──> measured … ──deleted, and not in use here──> removed, reported

- Volumes are measured one after the other. A measurement that took long is not repeated soon, so that at most
  LOOK_SHARE of the time is spent on measuring.
- A folder that does not exist has no size, and is not reported. If the root is a shared file system, every
  node reports the same.
- A volume larger than its size is reported like any other. Control decides what follows: nothing here limits
  it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn, Protocol

from stoker.agent.alarm import loop_time
from stoker.wire.messages import VolumeSpec, VolumeUsed

log = logging.getLogger(__name__)

FIRST_S = 1.0
EVERY_S = 300.0
ABSENT_S = 20.0
"""How soon a missing folder is looked for again: it may be created at any moment."""
IN_USE_S = 5.0
"""How soon a deleted volume that is in use is tried again."""
LOOK_SHARE = 0.05


class VolumeFolders(Protocol):
    """The folders of volumes, implemented by `agent.host.storage.volume_folders`. Methods may raise
    OSError."""

    async def clear(self) -> None:
        """Finishes the removals that an earlier agent began."""

    async def measure(self, volume: str) -> int | None:
        """Returns the bytes on disk, or None if there is no folder, or too much in it to count."""

    async def remove(self, volume: str) -> bool:
        """Removes the volume's folder. Returns False if there is none."""


class NoVolumes:
    """The folders of a node without a volume root."""

    async def clear(self) -> None:
        pass

    async def measure(self, volume: str) -> int | None:
        return None

    async def remove(self, volume: str) -> bool:
        return False


class VolumeWatch:
    """The watch over the sizes of volumes. `in_use` returns the volumes that this node's workers use; those
    of pods come with Desired."""

    def __init__(
        self,
        folders: VolumeFolders,
        in_use: Callable[[], set[str]],
        report: Callable[[VolumeUsed], object],
    ) -> None:
        self._folders, self._in_use, self._report = folders, in_use, report
        self._specs: dict[str, VolumeSpec] = {}
        self._of_pods: frozenset[str] = frozenset()
        self._due: dict[str, float] = {}
        self._changed = asyncio.Event()

    def desire(self, specs: Iterable[VolumeSpec], of_pods: Iterable[str]) -> None:
        """Sets all volumes of the cluster. One that is not named any more is left alone."""
        before = self._specs
        self._specs = {spec.volume: spec for spec in specs}
        self._of_pods = frozenset(of_pods)
        self._due = {name: at for name, at in self._due.items() if name in self._specs}
        for name, spec in self._specs.items():
            if name not in before or spec.gone != before[name].gone:
                self._due[name] = loop_time() + FIRST_S
        self._changed.set()

    async def run(self) -> NoReturn:
        try:
            await self._folders.clear()
        except OSError as error:
            log.error("folders of deleted volumes cannot be removed now: %s", error)
        while True:
            for name in [name for name, at in self._due.items() if at <= loop_time()]:
                if name in self._specs:  # `desire` may have been called meanwhile
                    await self._look(self._specs[name])
            await self._wait()

    async def _wait(self) -> None:
        self._changed.clear()
        until = min(self._due.values(), default=None)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    async def _look(self, spec: VolumeSpec) -> None:
        began = loop_time()
        try:
            pause = await (self._remove(spec) if spec.gone else self._measure(spec))
        except OSError as error:
            log.error("volume %s cannot be measured or removed: %s", spec.volume, error)
            pause = EVERY_S
        now = self._specs.get(spec.volume)
        if now is None or now.gone != spec.gone:
            return  # `desire` has set its next time
        if pause is None:
            del self._due[spec.volume]
        else:
            self._due[spec.volume] = loop_time() + max(pause, (loop_time() - began) / LOOK_SHARE)

    async def _measure(self, spec: VolumeSpec) -> float:
        used = await self._folders.measure(spec.volume)
        if used is None:
            return ABSENT_S
        if used > spec.size_bytes:
            log.warning("volume %s holds %d bytes, and its size is %d", spec.volume, used, spec.size_bytes)
        self._report(VolumeUsed(spec.volume, used))
        return EVERY_S

    async def _remove(self, spec: VolumeSpec) -> float | None:
        """Returns when to try again, in seconds; None if it is done."""
        if spec.volume in self._in_use() | self._of_pods:
            return IN_USE_S
        if await self._folders.remove(spec.volume):
            log.info("volume %s is gone: its folder was removed", spec.volume)
            self._report(VolumeUsed(spec.volume, 0, gone=True))
        return None
