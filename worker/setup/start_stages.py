"""The times of what a worker does before its first job, in the stages that it reports with `ready`.

import   the handler's module is imported
setup    its class is made and set up; the stages in `cold_start_s`, where the class has them, count apart
checks   the fitness checks
slots    the first call of the concurrency modifier
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from stoker.worker.errors import clean

OWN_MOST = 24
"""How many stages of a handler's own are reported."""
NAME_MAX = 100
LONGEST_S = 10.0**9


class StartStages:
    """The stages of a start. `found_ms`: the milliseconds of each stage, in order. A stage that took less
    than half of one is left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s = clock()
        self.found_ms: dict[str, int] = {}

    def end(self, stage: str, parts_s: object = None) -> None:
        """Counts the time since the last stage ended as this stage; `parts_s`, the seconds of stages within
        it as a handler reports them, are counted apart.
        """
        now_s = self._clock()
        rest_s, self._since_s = now_s - self._since_s, now_s
        for name, seconds in _valid(parts_s).items():
            self._count(name, seconds)
            rest_s -= seconds
        self._count(stage, rest_s)

    def _count(self, stage: str, seconds: float) -> None:
        if (milliseconds := round(seconds * 1000)) > 0:
            self.found_ms[stage] = self.found_ms.get(stage, 0) + milliseconds


def _valid(parts_s: object) -> dict[str, float]:
    """Returns the valid entries of a handler's attribute, which may be anything."""
    if not isinstance(parts_s, Mapping):
        return {}
    valid = {
        clean(name, NAME_MAX): float(seconds)
        for name, seconds in parts_s.items()
        if isinstance(name, str) and name and isinstance(seconds, int | float) and 0 <= seconds <= LONGEST_S
    }
    return dict(list(valid.items())[:OWN_MOST])
