"""The cost of time and space, and the sums of a bill. Integers of billionths of a US dollar throughout.

Pure. A price is for a stretch of time, and a stretch costs what its end costs less what its begin costs,
each rounded down on one scale that starts with the epoch: however a stretch is cut, its parts cost what the
whole costs, and nothing drifts.

    usage of workers ──┐                    ┌── an endpoint that callers pay by output: what its jobs made,
    usage of pods ─────┼─> bills by the hour┤   and no device time; any other: its workers' device time
    disks, volumes ────┤                    ├── a pod: its device time while it runs, its disks while it is
    outputs of jobs ───┘                    └── a network volume: its size while it is

A bill is the sum of exactly these. The spans of a job (`execution`: its part of a worker's time) record what
a job took; but for outputs they are in no bill, since the worker's time is. An hour's row is of one worker,
pod or volume, so a sum over hours counts nothing twice. Buckets are UTC; a week starts on Monday.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from math import ceil
from typing import Literal, TypeAlias

from msgspec import Struct, field

NANO = 1_000_000_000
SECOND_MS = 1_000
HOUR_S = 3_600
HOUR_MS = 3_600_000
PERCENT = 100
SHARES = 1_000_000
CPU = "CPU"
"""Stands where a GPU's type stands, for what runs on a processor."""

BucketSize = Literal["hour", "day", "week", "month", "year"]


# ---- prices -------------------------------------------------------------------------------------


class PriceList(Struct, frozen=True):
    """The prices of the operator, in nano-USD. `device_second` is what a second of a device costs that
    `gpu_second` (by type) and `cpu_second` do not name. A worker pays this percentage of it while it starts
    and while it waits; 0: that time is free."""

    device_second: int = 0
    gpu_second: Mapping[str, int] = field(default_factory=dict)
    cpu_second: int | None = None
    starting_percent: int = 100
    idle_percent: int = 100
    disk_gb_hour: int = 0
    volume_gb_hour: int = 0

    def second(self, device_type: str) -> int:
        if device_type == CPU:
            return self.device_second if self.cpu_second is None else self.cpu_second
        return self.gpu_second.get(device_type, self.device_second)

    def percent(self, state: str) -> int:
        match state:
            case "starting":
                return self.starting_percent
            case "idle":
                return self.idle_percent
        return PERCENT


def hourly(prices: PriceList, device_type: str, count: int) -> int | None:
    """Returns the cost of a number of devices of a type for an hour; None while the type is not known."""
    return prices.second(device_type) * 3_600 * count if device_type else None


class Charge(Struct, frozen=True):
    billed_ms: int
    nano_usd: int


FREE = Charge(0, 0)


def charge(price: int, per: int, began_ms: int, ended_ms: int) -> Charge:
    """Returns the charge for a stretch that costs `price` for each `per` milliseconds."""
    return Charge(ended_ms - began_ms, price * ended_ms // per - price * began_ms // per)


def device_time(
    prices: PriceList,
    device_type: str,
    state: str,
    began_ms: int,
    ended_ms: int,
    *,
    devices: int = 1,
    share: float = 1.0,
) -> Charge:
    """Returns the charge for devices in this state. `share` is the part of a device that a worker takes.
    `billed_ms` is the time, however many devices there are."""
    percent = prices.percent(state)
    if not percent:
        return FREE
    price = prices.second(device_type) * max(devices, 1) * percent * round(share * SHARES)
    return charge(price, SECOND_MS * PERCENT * SHARES, began_ms, ended_ms)


def space(gb_hour: int, gb: int, began_ms: int, ended_ms: int) -> int:
    """Returns the cost of this many GB for the stretch, in nano-USD."""
    return charge(gb_hour * gb, HOUR_MS, began_ms, ended_ms).nano_usd


def by_hour(began_ms: int, ended_ms: int) -> Iterator[tuple[int, int, int]]:
    """Yields each hour since the epoch that the stretch touches, with the begin and the end of the part in
    it."""
    while began_ms < ended_ms:
        hour = began_ms // HOUR_MS
        cut = min((hour + 1) * HOUR_MS, ended_ms)
        yield hour, began_ms, cut
        began_ms = cut


# ---- buckets ------------------------------------------------------------------------------------


class HourRow(Struct, frozen=True):
    """The time and cost of one hour of what belongs to `name`, by which a bill is grouped."""

    hour: int
    name: str
    billed_ms: int
    nano_usd: int


class Space(Struct, frozen=True):
    """A stretch, in seconds since the epoch, for which something that belongs to `name` had this many GB."""

    name: str
    began: float
    ended: float
    gb: int


class BillRecord(Struct, frozen=True):
    """A record of a bill: the time and cost of `name` in one bucket. `hour` is where the bucket begins.
    `disk_gb` is the most that there was at once in the bucket."""

    hour: int
    name: str
    billed_ms: int
    disk_gb: int
    nano_usd: int


_Key: TypeAlias = tuple[int, str]
"""Where a bucket begins, and a name."""


def records(rows: Iterable[HourRow], spaces: Iterable[Space], size: BucketSize) -> list[BillRecord]:
    """Returns the records of a bill, by time, then name."""
    sums: dict[_Key, list[int]] = {}
    for row in rows:
        billed = sums.setdefault((bucket_start(row.hour, size), row.name), [0, 0])
        billed[0] += row.billed_ms
        billed[1] += row.nano_usd
    most = _most_at_once(spaces, size)
    return [BillRecord(*key, billed[0], most.get(key, 0), billed[1]) for key, billed in sorted(sums.items())]


def _most_at_once(spaces: Iterable[Space], size: BucketSize) -> dict[_Key, int]:
    """Returns the most GB that there were at once in each bucket, by name. At one moment the ends come before
    the begins. What ends after its bucket needs no cut: nothing begins there any more."""
    changes: defaultdict[_Key, list[tuple[float, int]]] = defaultdict(list)
    for space in spaces:
        for bucket in _buckets(space, size):
            began = max(space.began, bucket * HOUR_S)
            changes[bucket, space.name] += [(began, space.gb), (space.ended, -space.gb)]
    return {key: max(accumulate(gb for _, gb in sorted(found))) for key, found in changes.items()}


def _buckets(space: Space, size: BucketSize) -> set[int]:
    step = 1 if size == "hour" else 24
    first = int(space.began // HOUR_S) // step * step
    return {bucket_start(hour, size) for hour in range(first, ceil(space.ended / HOUR_S), step)}


def bucket_start(hour: int, size: BucketSize) -> int:
    """Returns the first hour of the bucket that holds this one; hours since the epoch."""
    day = hour // 24
    match size:
        case "hour":
            return hour
        case "day":
            return day * 24
        case "week":
            return (day - (day + 3) % 7) * 24  # the epoch's first day was a Thursday
        case "month":
            return _month(day) * 24
        case "year":
            return _new_year(_year(day)) * 24


def _new_year(year: int) -> int:
    """Returns the days from the epoch to the first of January."""
    return (year - 1970) * 365 + (year - 1969) // 4 - (year - 1901) // 100 + (year - 1601) // 400


def _year(day: int) -> int:
    year = 1970 + day // 366
    while _new_year(year + 1) <= day:
        year += 1
    return year


def _month(day: int) -> int:
    """Returns the first day of the month that holds this one."""
    year = _year(day)
    first = _new_year(year)
    leap = _new_year(year + 1) - first == 366
    for length in (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31):
        if first + length > day:
            break
        first += length
    return first
