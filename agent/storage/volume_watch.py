"""The network volumes that control names: measured from time to time, and removed when their time is over.

    named ──FIRST_S──> measured ──EVERY_S──> measured … ──gone, and nobody here works in it──> removed, told

- One is looked at after the other. A look that took long is not repeated soon: LOOK_SHARE of the time at most
  goes into looking.
- A folder that is not here has no size, and nothing is told of it. Where the root is a shared file system,
  every node tells the same.
- A volume that outgrew its size is told like any other. What follows is control's to say: no file system
  here holds it to anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn, Protocol

from stoker.wire.messages import VolumeSpec, VolumeUsed

log = logging.getLogger(__name__)

FIRST_S = 1.0
EVERY_S = 300.0
ABSENT_S = 20.0
"""A folder that is not here may be made at any moment."""
IN_USE_S = 5.0
"""A volume that is to go, and is worked in, is looked after again so soon."""
LOOK_SHARE = 0.05


class VolumeFolders(Protocol):
    """Where they lie. The real one is `agent.volume_folders`. Any of them may raise OSError."""

    async def clear(self) -> None:
        """Removes what an earlier agent was removing."""

    async def measure(self, volume: str) -> int | None:
        """Bytes on the disk; None where there is no folder, or more in it than can be counted."""

    async def remove(self, volume: str) -> bool:
        """All of it. False: there is none."""


class NoVolumes:
    """Of a node without a volume root."""

    async def clear(self) -> None:
        pass

    async def measure(self, volume: str) -> int | None:
        return None

    async def remove(self, volume: str) -> bool:
        return False


class VolumeWatch:
    """`in_use` names the volumes that this node's workers have now; those of pods come with Desired."""

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
        """All that there are. One that is not named any more is left alone."""
        before = self._specs
        self._specs = {spec.volume: spec for spec in specs}
        self._of_pods = frozenset(of_pods)
        self._due = {name: at for name, at in self._due.items() if name in self._specs}
        for name, spec in self._specs.items():
            if name not in before or spec.gone != before[name].gone:
                self._due[name] = _now() + FIRST_S
        self._changed.set()

    async def run(self) -> NoReturn:
        try:
            await self._folders.clear()
        except OSError as error:
            log.error("what is left of volumes that are gone stays for now: %s", error)
        while True:
            for name in [name for name, at in self._due.items() if at <= _now()]:
                if name in self._specs:  # control may speak meanwhile
                    await self._look(self._specs[name])
            await self._wait()

    async def _wait(self) -> None:
        self._changed.clear()
        until = min(self._due.values(), default=None)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    async def _look(self, spec: VolumeSpec) -> None:
        began = _now()
        try:
            pause = await (self._remove(spec) if spec.gone else self._measure(spec))
        except OSError as error:
            log.error("volume %s cannot be looked after: %s", spec.volume, error)
            pause = EVERY_S
        now = self._specs.get(spec.volume)
        if now is None or now.gone != spec.gone:
            return  # it has its time already
        if pause is None:
            del self._due[spec.volume]
        else:
            self._due[spec.volume] = _now() + max(pause, (_now() - began) / LOOK_SHARE)

    async def _measure(self, spec: VolumeSpec) -> float:
        used = await self._folders.measure(spec.volume)
        if used is None:
            return ABSENT_S
        if used > spec.size_bytes:
            log.warning("volume %s holds %d bytes, and its size is %d", spec.volume, used, spec.size_bytes)
        self._report(VolumeUsed(spec.volume, used))
        return EVERY_S

    async def _remove(self, spec: VolumeSpec) -> float | None:
        """None: it is done."""
        if spec.volume in self._in_use() | self._of_pods:
            return IN_USE_S
        if await self._folders.remove(spec.volume):
            log.info("volume %s is gone: its folder was removed", spec.volume)
            self._report(VolumeUsed(spec.volume, 0, gone=True))
        return None


def _now() -> float:
    return asyncio.get_running_loop().time()
