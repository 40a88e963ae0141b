"""The number of workers wanted: bounds, idleness, and the examples that a mutant would get wrong."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.autoscale import ScalePolicy, ScaleSample, decide

counts = st.integers(0, 50)


@st.composite
def samples(draw: st.DrawFn) -> ScaleSample:
    workers = draw(counts)
    idle = draw(st.lists(st.floats(0, 100), max_size=workers))
    return ScaleSample(
        queued=draw(counts),
        in_progress=draw(counts),
        workers=workers,
        idle_for=tuple(idle),
        low_priority_queued=draw(counts),
        concurrency=draw(st.integers(1, 8)),
        slots=tuple(draw(st.lists(st.integers(1, 8), max_size=3))),
    )


@st.composite
def policies(draw: st.DrawFn) -> ScalePolicy:
    low = draw(st.integers(0, 5))
    return ScalePolicy(low, low + draw(st.integers(0, 10)), draw(st.floats(1, 60)))


@given(samples(), policies())
def test_never_outside_its_bounds(sample: ScaleSample, policy: ScalePolicy) -> None:
    assert policy.workers_min <= decide(sample, policy).workers <= policy.workers_max


@given(samples(), policies())
def test_never_stops_more_than_have_been_idle_long_enough(sample: ScaleSample, policy: ScalePolicy) -> None:
    tired = sum(1 for idle in sample.idle_for if idle >= policy.idle_timeout_s)
    stopped = sample.workers - decide(sample, policy).workers
    assert stopped <= max(tired, sample.workers - policy.workers_max)


@given(samples(), policies())
def test_low_priority_jobs_alone_never_add_a_worker(sample: ScaleSample, policy: ScalePolicy) -> None:
    calm = ScaleSample(0, 0, max(sample.workers, policy.workers_min), (), sample.low_priority_queued)
    assert decide(calm, policy).workers <= max(calm.workers, policy.workers_min)


def test_one_worker_per_waiting_job_up_to_the_maximum() -> None:
    policy = ScalePolicy(0, 3, 5)
    assert decide(ScaleSample(2, 0, 0), policy).workers == 2
    assert decide(ScaleSample(9, 0, 1), policy).workers == 3
    assert decide(ScaleSample(9, 0, 3), policy).why == "jobs wait, at the maximum"
    assert decide(ScaleSample(5, 0, 0, concurrency=4), policy).workers == 2


def test_what_workers_told_counts_for_more_than_what_their_endpoint_allows() -> None:
    policy = ScalePolicy(0, 9, 5)
    assert decide(ScaleSample(4, 0, 1, concurrency=4, slots=(1,)), policy).workers == 4
    assert decide(ScaleSample(6, 0, 2, concurrency=4, slots=(1, 3)), policy).workers == 3
    assert decide(ScaleSample(7, 0, 2, concurrency=4, slots=(1, 3)), policy).workers == 4


def test_running_jobs_count_as_demand() -> None:
    assert decide(ScaleSample(1, 2, 2), ScalePolicy(0, 5, 5)).workers == 3


def test_idle_workers_go_only_after_the_timeout_and_never_below_the_minimum() -> None:
    policy = ScalePolicy(1, 5, 5)
    assert decide(ScaleSample(0, 0, 3, (4.9, 4.9, 4.9)), policy).workers == 3
    assert decide(ScaleSample(0, 0, 3, (5.0, 6.0, 7.0)), policy).workers == 1


def test_a_low_priority_job_keeps_the_workers_that_are_there() -> None:
    assert decide(ScaleSample(0, 0, 1, (99.0,), low_priority_queued=1), ScalePolicy(0, 5, 5)).workers == 1


def test_idle_workers_that_waiting_jobs_need_stay() -> None:
    assert decide(ScaleSample(1, 1, 3, (99.0, 99.0)), ScalePolicy(0, 5, 5)).workers == 2
