"""The times of the jobs of each endpoint that ended last, for people who look at it. Pure: time comes in.

    ends ──> the last KEPT of each of the last ENDPOINTS that had any ──> quantiles, and a rate

Kept in memory from this process's start on, and bounded: histograms for alarms are those of `events`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import JobView

KEPT = 200
ENDPOINTS = 1000
LOOKED_BACK_S = 3600.0


class Quantiles(Struct, frozen=True):
    """Times in milliseconds."""

    p50: int
    p95: int


class Recent(Struct, frozen=True):
    """The ends of `jobs` since `since`. `failed` are those that ended FAILED or TIMED_OUT."""

    since: float
    jobs: int = 0
    failed: int = 0
    per_minute: float = 0.0
    delay: Quantiles | None = None
    execution: Quantiles | None = None


class _End(Struct, frozen=True):
    at: float
    failed: bool
    delay_ms: int | None
    execution_ms: int | None


class RecentEnds:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._begun = clock, clock()
        self._ends: OrderedDict[str, deque[_End]] = OrderedDict()

    def add(self, view: JobView) -> None:
        """Notes the end of a job."""
        ends = self._ends.setdefault(view.endpoint, deque(maxlen=KEPT))
        self._ends.move_to_end(view.endpoint)
        failed = view.state in (JobState.FAILED, JobState.TIMED_OUT)
        ends.append(_End(self._clock(), failed, view.delay_ms, view.execution_ms))
        if len(self._ends) > ENDPOINTS:
            self._ends.popitem(last=False)

    def of(self, endpoint: str) -> Recent:
        """Returns what is known of the endpoint's last hour: less where more than KEPT jobs ended in it."""
        now, ends = self._clock(), self._ends.get(endpoint, ())
        late = [end for end in ends if now - end.at <= LOOKED_BACK_S]
        whole = len(late) < KEPT
        since = max(self._begun, now - LOOKED_BACK_S) if whole else late[0].at
        return Recent(
            since,
            len(late),
            sum(end.failed for end in late),
            60 * len(late) / max(now - since, 1.0),
            quantiles([end.delay_ms for end in late if end.delay_ms is not None]),
            quantiles([end.execution_ms for end in late if end.execution_ms is not None]),
        )


def quantiles(times: Sequence[int]) -> Quantiles | None:
    """Returns the times that half of all, and 95 % of all, do not exceed; None where there are none."""
    if not times:
        return None
    ordered = sorted(times)
    return Quantiles(*(ordered[(len(ordered) * part - 1) // 100] for part in (50, 95)))
