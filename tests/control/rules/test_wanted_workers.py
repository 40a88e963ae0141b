"""The number of workers wanted: bounds, demand, idleness, and the examples that a mutant would get wrong."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.rules.wanted_workers import (
    UNMEASURED_START_S,
    ScaleMemory,
    ScalePolicy,
    ScaleSample,
    decide,
)
from tests.profiles import examples

counts = st.integers(0, 50)
seconds = st.floats(0, 1000)


@st.composite
def samples(draw: st.DrawFn) -> ScaleSample:
    idle, starting = draw(st.lists(seconds, max_size=20)), draw(st.lists(seconds, max_size=20))
    busy = draw(counts)
    return ScaleSample(
        queued=draw(counts),
        in_progress=draw(counts),
        workers=len(idle) + len(starting) + busy,
        idle_for=tuple(idle),
        low_priority_queued=draw(counts),
        concurrency=draw(st.integers(1, 8)),
        slots=tuple(draw(st.lists(st.integers(1, 8), max_size=3))),
        starting_for=tuple(starting),
        running_for=tuple(draw(st.lists(seconds, max_size=20))),
        waited_s=draw(seconds),
        cold_start_s=draw(st.none() | seconds),
        job_time_s=draw(st.none() | seconds),
        begun=draw(st.integers(0, 1000)),
        now=draw(seconds),
    )


@st.composite
def policies(draw: st.DrawFn) -> ScalePolicy:
    low = draw(st.integers(0, 5))
    return ScalePolicy(
        workers_min=low,
        workers_max=low + draw(st.integers(0, 10)),
        idle_timeout_s=draw(st.floats(1, 60)),
        scaler=draw(st.sampled_from(["REQUEST_COUNT", "QUEUE_DELAY"])),
        scaler_value=draw(st.integers(1, 20)),
    )


numbers = st.integers(0, 1000)
memories = st.none() | st.builds(ScaleMemory, seconds, numbers, numbers, st.none() | seconds)


def wanted(sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory | None = None) -> int:
    return decide(sample, policy, memory)[0].workers


# ---- by count


def test_one_worker_per_waiting_job_up_to_the_maximum() -> None:
    policy = ScalePolicy(0, 3, 5)
    assert wanted(ScaleSample(2, 0, 0), policy) == 2
    assert wanted(ScaleSample(9, 0, 1), policy) == 3
    assert decide(ScaleSample(9, 0, 3), policy)[0].why == "jobs wait, at the maximum"
    assert wanted(ScaleSample(5, 0, 0, concurrency=4), policy) == 2


def test_one_worker_for_as_many_jobs_as_the_scaler_says() -> None:
    policy = ScalePolicy(0, 9, 5, "REQUEST_COUNT", 4)
    assert [wanted(ScaleSample(jobs, 0, 0), policy) for jobs in (0, 1, 4, 5, 8, 9)] == [0, 1, 1, 2, 2, 3]
    assert wanted(ScaleSample(6, 3, 1), policy) == 3
    assert wanted(ScaleSample(12, 0, 0, concurrency=6), policy) == 2


def test_what_workers_reported_counts_for_more_than_what_their_endpoint_allows() -> None:
    policy = ScalePolicy(0, 9, 5)
    assert wanted(ScaleSample(4, 0, 1, concurrency=4, slots=(1,)), policy) == 4
    assert wanted(ScaleSample(6, 0, 2, concurrency=4, slots=(1, 3)), policy) == 3
    assert wanted(ScaleSample(7, 0, 2, concurrency=4, slots=(1, 3)), policy) == 4
    assert wanted(ScaleSample(4, 0, 2, slots=(1, 1, 2)), policy) == 3


def test_running_jobs_count_as_demand() -> None:
    assert wanted(ScaleSample(1, 2, 2), ScalePolicy(0, 5, 5)) == 3


# ---- by waiting

DELAY = ScalePolicy(0, 10, 5, "QUEUE_DELAY", 4)


def waiting(queued: int, busy: int, waited_s: float = 5.0, **more: object) -> ScaleSample:
    fields = {"slots": (1,) * busy, "waited_s": waited_s, "cold_start_s": 10.0, "job_time_s": 1000.0, **more}
    fields.setdefault("running_for", (1.0,) * sum(fields["slots"]))  # type: ignore[arg-type]
    return replace(ScaleSample(queued, busy, busy), **fields)  # type: ignore[arg-type]


def test_the_first_worker_starts_at_once_and_only_one() -> None:
    assert wanted(ScaleSample(9, 0, 0, waited_s=0.0), DELAY) == 1
    assert wanted(ScaleSample(0, 0, 0), DELAY) == 0


def test_another_starts_only_when_a_job_has_waited_too_long() -> None:
    assert wanted(waiting(3, 1, waited_s=4.0), DELAY) == 1
    assert wanted(waiting(3, 1, waited_s=4.1), DELAY) == 4
    assert wanted(waiting(3, 1, waited_s=4.1), replace(DELAY, scaler_value=5)) == 1


def test_one_for_each_long_job_that_is_left_and_fewer_for_short_ones() -> None:
    assert wanted(waiting(6, 2), DELAY) == 8
    assert wanted(waiting(40, 2), DELAY) == 10
    assert wanted(waiting(12, 1, job_time_s=4.0), DELAY) == 5  # 3.5 are taken; of the rest each takes two
    assert wanted(waiting(20, 1, job_time_s=0.1), DELAY) == 1


def test_none_starts_for_jobs_that_will_be_over_before_it_is_ready() -> None:
    """Six jobs of 8 s on two warm workers: a third would be ready when hardly one is left."""
    half = {"job_time_s": 8.0, "running_for": (4.1, 4.1)}
    assert wanted(waiting(4, 2, **half), DELAY) == 2
    assert wanted(waiting(4, 2, **half, cold_start_s=2.0), DELAY) == 3
    assert wanted(waiting(1, 4, job_time_s=60.0, running_for=(5.0,) * 4), DELAY) == 5


def test_the_jobs_that_run_tell_how_long_a_job_takes_while_none_has_ended() -> None:
    """The one that runs longest is expected to need as long again."""
    assert wanted(waiting(4, 1, job_time_s=None, running_for=(1.0,)), DELAY) == 1
    assert wanted(waiting(4, 1, job_time_s=None, running_for=(20.0,)), DELAY) == 5
    assert wanted(waiting(4, 2, job_time_s=None, running_for=(20.0, 2.0)), DELAY) == 6
    assert wanted(waiting(4, 1, job_time_s=None, running_for=()), DELAY) == 1


def test_a_job_that_takes_longer_than_others_did_is_expected_to_go_on() -> None:
    assert wanted(waiting(1, 1, job_time_s=5.0, running_for=(8.0,)), DELAY) == 1
    assert wanted(waiting(1, 1, job_time_s=5.0, running_for=(28.0,)), DELAY) == 2


def test_where_waits_stay_too_long_one_more_starts_in_the_end() -> None:
    """Two workers were expected to end the waiting: after a cold start and the patience they have not."""
    late = waiting(3, 2, job_time_s=8.0, now=100.0)
    assert decide(late, DELAY)[1].late_since == 100.0
    memory = ScaleMemory(since=100.0, late_since=100.0)
    assert wanted(replace(late, now=114.0), DELAY, memory) == 2
    assert wanted(replace(late, now=114.1), DELAY, memory) == 3
    starting = replace(late, now=114.1, starting_for=(0.0,), workers=3)
    assert decide(starting, DELAY, memory)[1].late_since is None
    assert decide(replace(late, waited_s=1.0), DELAY, memory)[1].late_since is None
    assert wanted(replace(late, now=200.0, slots=(), running_for=()), DELAY, memory) == 2


def test_a_free_slot_takes_one_at_once() -> None:
    assert wanted(waiting(1, 1, running_for=()), DELAY) == 1
    assert wanted(waiting(4, 1, slots=(4,), running_for=()), DELAY) == 1


def test_those_that_are_starting_count_for_what_they_will_take() -> None:
    one = waiting(1, 1, workers=2, starting_for=(1.0,))
    assert wanted(one, DELAY) == 2
    assert wanted(replace(one, queued=2), DELAY) == 3


def test_one_that_is_overdue_counts_less_and_less() -> None:
    late = waiting(1, 1, workers=2, starting_for=(20.0,))
    assert wanted(late, DELAY) == 2
    assert wanted(replace(late, starting_for=(30.0,)), DELAY) == 3


def test_a_start_that_was_never_measured_is_waited_for() -> None:
    first = ScaleSample(9, 0, 1, starting_for=(300.0,), waited_s=300.0)
    assert wanted(first, DELAY) == 1
    assert wanted(replace(first, cold_start_s=10.0), DELAY) == 2


def test_a_worker_of_many_slots_counts_for_many() -> None:
    assert wanted(waiting(8, 1, slots=(4,)), DELAY) == 3
    one = ScaleSample(8, 0, 1, concurrency=4, starting_for=(0.0,), waited_s=9.0, job_time_s=9.0)
    assert wanted(one, DELAY) == 1


def test_where_all_are_unhealthy_no_more_are_tried() -> None:
    assert wanted(ScaleSample(9, 0, 2, waited_s=99.0, job_time_s=1.0), DELAY) == 2


# ---- going


def test_idle_workers_go_only_after_the_timeout_and_never_below_the_minimum() -> None:
    policy = ScalePolicy(1, 5, 5)
    assert wanted(ScaleSample(0, 0, 3, (4.9, 4.9, 4.9)), policy) == 3
    assert wanted(ScaleSample(0, 0, 3, (5.0, 6.0, 7.0)), policy) == 1


def test_where_jobs_are_spread_a_worker_goes_that_demand_did_not_ask_for() -> None:
    """None of them is idle for long: each gets some of the jobs."""
    demands = [3, *[1] * 6, 2, *[1] * 20]
    for spread, numbers in ((False, [3] * 28), (True, [3] * 10 + [2] * 5 + [1] * 13)):
        policy, memory = ScalePolicy(1, 9, 5.0, spread=spread), None
        found = []
        for second, demand in enumerate(demands):
            sample = ScaleSample(0, demand, 3, now=float(second))
            decision, memory = decide(sample, policy, memory)
            found.append(decision.workers)
        assert found == numbers
    assert decision.why == "fewer bear the load"
    assert wanted(ScaleSample(0, 1, 3, now=0.0), ScalePolicy(1, 9, 5.0, spread=True)) == 3


def test_a_low_priority_job_keeps_the_workers_that_are_there() -> None:
    assert wanted(ScaleSample(0, 0, 1, (99.0,), low_priority_queued=1), ScalePolicy(0, 5, 5)) == 1


def test_idle_workers_that_waiting_jobs_need_stay() -> None:
    assert wanted(ScaleSample(1, 1, 3, (99.0, 99.0)), ScalePolicy(0, 5, 5)) == 2
    assert wanted(ScaleSample(1, 1, 3, (99.0, 99.0)), DELAY) == 2


def test_more_than_the_maximum_go_whatever_waits() -> None:
    assert wanted(ScaleSample(9, 4, 4), ScalePolicy(0, 2, 5)) == 2


def often(gap: float, *, cold: float = 60.0, job: float = 2.0, looks: int = 240) -> list[int]:
    """Workers wanted of three, look by look, while a job comes every `gap` seconds and ends after `job`."""
    memory: ScaleMemory | None = None
    kept = []
    for now in range(looks):
        idle = now % gap - job
        sample = ScaleSample(
            queued=0,
            in_progress=int(idle < 0),
            workers=3,
            idle_for=(99.0, 99.0) if idle < 0 else (99.0, 99.0, idle),
            slots=(1, 1, 1),
            cold_start_s=cold,
            job_time_s=job,
            begun=int(now // gap),
            now=float(now),
        )
        decision, memory = decide(sample, ScalePolicy(0, 5, 5), memory)
        kept.append(decision.workers)
    return kept


def test_a_worker_that_the_next_job_needs_before_another_could_start_stays() -> None:
    assert set(often(20.0)[120:]) == {1}
    assert set(often(10.0, job=25.0)[120:]) >= {3}
    assert 0 in often(20.0, cold=10.0)[120:]


def test_a_lone_job_is_no_rate() -> None:
    memory = ScaleMemory(since=0.0, begun=0)
    idle_long = ScaleSample(0, 0, 1, (6.0,), cold_start_s=60.0, job_time_s=1.0, begun=1, now=8.0)
    assert wanted(idle_long, ScalePolicy(0, 5, 5), memory) == 0
    assert wanted(replace(idle_long, begun=2), ScalePolicy(0, 5, 5), memory) == 1


def test_the_window_before_fades_as_this_one_fills() -> None:
    memory = ScaleMemory(since=0.0, begun=9, before=10)
    idle_long = ScaleSample(0, 0, 1, (30.0,), cold_start_s=60.0, job_time_s=1.0, begun=9, now=30.0)
    assert wanted(idle_long, ScalePolicy(0, 5, 5), memory) == 1
    assert wanted(replace(idle_long, now=54.1), ScalePolicy(0, 5, 5), memory) == 0


def test_a_clock_that_steps_back_begins_anew() -> None:
    sample = ScaleSample(0, 0, 1, (6.0,), cold_start_s=60.0, begun=9, now=100.0)
    assert decide(sample, DELAY, ScaleMemory(since=5000.0, begun=1, before=7))[1] == ScaleMemory(100.0, 9, 0)
    assert decide(sample, DELAY, ScaleMemory(since=30.0, begun=1, before=7))[1] == ScaleMemory(100.0, 9, 8)
    assert decide(sample, DELAY, ScaleMemory(since=-50.0, begun=1, before=7))[1] == ScaleMemory(100.0, 9, 0)
    assert decide(sample, DELAY, ScaleMemory(since=50.0, begun=1, before=7))[1] == ScaleMemory(50.0, 1, 7)


# ---- whatever the sample, the policy and the memory


@given(samples(), policies(), memories)
def test_never_outside_its_bounds(
    sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory | None
) -> None:
    assert policy.workers_min <= wanted(sample, policy, memory) <= policy.workers_max


@given(samples(), policies(), memories)
def test_never_stops_more_than_have_been_idle_long_enough(
    sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory | None
) -> None:
    idle_long = sum(1 for idle in sample.idle_for if idle >= policy.idle_timeout_s)
    stopped = sample.workers - wanted(sample, policy, memory)
    assert stopped <= max(idle_long, sample.workers - policy.workers_max)


@given(samples(), policies(), memories)
def test_low_priority_jobs_alone_never_add_a_worker(
    sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory | None
) -> None:
    calm = replace(sample, queued=0, in_progress=0, workers=max(sample.workers, policy.workers_min))
    assert wanted(calm, policy, memory) <= calm.workers


@given(samples(), policies(), memories)
def test_what_is_wanted_once_is_not_wanted_again(
    sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory | None
) -> None:
    """The workers that the first look starts are there at the second: one decision for one demand."""
    first = wanted(sample, policy, memory)
    started = max(first - sample.workers, 0)
    again = replace(
        sample, workers=sample.workers + started, starting_for=(*sample.starting_for, *[0.0] * started)
    )
    assert wanted(again, policy, memory) <= max(first, sample.workers)


@given(samples(), policies())
def test_a_worker_that_one_long_wait_asks_for_is_not_requested_twice(
    sample: ScaleSample, policy: ScalePolicy
) -> None:
    """One job waits, and a worker is starting that will take it: nothing more is started for it."""
    policy = replace(policy, scaler="QUEUE_DELAY", workers_min=0)
    cold = sample.cold_start_s if sample.cold_start_s is not None else UNMEASURED_START_S
    lone = replace(
        sample, queued=1, workers=1, starting_for=(cold / 2,), slots=(), waited_s=500.0, idle_for=()
    )
    assert wanted(lone, policy) <= 1


@settings(max_examples=examples(50))
@given(st.floats(1, 60), st.floats(0, 60), st.floats(0.1, 100), st.integers(1, 40))
def test_after_the_last_job_every_worker_goes_in_the_end(
    idle_timeout: float, cold: float, job: float, jobs: int
) -> None:
    """The hysteresis ends: two windows after the last job, those that are idle long enough go."""
    policy = ScalePolicy(0, 40, idle_timeout)
    memory: ScaleMemory | None = None
    window = max(idle_timeout, cold, 1.0)
    for look in range(40):
        now = look * window / 10
        sample = ScaleSample(0, 0, 3, (now,) * 3, cold_start_s=cold, job_time_s=job, begun=jobs, now=now)
        decision, memory = decide(replace(sample, begun=0) if look == 0 else sample, policy, memory)
    assert decision.workers == 0
