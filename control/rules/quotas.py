"""The quotas of keys and endpoints: how many jobs may wait, how many GPU seconds a day may be used, how many
bytes of `/files` are kept; and of a key, how many workers its endpoints may have. Pure: uses and times are
arguments.

    a key's quota ──────┐
                        ├──> refused ──> None: the job is taken
    the endpoint's ─────┘         └────> TooMany: 429, which says whose quota, the number and the next try

A quota refuses new jobs only: a job that was taken runs to its end, though it runs past its quota of GPU
seconds. A day is one of UTC.

    FileCounts.admit ──> 0: counted until the file is deleted
                └──────> whole seconds until so many bytes are free again

Files are counted by owner, from the start of a control process on; those that were uploaded before do not
count.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct

from stoker.control.errors import TooMany

DAY_S = 86_400

MOST_BYTES = 50 << 30
"""Of the files of a key without a quota of them."""

RETRY_S = 5
"""Nobody knows when a job that waits will start, or an endpoint is changed."""


_FIELDS = {
    "jobsWaiting": "jobs_waiting",
    "workers": "workers",
    "gpuSecondsPerDay": "gpu_seconds_per_day",
    "fileBytes": "file_bytes",
}


class Quota(Struct, frozen=True):
    """The bounds of a key or an endpoint. None: unbounded."""

    jobs_waiting: int | None = None
    workers: int | None = None
    gpu_seconds_per_day: int | None = None
    file_bytes: int | None = None

    @classmethod
    def of(cls, fields: Mapping[str, int | None]) -> Quota:
        """Returns the quota of these fields, which are named as in the management API; UNBOUNDED itself where
        none is set."""
        found = cls(**{_FIELDS[name]: value for name, value in fields.items()})
        return UNBOUNDED if found == UNBOUNDED else found

    @classmethod
    def parse(cls, stored: str) -> Quota:
        return cls.of(json.loads(stored))

    def fields(self) -> dict[str, int]:
        """Returns the bounds that there are, named as in the management API."""
        values = {name: getattr(self, attribute) for name, attribute in _FIELDS.items()}
        return {name: value for name, value in values.items() if value is not None}

    def stored(self) -> str:
        """Returns the text that `parse` reads."""
        return json.dumps(self.fields())


UNBOUNDED = Quota()


class Use(Struct, frozen=True):
    """A use that quotas bound: jobs in the queue now, and GPU milliseconds of this day."""

    jobs_waiting: int = 0
    gpu_ms: int = 0


def used(
    quota: Quota, use: Use, *, workers: int | None = None, file_bytes: int | None = None
) -> dict[str, float]:
    """Returns the use of what the quota bounds, named as in the management API. `workers` of the key's
    endpoints, and `file_bytes` that are kept, are None where they are not known."""
    found = {
        "jobsWaiting": (quota.jobs_waiting, use.jobs_waiting),
        "workers": (quota.workers, workers),
        "gpuSecondsToday": (quota.gpu_seconds_per_day, use.gpu_ms / 1000),
        "fileBytes": (quota.file_bytes, file_bytes),
    }
    return {name: value for name, (most, value) in found.items() if most is not None and value is not None}


def refused(held: Iterable[tuple[str, Quota, Use]], now: float) -> TooMany | None:
    """Returns why one more job is refused, or None. `held`: the quotas that bound the job, each with its
    owner, such as "endpoint echo", and the use of it."""
    for whose, quota, use in held:
        if quota.jobs_waiting is not None and use.jobs_waiting >= quota.jobs_waiting:
            return _waiting(whose, quota.jobs_waiting)
        seconds = quota.gpu_seconds_per_day
        if seconds is not None and use.gpu_ms >= seconds * 1000:
            return _used_up(whose, seconds, now)
    return None


def refused_workers(key: str, quota: Quota, others: int, wanted: int) -> TooMany | None:
    """Returns why a key may not give an endpoint this `workersMax`, or None. `others`: the sum of the
    `workersMax` of the other endpoints that the key created."""
    if quota.workers is None or others + wanted <= quota.workers:
        return None
    text = (
        f"workersMax: key {key} may give its endpoints {quota.workers} workers in all; its others have"
        f" {others}, so this one may have {max(quota.workers - others, 0)} at most; got {wanted}"
    )
    return TooMany(text, limit=quota.workers, window_s=None, retry_after=RETRY_S, unit="workers")


def day_of(now: float) -> int:
    """Returns the number of the day, in UTC, since the epoch."""
    return int(now // DAY_S)


def _waiting(whose: str, most: int) -> TooMany:
    text = f"{whose} may have {most} jobs waiting, and has so many; submit this job when some have started"
    return TooMany(text, limit=most, window_s=None, retry_after=RETRY_S, unit="jobs")


def _used_up(whose: str, seconds: int, now: float) -> TooMany:
    left_s = math.ceil((day_of(now) + 1) * DAY_S - now)
    text = (
        f"{whose} may use {seconds} GPU seconds a day, and has used them; the day ends in {left_s} s,"
        " at 00:00 UTC"
    )
    return TooMany(text, limit=seconds, window_s=DAY_S, retry_after=left_s, unit="gpu-seconds")


class FileCounts:
    """The counts of bytes by owner. `kept_s`: how long a file is kept."""

    def __init__(self, kept_s: float) -> None:
        self.kept_s = kept_s
        self._files: dict[str, deque[tuple[float, int]]] = {}
        self._bytes: dict[str, int] = {}

    def kept(self, owner: str, now: float) -> int:
        """Returns how many bytes the owner keeps now."""
        self._forget(now)
        return self._bytes.get(owner, 0)

    def admit(self, owner: str, size: int, now: float, most_bytes: int = MOST_BYTES) -> int:
        """Returns 0 and counts the file, which has at most `most_bytes`; or how many seconds later a file of
        this size may be admitted. The seconds are whole, as `Retry-After` says them: so no rounding of `now`
        refuses the caller again."""
        free = most_bytes - self.kept(owner, now)
        files = self._files.get(owner, deque())
        wait_s = 0
        for until, kept in files:
            if free >= size:
                break
            free, wait_s = free + kept, math.ceil(until - now)
        if wait_s == 0:
            self._files.setdefault(owner, files).append((now + self.kept_s, size))
            self._bytes[owner] = self._bytes.get(owner, 0) + size
        return wait_s

    def take_back(self, owner: str, size: int) -> None:
        """Subtracts the newest file of this size, which was not kept after all."""
        files = self._files.get(owner, deque())
        for n in range(len(files) - 1, -1, -1):
            if files[n][1] == size:
                del files[n]
                self._subtract(owner, size)
                return

    def _forget(self, now: float) -> None:
        for key in tuple(self._files):
            files = self._files[key]
            while files and files[0][0] <= now:
                self._subtract(key, files.popleft()[1])
            if not files:
                del self._files[key]

    def _subtract(self, key: str, size: int) -> None:
        self._bytes[key] -= size
        if not self._bytes[key]:
            del self._bytes[key]
