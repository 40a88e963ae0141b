"""The rate limits, boundary by boundary on a virtual clock, and against an oracle that keeps it all."""

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.auth.rate_limits import Admission, Rates
from stoker.control.errors import TooMany
from stoker.control.rules.limits import WINDOW_MS

TABLE = {
    "runsync": (2_000, 400),
    "run": (1_000, 200),
    "status": (2_000, 400),
    "status-sync": (2_000, 400),
    "stream": (2_000, 400),
    "logs": (2_000, 400),
    "cancel": (100, 20),
    "requests": (10, 2),
    "purge-queue": (2, None),
    "files": (200, None),
    "case": (10, 2),
    "openai": (2_000, 400),
}
CROWDED = [(operation, at_once) for operation, (_, at_once) in TABLE.items() if at_once is not None]


def rates(workers: int = 0, per_worker: int = 50) -> Rates:
    return Rates(per_worker, lambda endpoint: workers)


def enter(
    limits: Rates, operation: str, now_ms: int, *, account: str = "a", endpoint: str = "e"
) -> Admission:
    place = limits.enter(account, endpoint, operation, now_ms)
    assert place is not None
    return place


def passes(limits: Rates, operation: str, now_ms: int, *, account: str = "a", endpoint: str = "e") -> bool:
    """A request that is answered at once."""
    try:
        enter(limits, operation, now_ms, account=account, endpoint=endpoint).leave()
    except TooMany:
        return False
    return True


def fill(limits: Rates, operation: str, now_ms: int, count: int) -> None:
    for _ in range(count):
        assert passes(limits, operation, now_ms)


def refusal(limits: Rates, operation: str, now_ms: int) -> TooMany:
    with pytest.raises(TooMany) as raised:
        limits.enter("a", "e", operation, now_ms)
    return raised.value


@pytest.mark.parametrize(("operation", "limit"), [(name, window) for name, (window, _) in TABLE.items()])
def test_the_last_is_let_in_the_next_refused_and_let_in_when_the_window_has_slid(
    operation: str, limit: int
) -> None:
    limits = rates()
    fill(limits, operation, 1_000, 1)
    fill(limits, operation, 1_001, limit - 1)
    error = refusal(limits, operation, 1_002)
    assert (error.limit, error.window_s, error.retry_after) == (limit, 10, 10)
    assert f"/{operation} of endpoint e takes at most {limit} requests in 10 seconds" in str(error)
    assert not passes(limits, operation, 10_999)
    assert passes(limits, operation, 11_000)  # the first one has slid out, and only that
    assert not passes(limits, operation, 11_000)
    fill(limits, operation, 11_001, limit - 1)
    assert not passes(limits, operation, 11_001)


@pytest.mark.parametrize(("operation", "at_once"), CROWDED)
def test_so_many_at_once(operation: str, at_once: int) -> None:
    limits = rates()
    inside = [enter(limits, operation, 5) for _ in range(at_once)]
    error = refusal(limits, operation, 6)
    assert (error.limit, error.window_s, error.retry_after) == (at_once, None, 1)
    assert f"/{operation} of endpoint e takes at most {at_once} requests at once" in str(error)
    left = inside.pop()
    left.leave()
    left.leave()
    assert passes(limits, operation, 7)
    enter(limits, operation, 8)
    refusal(limits, operation, 9)


def test_who_is_refused_for_the_crowd_is_not_counted_in_the_window() -> None:
    limits = rates()
    inside = [enter(limits, "requests", 0) for _ in range(2)]
    for n in range(100):
        assert not passes(limits, "requests", n)
    for place in inside:
        place.leave()
    fill(limits, "requests", 200, 8)
    assert not passes(limits, "requests", 200)


def test_accounts_endpoints_and_operations_do_not_share() -> None:
    limits = rates()
    fill(limits, "purge-queue", 0, 2)
    assert not passes(limits, "purge-queue", 0)
    assert passes(limits, "purge-queue", 0, account="b")
    assert passes(limits, "purge-queue", 0, endpoint="f")
    assert passes(limits, "cancel", 0)
    fill(limits, "status", 0, 2_000)
    assert not passes(limits, "status", 0)
    assert passes(limits, "status-sync", 0)


def test_where_workers_have_left_the_wait_is_until_few_enough_are_in_the_window() -> None:
    workers = [1]
    limits = Rates(50, lambda endpoint: workers[0])
    for at_ms in range(1_000, 3_000, 100):
        assert passes(limits, "requests", at_ms)
    workers[0] = 0  # of twenty requests ten have to slide out, and one more
    assert refusal(limits, "requests", 3_000).retry_after == 9
    assert not passes(limits, "requests", 11_999)
    assert passes(limits, "requests", 12_000)


@pytest.mark.parametrize("operation", ["retry", "health", "openapi"])
def test_what_is_not_in_the_table_is_not_limited(operation: str) -> None:
    limits = rates()
    assert [limits.enter("a", "e", operation, 0) for _ in range(5_000)] == [None] * 5_000
    assert len(limits) == 0


@dataclass
class Fleet:
    workers: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    counted: int = 0

    def count(self, endpoint: str) -> int:
        self.counted += 1
        return self.workers[endpoint]


