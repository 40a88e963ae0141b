"""Prices, hours and buckets: nothing drifts, and whatever a bill is cut into adds up to it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.rules.billing import (
    CPU,
    FREE,
    HOUR_MS,
    BillRecord,
    Charge,
    HourRow,
    PriceList,
    Space,
    bucket_start,
    by_hour,
    charge,
    device_time,
    hourly,
    records,
    space,
)
from tests.profiles import examples

SIZES = ("hour", "day", "week", "month", "year")
NOW_MS = 1_790_000_000_123


def prices() -> PriceList:
    return PriceList(
        device_second=333_333_001,
        gpu_second={"NVIDIA H200": 1_000_000_007},
        cpu_second=5_555,
        starting_percent=50,
        idle_percent=0,
    )


times = st.integers(NOW_MS, NOW_MS + 20 * HOUR_MS)
types = st.sampled_from(["NVIDIA H200", "NVIDIA L4", CPU])


def test_a_device_has_the_price_of_its_type() -> None:
    assert [prices().second(one) for one in ("NVIDIA H200", "NVIDIA L4", CPU)] == [
        1_000_000_007,
        333_333_001,
        5_555,
    ]
    assert PriceList(device_second=7).second(CPU) == 7
    assert PriceList(device_second=7, cpu_second=0).second(CPU) == 0
    assert hourly(prices(), "NVIDIA H200", 2) == 7_200_000_050_400
    assert hourly(prices(), "", 2) is None


def test_a_state_has_its_part_of_the_price() -> None:
    def of(state: str, **more: Any) -> Charge:
        return device_time(prices(), "NVIDIA H200", state, 0, 2_000, **more)

    assert of("running") == Charge(2_000, 2_000_000_014)
    assert of("starting") == Charge(2_000, 1_000_000_007)
    assert of("idle") == FREE
    assert of("running", devices=4) == Charge(2_000, 8_000_000_056)
    assert of("running", share=0.25) == Charge(2_000, 500_000_003)
    assert of("running", devices=0) == of("running")


def test_two_halves_cost_what_the_whole_costs() -> None:
    assert [charge(1, 2, began, began + 1).nano_usd for began in (0, 1, 2, 3)] == [0, 1, 0, 1]
    assert charge(1, 2, 0, 4) == Charge(4, 2)


def test_space_costs_by_the_hour() -> None:
    assert space(95_890, 50, 0, HOUR_MS) == 4_794_500
    assert space(95_890, 50, NOW_MS, NOW_MS) == 0


DAY = [HourRow(480_000 + n, "gpu", 0, 1) for n in range(3)]
BEGAN = 480_000 * 3_600.0


def most(*spaces: Space, size: Any = "day") -> list[int]:
    return [one.disk_gb for one in records(DAY, spaces, size)]


def test_a_disk_counts_once_in_a_bucket() -> None:
    disk = Space("gpu", BEGAN, BEGAN + 10_800, 50)
    other = Space("gpu", BEGAN + 4_000, BEGAN + 4_001, 20)
    assert records(DAY, [disk, other], "day") == [BillRecord(480_000, "gpu", 0, 70, 3)]
    assert most(disk, other, size="hour") == [50, 70, 50]
    assert most(replace(disk, name="another")) == [0]


def test_disks_that_were_there_one_after_the_other_are_not_added() -> None:
    first = Space("gpu", BEGAN, BEGAN + 1_200, 30)
    second = Space("gpu", BEGAN + 1_200, BEGAN + 2_400, 100)
    third = Space("gpu", BEGAN + 2_000, BEGAN + 2_001, 20)
    assert most(first, second, third) == [120]
    assert most(first, second, third, size="hour") == [120, 0, 0]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.builds(
            lambda began, length, gb: Space("gpu", BEGAN + began, BEGAN + began + length, gb),
            st.integers(-9_000, 12_000),
            st.integers(1, 9_000),
            st.integers(1, 100),
        ),
        max_size=8,
    ),
    st.sampled_from(["hour", "day"]),
)
def test_the_most_is_that_of_some_moment(spaces: list[Space], size: Any) -> None:
    hours = [HourRow(479_990 + n, "gpu", 0, 1) for n in range(30)]
    for made in records(hours, spaces, size):
        first = made.hour * 3600
        end = first + (3_600 if size == "hour" else 86_400)
        moments = {first, *(int(one.began) for one in spaces)}
        there = [
            sum(one.gb for one in spaces if one.began <= at < one.ended)
            for at in moments
            if first <= at < end
        ]
        assert made.disk_gb == max(there)


def calendar(hour: int, size: str) -> datetime:
    """The same by the library's calendar."""
    at = datetime.fromtimestamp(hour * 3600, UTC)
    if size == "hour":
        return at
    day = at.replace(hour=0)
    match size:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "year":
            return day.replace(month=1, day=1)
    return day


