"""Step caches: they leave blocks out, keep nothing beyond a job, and say where they do not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stoker.models.interface import ImageParameters, Step
from stoker.models.speed_ups import step_caches
from stoker.models.speed_ups.speed_up import Loaded, NotHere
from tests.models.speed_ups.pictures import loaded, most, picture

CACHES = (step_caches.first_block_cache, step_caches.mag_cache, step_caches.taylor_seer)


def attentions(flux: Any) -> list[int]:
    """Counts the calls of the last block's attention."""
    calls: list[int] = []
    processor = flux.pipe.transformer.single_transformer_blocks[-1].attn.processor
    attended = processor.__class__.__call__

    class Counted(processor.__class__):  # type: ignore[misc, name-defined]
        def __call__(self, *arguments: Any, **named: Any) -> Any:
            calls.append(1)
            return attended(self, *arguments, **named)

    processor.__class__ = Counted
    return calls


@pytest.mark.parametrize("cache", CACHES)
def test_blocks_are_left_out_and_the_same_seed_draws_the_same(
    flux: Any, cache: Callable[[Loaded], str]
) -> None:
    whole = picture(flux, steps=12)
    cache(loaded(flux))
    calls = attentions(flux)
    first = picture(flux, steps=12)
    assert 0 < len(calls) < 12
    assert most(picture(flux, steps=12), first) == 0
    assert first.std() > 0.5 * whole.std()


@pytest.mark.parametrize("cache", CACHES)
def test_a_cancelled_job_leaves_nothing_for_the_next(flux: Any, cache: Callable[[Loaded], str]) -> None:
    cache(loaded(flux))
    first = picture(flux, steps=12)

    def stop(step: Step) -> None:
        if step.number == 5:
            raise InterruptedError

    for size in (256, 320):
        with pytest.raises(InterruptedError):
            flux.generate(ImageParameters("a house", size, 256, 12, seed=3, guidance=3.5), stop)
    assert most(picture(flux, steps=12), first) == 0


def test_another_size_and_number_of_steps_run(flux: Any) -> None:
    step_caches.first_block_cache(loaded(flux))
    assert picture(flux, width=320, steps=3).shape == (256, 320, 3)


def test_where_a_job_has_few_steps_none_is_left_out(flux: Any) -> None:
    for cache in CACHES:
        with pytest.raises(NotHere, match="a job has 4 steps, which are too few"):
            cache(loaded(flux, steps=4))


def test_one_cache_at_a_time(flux: Any) -> None:
    step_caches.first_block_cache(loaded(flux))
    with pytest.raises(NotHere, match="another cache is in use"):
        step_caches.taylor_seer(loaded(flux))


def test_networks_that_diffusers_has_no_cache_for_are_named(flux: Any) -> None:
    import torch

    with pytest.raises(NotHere, match="no cache for the blocks of Linear"):
        step_caches.first_block_cache(Loaded(torch.nn.Linear(1, 1), None, "cpu"))