def test_workers_raise_the_window_and_it_falls_with_them() -> None:
    fleet = Fleet()
    limits = Rates(50, fleet.count)
    fill(limits, "cancel", 0, 99)
    assert fleet.counted == 0  # nobody is counted below the base
    fill(limits, "cancel", 0, 1)
    assert not passes(limits, "cancel", 0)
    fleet.workers["e"] = 2  # 2 * 50 is no more than the base
    assert not passes(limits, "cancel", 0)
    fleet.workers["e"] = 3
    fill(limits, "cancel", 1, 50)
    error = refusal(limits, "cancel", 1)
    assert error.limit == 150
    fleet.workers["e"] = 0
    assert refusal(limits, "cancel", 2).limit == 100
    assert not passes(limits, "cancel", 9_999)
    assert passes(limits, "cancel", 10_000)  # 50 of the last ten seconds remain
    fill(limits, "cancel", 10_000, 49)
    assert not passes(limits, "cancel", 10_000)


def test_workers_raise_how_many_may_be_inside() -> None:
    fleet = Fleet()
    fleet.workers["e"] = 1
    limits = Rates(3, fleet.count)
    inside = [enter(limits, "requests", 0) for _ in range(3)]
    assert refusal(limits, "requests", 0).limit == 3
    fleet.workers["e"] = 0
    inside.pop().leave()
    assert refusal(limits, "requests", 0).limit == 2
    inside.pop().leave()
    assert passes(limits, "requests", 0)


def test_purges_at_once_are_limited_by_the_window_only() -> None:
    limits = rates(workers=1)
    inside = [enter(limits, "purge-queue", 0) for _ in range(50)]
    assert refusal(limits, "purge-queue", 0).window_s == 10
    assert len(inside) == 50


def test_an_endpoint_without_requests_per_worker_keeps_its_base() -> None:
    limits = rates(workers=1_000, per_worker=0)
    fill(limits, "purge-queue", 0, 2)
    assert not passes(limits, "purge-queue", 0)


@pytest.mark.parametrize("refused_at", [0, 1, 999, 1_000, 1_001, 5_500, 8_999, 9_000, 9_001, 9_999])
def test_after_the_time_that_was_reported_the_call_passes(refused_at: int) -> None:
    limits = rates()
    fill(limits, "requests", 0, 10)
    error = refusal(limits, "requests", refused_at)
    assert 1 <= error.retry_after <= 10
    assert f"come back in {error.retry_after} s" in str(error)
    assert passes(limits, "requests", refused_at + error.retry_after * 1000)


def test_who_no_longer_asks_is_forgotten() -> None:
    limits = rates()
    for n in range(1_000):
        assert passes(limits, "status", 1, endpoint=f"e{n}")
    inside = enter(limits, "status", 1, endpoint="held")
    assert len(limits) == 1_001
    assert passes(limits, "run", WINDOW_MS + 2)
    assert len(limits) == 2  # this one, and the one that is inside
    inside.leave()
    assert passes(limits, "run", 2 * WINDOW_MS + 3)
    assert len(limits) == 1


def test_a_window_holds_no_more_than_its_limit() -> None:
    limits = rates()
    for n in range(20_000):
        place = limits.enter("a", "e", "cancel", n * 150)
        assert place is not None
        place.leave()
        assert len(place.count.admitted_ms) <= 100


@dataclass
class Oracle:
    """Every request that was let in is remembered, and counted each time."""

    per_worker: int
    let_in: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    inside: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    def enter(self, key: tuple[str, str], now_ms: int, workers: int) -> bool:
        window, at_once = TABLE[key[1]]
        grown = workers * self.per_worker
        recent = sum(1 for at in self.let_in[key] if at > now_ms - WINDOW_MS)
        crowded = at_once is not None and self.inside[key] >= max(at_once, grown)
        if crowded or recent >= max(window, grown):
            return False
        self.let_in[key].append(now_ms)
        self.inside[key] += 1
        return True


steps = st.lists(
    st.tuples(
        st.sampled_from(["enter", "enter", "enter", "leave", "workers"]),
        st.sampled_from(["e", "f"]),
        st.sampled_from(["requests", "purge-queue"]),
        st.sampled_from([0, 0, 0, 1, 700, 2_500, 9_999, 10_000, 10_001]) | st.integers(0, 12_000),
        st.integers(0, 4),
    ),
    max_size=120,
)


@given(steps=steps, per_worker=st.sampled_from([0, 1, 3, 5]))
def test_what_is_let_in_is_what_the_oracle_lets_in(
    steps: list[tuple[str, str, str, int, int]], per_worker: int
) -> None:
    fleet, oracle, now = Fleet(), Oracle(per_worker), 0
    limits = Rates(per_worker, fleet.count)
    places: dict[tuple[str, str], list[Admission]] = defaultdict(list)
    for step, endpoint, operation, passed, workers in steps:
        now += passed
        key = (endpoint, operation)
        if step == "workers":
            fleet.workers[endpoint] = workers
        elif step == "leave" and places[key]:
            places[key].pop().leave()
            oracle.inside[key] -= 1
        elif step == "enter":
            if oracle.enter(key, now, fleet.workers[endpoint]):
                places[key].append(enter(limits, operation, now, endpoint=endpoint))
            else:
                with pytest.raises(TooMany) as raised:
                    limits.enter("a", endpoint, operation, now)
                assert 1 <= raised.value.retry_after <= 10
