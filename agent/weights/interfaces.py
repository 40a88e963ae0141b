"""Interfaces between the weights that are kept here and the agent's other parts, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from stoker.wire.messages import LockedWeights


class WeightsFailed(Exception):
    """Weights cannot be had now; the text is for the operator, as the end of a sentence. `definite`: only
    somebody's act would change that, so they are tried again seldom."""

    def __init__(self, text: str, *, definite: bool = False) -> None:
        super().__init__(text)
        self.definite = definite


class WeightsNews(Struct, frozen=True):
    """The news about a worker's weights. `ready`: all weights of the worker are here. Otherwise `text` says
    what this node does, or why it `failed`; it tries again by itself."""

    ready: bool = False
    text: str = ""
    failed: bool = False


class Weights(Protocol):
    """The weights of workers, as workers see them. `looked` is set once it is known what is here."""

    looked: asyncio.Event

    def hold(
        self, worker: str, weights: Sequence[LockedWeights], heard: Callable[[WeightsNews], None]
    ) -> None:
        """Brings them here. They stay until `release`. Calls `heard`, after it has returned, with what it
        does, and at the end with `ready`. Again for the same worker: they are looked at again."""

    def release(self, worker: str) -> None:
        """Releases the weights, which the worker needs no more. Idempotent."""

    def report_to(self, changed: Callable[[Mapping[str, str]], None]) -> None:
        """Calls `changed` with the facts of this node about weights, now and whenever they change."""

    async def run(self) -> None:
        """Brings them, until it is cancelled."""


class NoWeights:
    """An agent that fetches none: its workers find what is there."""

    def __init__(self) -> None:
        self.looked = asyncio.Event()
        self.looked.set()
        self._ready: dict[str, asyncio.Handle] = {}  # by worker

    def hold(
        self, worker: str, weights: Sequence[LockedWeights], heard: Callable[[WeightsNews], None]
    ) -> None:
        self.release(worker)
        self._ready[worker] = asyncio.get_running_loop().call_soon(heard, WeightsNews(ready=True))

    def release(self, worker: str) -> None:
        if (ready := self._ready.pop(worker, None)) is not None:
            ready.cancel()

    def report_to(self, changed: Callable[[Mapping[str, str]], None]) -> None:
        pass

    async def run(self) -> None:
        pass


class Digests(Protocol):
    """The digests of files that were computed before, which workers use, too."""

    def known(self, folder: Path) -> Mapping[str, str]:
        """Returns the sha256 of each file below the folder that has not changed since it was recorded, by
        path."""

    def record(self, folder: Path, digests: Mapping[str, str]) -> None:
        """Records those of the files as they are now. Does nothing on a read-only disk."""
