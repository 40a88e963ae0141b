"""A worker starts once its weights are on its node; meanwhile control is told what it waits for."""

from __future__ import annotations

import asyncio

import pytest

from stoker.testing.fake_weights import FakeWeights
from stoker.wire.messages import LockedWeights, WeightsFile
from stoker.wire.messages.weights import HELD

FLUX = LockedWeights("flux", "huggingface:o/flux", "c0ffee", (WeightsFile("a.safetensors", 9, "ab" * 32),))
FETCHES = "node fake fetches the weights flux"


@pytest.fixture
def weights() -> FakeWeights:
    return FakeWeights()


def said(host, name="w1"):
    return [(news.state, news.reason, news.waits_for) for news in host.control.news(name)]


def test_the_process_starts_after_the_fetch_and_its_time_counts_from_then(play, a_worker, weights):
    weights.fetch_s = 500.0

    async def story(host):
        await host.control.until(lambda: host.control.stream is not None)
        await host.control.desire(a_worker(weights=(FLUX,), start_timeout_s=60.0))
        await host.control.until(lambda: said(host))
        assert host.spawner.spawned == []
        await host.control.worker_is("w1", "ready")
        assert said(host) == [("starting", "", FETCHES), ("starting", "", ""), ("ready", "", "")]
        assert weights.fetched == ["flux"]

    play(story, weights=weights)


def test_a_worker_without_weights_asks_for_none(play, a_worker, weights):
    weights.stuck = True

    async def story(host):
        await host.control.ready(a_worker())
        assert weights.used == {}

    play(story, weights=weights)


def test_a_failure_is_no_crash_loop_and_the_next_try_starts_it(play, a_worker, weights):
    why = "node fake cannot get the weights flux: there is none (404); it tries again after 60 s"
    weights.failures = [why]

    async def story(host):
        await host.control.until(lambda: host.control.stream is not None)
        await host.control.desire(a_worker(weights=(FLUX,)))
        await host.control.worker_is("w1", "ready")
        assert said(host) == [
            ("starting", "", FETCHES),
            ("unhealthy", why, why),
            ("starting", "", ""),  # its setup may take minutes, and nothing is wrong any more
            ("ready", "", ""),
        ]
        assert len(host.spawner.spawned) == 1

    play(story, weights=weights)


def test_one_that_is_not_wanted_any_more_is_gone_and_waits_for_nothing(play, a_worker, weights):
    weights.stuck = True

    async def story(host):
        await host.control.until(lambda: host.control.stream is not None)
        await host.control.desire(a_worker(weights=(FLUX,)))
        await host.control.until(lambda: said(host))
        await host.control.desire()
        await host.control.worker_is("w1", "gone")
        assert (weights.used, weights._waiting) == ({}, {})
        weights.stuck = False
        await asyncio.sleep(100)
        assert host.spawner.spawned == []

    play(story, weights=weights)


def test_a_process_that_died_starts_again_once_they_were_looked_at_again(play, a_worker, weights):
    async def story(host):
        await host.control.ready(a_worker(weights=(FLUX,)))
        weights.held.clear()
        host.spawner.processes[0].kill()
        await host.control.until(lambda: len(host.spawner.spawned) == 2)
        await host.control.worker_is("w1", "ready")
        assert weights.fetched == ["flux", "flux"]
        assert FETCHES in [waits for _, _, waits in said(host)]

    play(story, weights=weights)


def test_a_hello_says_what_is_held_and_what_workers_wait_for(play, a_worker, weights):
    async def story(host):
        await host.control.until(lambda: host.control.stream is not None)
        assert host.control.hellos[0].facts[HELD] == ""
        await host.control.desire(a_worker(weights=(FLUX,)))
        await host.control.until(lambda: said(host))
        host.control.stream.end("cut")
        await host.control.until(lambda: len(host.control.hellos) == 2)
        (held,) = host.control.hellos[1].workers
        assert (held.state, held.waits_for) == ("starting", FETCHES)
        await host.control.worker_is("w1", "ready")
        host.control.stream.end("cut")
        await host.control.until(lambda: len(host.control.hellos) == 3)
        assert host.control.hellos[2].facts[HELD] == FLUX.key
        assert host.control.hellos[2].workers[0].waits_for == ""

    play(story, weights=weights)


def test_the_next_beat_says_what_came_and_the_one_after_it_nothing(play, a_worker, weights):
    async def story(host):
        await host.control.ready(a_worker(weights=(FLUX,)))
        await asyncio.sleep(20)
        facts = [dict(beat.facts) for _, beat in host.control.beats if beat.facts]
        assert facts == [{HELD: FLUX.key}]

    play(story, weights=weights)
