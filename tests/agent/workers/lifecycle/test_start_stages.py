"""The stages of a worker's start: what its node measured, and what its process reports."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.workers.lifecycle.start_stages import start_stages
from stoker.testing.fake_spawner import Start
from stoker.testing.fake_weights import FakeWeights
from stoker.wire.messages import LockedWeights, StartStage, WeightsFile

FLUX = LockedWeights("flux", "huggingface:o/flux", "c0ffee", (WeightsFile("a.safetensors", 9, "ab" * 32),))


def stages(weights_s: float, process_s: float, own_ms: Mapping[str, int]) -> dict[str, int]:
    return {one.name: one.took_ms for one in start_stages(weights_s, process_s, own_ms)}


@pytest.mark.parametrize(
    ("weights_s", "process_s", "own_ms", "expected"),
    [
        (9.8, 2.0, {"import": 400, "read": 9}, {"weights": 9800, "process": 1591, "import": 400, "read": 9}),
        (0.0004, 2.0, {}, {"process": 2000}),
        (1.0, 2.0, {"weights": 500}, {"weights": 1500, "process": 1500}),
        (0.0, 0.1, {"setup": 105}, {"setup": 100}),  # two clocks that round
        (0.0, 0.0, {"setup": 2**53}, {}),
    ],
)  # fmt: skip
def test_what_the_process_does_not_report_was_its_own_start(weights_s, process_s, own_ms, expected):
    found = stages(weights_s, process_s, own_ms)
    assert list(found.items()) == list(expected.items())


SECONDS = st.floats(0, 1e6)


@given(SECONDS, SECONDS, st.dictionaries(st.text(), st.integers(0, 2**53), max_size=32))
def test_no_stage_is_longer_than_what_it_is_a_part_of(weights_s, process_s, own_ms):
    longest_ms = round(weights_s * 1000) + round(process_s * 1000) * 2
    assert all(0 < one <= longest_ms for one in stages(weights_s, process_s, own_ms).values())


def test_they_are_reported_with_ready_and_in_hello_and_not_of_the_next_process_before_it_is(play, a_worker):
    async def story(host):
        host.spawner.starts["e1"] = Start(ready_s=3.0, stages_ms={"import": 500, "read hunter2": 2000})
        spec = a_worker(endpoint="e1", weights=(FLUX,), env={"TOKEN": "hunter2-x"}, hidden=("hunter2",))
        await host.control.ready(spec)
        weights, process, *own = host.control.news("w1")[-1].cold_start
        assert weights == StartStage("weights", 7000)
        assert process == StartStage("process", 500)
        assert [one.took_ms for one in own] == [500, 2000]
        assert "hunter2" not in own[1].name
        host.control.stream.cut()
        await host.control.until(lambda: len(host.control.hellos) == 2)
        assert host.control.hellos[-1].workers[0].cold_start == (weights, process, *own)
        host.spawner.processes[0].exit(1)
        assert (await host.control.worker_is("w1", "starting")).cold_start == ()
        again = await host.control.worker_is("w1", "ready")
        assert again.cold_start[0].name == "process", "its weights are here"

    play(story, weights=FakeWeights(fetch_s=7.0))
