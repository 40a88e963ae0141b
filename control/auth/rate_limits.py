"""Rate limits: the requests of an account, endpoint and operation admitted in ten seconds, and at once.

A window slides: a request counts from the millisecond in which it was admitted until ten seconds later. A
refused request does not count. Where workers run, both limits grow to `workers * per_worker`; the workers are
counted only for a caller that is at a base limit.

    enter ──> an Admission, one more inside ── answer written, or the caller left ──> leave
        └───> TooMany, with the time of the next try

Pure: time is an argument, in whole milliseconds that never go back. A caller that sent nothing for longer
than a window is forgotten, so that memory is bounded by the callers of one window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from stoker.control.errors import TooMany
from stoker.control.rules.limits import RATE_LIMITS, WINDOW_MS, RateLimit


class Count:
    """The requests of one account that one operation of one endpoint counts: the time of each that was
    admitted in the last window, and how many are inside."""

    __slots__ = ("admitted_ms", "inside", "limit")

    def __init__(self, limit: RateLimit) -> None:
        self.limit = limit
        self.admitted_ms: deque[int] = deque()
        self.inside = 0

    def slide(self, now_ms: int) -> None:
        """Drops what was admitted a window ago."""
        while self.admitted_ms and self.admitted_ms[0] <= now_ms - WINDOW_MS:
            self.admitted_ms.popleft()

    def forgettable(self, now_ms: int) -> bool:
        self.slide(now_ms)
        return not self.inside and not self.admitted_ms


class Admission(Struct, eq=False):
    """A request that was admitted, which counts as present until it leaves."""

    count: Count
    left: bool = False

    def leave(self) -> None:
        """Ends the request's presence. A second call does nothing."""
        if not self.left:
            self.left = True
            self.count.inside -= 1


class Rates:
    """The rates of calls, held to the limits. `workers` returns how many workers of an endpoint are ready
    now."""

    def __init__(self, per_worker: int, workers: Callable[[str], int]) -> None:
        self._per_worker = per_worker
        self._workers = workers
        self._counts: dict[tuple[str, str, str], Count] = {}
        self._tidied_at = 0

    def __len__(self) -> int:
        return len(self._counts)

    def enter(self, account: str, endpoint: str, operation: str, now_ms: int) -> Admission | None:
        """Returns the admission that the caller must `leave`, or None where nothing is limited. Raises
        TooMany."""
        limit = RATE_LIMITS.get(operation)
        if limit is None:
            return None
        if now_ms - self._tidied_at >= WINDOW_MS:
            self._tidy(now_ms)
        key = (account, endpoint, operation)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = Count(limit)
        at_once = limit.at_once
        crowded = at_once is not None and count.inside >= at_once
        if crowded or len(count.admitted_ms) >= limit.window:
            self._check(count, endpoint, operation, now_ms)
        count.admitted_ms.append(now_ms)
        count.inside += 1
        return Admission(count)

    def _check(self, count: Count, endpoint: str, operation: str, now_ms: int) -> None:
        """Checks a request at a base limit: drops what has slid out of the window, and lets the endpoint's
        workers raise the limit. Raises TooMany."""
        grown = self._workers(endpoint) * self._per_worker
        limit = count.limit
        if limit.at_once is not None and count.inside >= max(limit.at_once, grown):
            raise _at_once(endpoint, operation, max(limit.at_once, grown))
        most = max(limit.window, grown)
        count.slide(now_ms)
        if len(count.admitted_ms) >= most:
            wait_ms = count.admitted_ms[-most] + WINDOW_MS - now_ms
            raise _in_window(endpoint, operation, most, wait_ms)

    def _tidy(self, now_ms: int) -> None:
        self._tidied_at = now_ms
        forgotten = [key for key, count in self._counts.items() if count.forgettable(now_ms)]
        for key in forgotten:
            del self._counts[key]


def _in_window(endpoint: str, operation: str, limit: int, wait_ms: int) -> TooMany:
    seconds = -(-wait_ms // 1000)
    return TooMany(
        f"/{operation} of endpoint {endpoint} takes at most {limit} requests in {WINDOW_MS // 1000} seconds;"
        f" come back in {seconds} s",
        limit=limit,
        window_s=WINDOW_MS // 1000,
        retry_after=seconds,
    )


def _at_once(endpoint: str, operation: str, limit: int) -> TooMany:
    """Returns the refusal of too many requests at once, which says 1 s: nobody knows when a request inside
    will leave."""
    return TooMany(
        f"/{operation} of endpoint {endpoint} takes at most {limit} requests at once; come back in 1 s",
        limit=limit,
        window_s=None,
        retry_after=1,
    )
