"""The weights of a node in tests and the simulation: fetched in virtual time, without a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from stoker.agent.weights.interfaces import WeightsNews
from stoker.wire.messages import LockedWeights
from stoker.wire.messages.weights import HELD, MOST, ROOM


class FakeWeights:
    """An implementation of `agent.weights.interfaces.Weights`. `held`: the keys that are here, which may
    outlive an agent, as a disk does; `used`: those of each worker. An entry takes `fetch_s`, and each of
    `failures` is reported once before; while `stuck` nothing comes."""

    def __init__(self, fetch_s: float = 5.0, most_bytes: int = 10**12, held: set[str] | None = None) -> None:
        self.looked = asyncio.Event()
        self.looked.set()
        self.held = set() if held is None else held
        self.used: dict[str, frozenset[str]] = {}
        self.fetched: list[str] = []
        self.failures: list[str] = []
        self.stuck = False
        self.fetch_s, self.most_bytes = fetch_s, most_bytes
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._report: Callable[[Mapping[str, str]], None] = lambda facts: None

    @property
    def facts(self) -> dict[str, str]:
        return {HELD: ", ".join(sorted(self.held)), ROOM: str(self.most_bytes), MOST: str(self.most_bytes)}

    def hold(
        self, worker: str, weights: Sequence[LockedWeights], heard: Callable[[WeightsNews], None]
    ) -> None:
        missing = [entry for entry in weights if entry.key not in self.held]
        loop = asyncio.get_running_loop()

        def go_on() -> None:
            if self.failures:
                heard(WeightsNews(text=self.failures.pop(0), failed=True))
            elif not self.stuck:
                arrived()
                return
            self._waiting[worker] = loop.call_later(1.0, go_on)

        def arrived() -> None:
            self._waiting.pop(worker, None)
            self.fetched += [entry.name for entry in missing if entry.key not in self.held]
            self.held |= {entry.key for entry in weights}
            self.used[worker] = frozenset(entry.key for entry in weights)
            self._report(self.facts)
            heard(WeightsNews(ready=True))

        def begin() -> None:
            if missing:
                names = " and ".join(entry.name for entry in missing)
                heard(WeightsNews(text=f"node fake fetches the weights {names}"))
                self._waiting[worker] = loop.call_later(self.fetch_s, go_on)
            else:
                arrived()

        self.release(worker)
        self._waiting[worker] = loop.call_later(0, begin)

    def release(self, worker: str) -> None:
        self.used.pop(worker, None)
        if (waiting := self._waiting.pop(worker, None)) is not None:
            waiting.cancel()

    def report_to(self, changed: Callable[[Mapping[str, str]], None]) -> None:
        self._report = changed
        changed(self.facts)

    async def run(self) -> None:
        try:
            await asyncio.Future()
        finally:
            for worker in list(self._waiting):
                self.release(worker)
