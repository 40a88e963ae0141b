"""The weights of a worker: only when they are on this node, its process starts. They are looked at each
time."""

from __future__ import annotations

from collections.abc import Callable

from stoker.agent.alarm import loop_time
from stoker.agent.weights.interfaces import Weights, WeightsNews
from stoker.agent.workers.lifecycle.reported_state import ReportedState
from stoker.wire.messages import WorkerSpec


class WorkerWeights:
    """Reports what the worker waits for meanwhile. Whoever made it releases them (`Weights.release`).
    `took_s`: from the last time that they were looked for until they were here."""

    def __init__(
        self, spec: WorkerSpec, weights: Weights, reported: ReportedState, start: Callable[[], None]
    ) -> None:
        self._spec, self._weights, self._reported, self._start = spec, weights, reported, start
        self._waiting = self._ready = False
        self._since = self.took_s = 0.0

    def here(self) -> bool:
        """Returns whether a process may start now; if not, `start` is called once it may."""
        if not self._spec.weights:
            return True
        ready, self._ready = self._ready, False
        if not ready and not self._waiting:
            self._waiting, self._since = True, loop_time()
            self._weights.hold(self._spec.worker, self._spec.weights, self._heard)
        return ready

    def _heard(self, news: WeightsNews) -> None:
        if news.ready:
            self._waiting, self._ready = False, True
            self.took_s = loop_time() - self._since
            self._reported.will_start()
            self._start()
        else:
            self._reported.will_wait(news.text, failed=news.failed)