def test_the_ends_of_years_and_of_february() -> None:
    years = (1972, 1999, 2000, 2023, 2024, 2100, 2400)
    for year, (month, day) in product(years, ((12, 31), (1, 1), (2, 28), (3, 1))):
        hour = int(datetime(year, month, day, 23, tzinfo=UTC).timestamp()) // 3600
        for size in SIZES:
            assert bucket_start(hour, size) * 3600 == calendar(hour, size).timestamp()  # type: ignore[arg-type]


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(4 * 24, 24 * 366 * 450), st.sampled_from(SIZES))
def test_buckets_are_the_calendars(hour: int, size: Any) -> None:
    assert datetime.fromtimestamp(bucket_start(hour, size) * 3600, UTC) == calendar(hour, size)


rows = st.lists(
    st.builds(
        HourRow,
        st.integers(490_000, 500_000),
        st.sampled_from(["a", "b", ""]),
        st.integers(0, HOUR_MS),
        st.integers(0, 10**15),
    ),
    max_size=60,
)


@settings(max_examples=examples(150), deadline=None)
@given(rows, st.sampled_from(SIZES))
def test_buckets_add_up_to_the_hours(found: list[HourRow], size: Any) -> None:
    made = records(found, [], size)
    keys = [(one.hour, one.name) for one in made]
    assert keys == sorted(set(keys))
    time, money = Counter[str](), Counter[str]()
    for row in found:
        time[row.name] += row.billed_ms
        money[row.name] += row.nano_usd
    for name in time:
        of_name = [one for one in made if one.name == name]
        assert sum(one.billed_ms for one in of_name) == time[name]
        assert sum(one.nano_usd for one in of_name) == money[name]
    assert {(bucket_start(row.hour, size), row.name) for row in found} == set(keys)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(times, min_size=2, max_size=12), types, st.sampled_from(["running", "starting"]))
def test_however_a_stretch_is_cut_its_parts_cost_what_it_costs(
    cuts: list[int], device: str, state: str
) -> None:
    cuts = sorted(cuts)
    whole = device_time(prices(), device, state, cuts[0], cuts[-1], devices=3, share=0.3)
    parts = [
        device_time(prices(), device, state, *ends, devices=3, share=0.3)
        for a, b in pairwise(cuts)
        for _, *ends in by_hour(a, b)
    ]
    assert Charge(sum(p.billed_ms for p in parts), sum(p.nano_usd for p in parts)) == whole
    exact = prices().second(device) * 3 * prices().percent(state) * 0.3 * (cuts[-1] - cuts[0]) / 100_000
    assert abs(whole.nano_usd - exact) <= 1 + exact * 1e-12
    assert charge(1, 1, cuts[0], cuts[-1]).nano_usd == cuts[-1] - cuts[0]


@settings(max_examples=examples(100), deadline=None)
@given(times, times)
def test_hours_are_cut_where_they_end(began: int, ended: int) -> None:
    parts = list(by_hour(began, ended))
    if ended <= began:
        assert parts == []
        return
    assert (parts[0][1], parts[-1][2]) == (began, ended)
    assert all(a[2] == b[1] for a, b in pairwise(parts))
    for hour, first, last in parts:
        assert hour * HOUR_MS <= first < last <= (hour + 1) * HOUR_MS
