"""The quotas of keys and endpoints."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.quotas import DAY_S, UNBOUNDED, Quota, Use, day_of, refused, refused_workers

BOUNDS = st.none() | st.integers(1, 5)
QUOTAS = st.builds(Quota, BOUNDS, BOUNDS, BOUNDS, BOUNDS)
USES = st.builds(Use, st.integers(0, 6), st.integers(0, 6000))
NOW = st.floats(0, 4e9)


def full(quota: Quota, use: Use) -> bool:
    waits, gpu_s = quota.jobs_waiting, quota.gpu_seconds_per_day
    return (waits is not None and use.jobs_waiting >= waits) or (
        gpu_s is not None and use.gpu_ms >= gpu_s * 1000
    )


@given(st.lists(st.tuples(st.sampled_from(["key a", "endpoint b"]), QUOTAS, USES), max_size=3), NOW)
def test_a_job_is_refused_exactly_where_a_quota_is_used_up_and_told_whose(
    held: list[tuple[str, Quota, Use]], now: float
) -> None:
    over = [one for one in held if full(one[1], one[2])]
    refusal = refused(held, now)
    assert (refusal is None) == (not over)
    if refusal is not None:
        whose, quota, _ = over[0]
        assert str(refusal).startswith(f"{whose} may ")
        assert refusal.limit in (quota.jobs_waiting, quota.gpu_seconds_per_day)
        assert str(refusal.limit) in str(refusal)
        assert refusal.retry_after >= 1


@given(NOW)
def test_gpu_seconds_are_free_again_when_the_day_ends_and_not_before(now: float) -> None:
    refusal = refused([("key a", Quota(gpu_seconds_per_day=1), Use(gpu_ms=1000))], now)
    assert refusal is not None
    assert day_of(now + refusal.retry_after) == day_of(now) + 1
    assert refusal.retry_after <= DAY_S


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9))
def test_workers_are_refused_beyond_the_quota_and_told_how_many_are_left(
    most: int, others: int, wanted: int
) -> None:
    refusal = refused_workers("a", Quota(workers=most), others, wanted)
    assert (refusal is None) == (others + wanted <= most)
    left = max(most - others, 0)
    if refusal is not None:
        assert f"this one may have {left} at most; got {wanted}" in str(refusal)
        assert left == 0 or refused_workers("a", Quota(workers=most), others, left) is None
    assert refused_workers("a", UNBOUNDED, others, wanted) is None


@given(QUOTAS)
def test_a_quota_is_stored_as_it_was(quota: Quota) -> None:
    assert Quota.parse(quota.stored()) == quota
    assert Quota.of(quota.fields()) == quota
    assert (Quota.of(quota.fields()) is UNBOUNDED) == (not quota.fields())
