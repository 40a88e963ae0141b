"""Adaptive projected guidance, held against that of diffusers, step by step, and as a part of a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.guiders.adaptive_projected_guidance import MomentumBuffer, normalized_guidance
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.models.interface import ImageDefaults
from stoker.models.speed_ups import guidance as guidances
from stoker.models.speed_ups.speed_up import Loaded, NotHere
from stoker.models.talking_video.infinitetalk import InfiniteTalk
from stoker.models.talking_video.sampling.projected_guidance import ProjectedGuidance
from stoker.models.talking_video.sampling.sampling import Conditions, denoised
from stoker.models.talking_video.sampling.schedule import Forward, Guidance, Projection, combine
from stoker.models.talking_video.sampling.settings import SETTINGS

SHAPE = (1, 4, 3, 2, 2)
FEW = settings(max_examples=20, deadline=None)


class Theirs:
    """With the functions of diffusers, which InfiniteTalk's authors call with `eta` 0."""

    def __init__(self, guidance: Guidance, projection: Projection) -> None:
        self.guidance, self.norm_most = guidance, projection.norm_most
        self.text, self.audio = (MomentumBuffer(projection.momentum) for _ in range(2))

    def combined(self, of: dict[str, torch.Tensor]) -> torch.Tensor:
        full = of["all"]
        if self.guidance.text == 1.0:
            return full + self.change(full - of["text"], full, self.guidance.audio, self.audio)
        by_text = self.change(full - of["audio"], full, self.guidance.text, self.text)
        return (
            full + by_text + self.change(of["audio"] - of["nothing"], full, self.guidance.audio, self.audio)
        )

    def change(self, difference: Any, full: Any, scale: float, momentum: MomentumBuffer) -> torch.Tensor:
        found = normalized_guidance(
            full,
            full - difference,
            scale - 1,
            momentum,
            eta=0.0,
            norm_threshold=self.norm_most,
            use_original_formulation=True,
        )
        return found - full


@FEW
@given(
    st.integers(0, 10**6),
    st.sampled_from([(5.0, 4.0), (5.0, 1.0), (1.0, 2.0)]),
    st.sampled_from([(-0.75, 55.0), (-0.75, 1.5), (0.5, 4.0)]),
)
def test_each_step_is_that_of_diffusers(
    seed: int, scales: tuple[float, float], numbers: tuple[float, float]
) -> None:
    drawn = torch.Generator().manual_seed(seed)
    guidance, projection = Guidance(*scales), Projection(*numbers)
    ours, theirs = ProjectedGuidance(guidance, projection), Theirs(guidance, projection)
    for _ in range(4):
        of = {
            name: torch.randn(SHAPE, generator=drawn, dtype=torch.float64)
            for name in ("all", "audio", "text", "nothing")
        }
        torch.testing.assert_close(ours.combine(lambda forward, of=of: of[forward]), theirs.combined(of))


def test_what_is_added_is_orthogonal_and_bounded() -> None:
    full, text = torch.randn(SHAPE), 100 * torch.randn(SHAPE)
    found = ProjectedGuidance(Guidance(1.0, 3.0), Projection(norm_most=2.0)).combine(
        lambda forward: {"all": full, "text": text}[forward]
    )
    added = (found - full).double()
    assert abs(float((added * full).sum())) < 1e-4
    assert 0 < float(added.norm()) <= 2 * 2.0 + 1e-6


@pytest.mark.parametrize("scales", [(5.0, 4.0), (1.0, 2.0), (1.0, 1.0)])
def test_the_forwards_are_those_of_the_other_guidance(scales: tuple[float, float]) -> None:
    def called(combined: Any) -> list[Forward]:
        seen: list[Forward] = []
        combined(lambda forward: seen.append(forward) or torch.ones(SHAPE))
        return seen

    guidance = Guidance(*scales)
    projected = called(ProjectedGuidance(guidance, Projection()).combine)
    assert projected == called(lambda velocity: combine(guidance, velocity))


def test_no_forward_that_differs_is_no_guidance_and_no_number_is_lost() -> None:
    full = torch.randn(SHAPE)
    found = ProjectedGuidance(Guidance(5.0, 4.0), Projection()).combine(lambda forward: full)
    assert torch.equal(found, full)
    zeros = ProjectedGuidance(Guidance(5.0, 4.0), Projection()).combine(lambda forward: torch.zeros(SHAPE))
    assert torch.equal(zeros, torch.zeros(SHAPE))


def test_the_sampler_uses_it_and_begins_each_chunk_anew() -> None:
    class Drawn:
        dtype = torch.float32

        def __call__(self, latents: Any, time: Any, text: Any, *rest: Any, **named: Any) -> Any:
            return latents[:, :4] * (1 + text) + rest[1].mean()

    latents, zero = torch.randn(SHAPE), torch.zeros(1)
    inputs = Conditions(zero, zero + 1, zero, torch.zeros(1, 4, 3, 2, 2), zero + 2, zero)

    def sampled(guidance: Guidance) -> torch.Tensor:
        known = latents[:, :, :1]
        return denoised(Drawn(), inputs, latents, known, [1.0, 0.6, 0.0], guidance, lambda done: True)

    projected = Guidance(5.0, 4.0, Projection())
    assert not torch.allclose(sampled(projected), sampled(Guidance(5.0, 4.0)))
    assert torch.equal(sampled(projected), sampled(projected))


def test_a_profile_asks_for_it_and_says_so(talk_tiny: Path) -> None:
    made = InfiniteTalk(talk_tiny, "cpu", "tiny", "exact+apg")
    made.warm([(256, 256)], ImageDefaults(steps=1))
    assert made.speed_ups["apg"] == "momentum -0.75, norm at most 55"
    assert made.settings.guidance == Guidance(2.0, 2.0, Projection())
    assert SETTINGS["tiny"].guidance.projection is None


def test_where_there_is_no_such_guidance_it_is_left_out(talk_tiny: Path) -> None:
    with pytest.raises(NotHere, match="it is for InfiniteTalk's guidance"):
        guidances.apg(Loaded(None, None, "cpu"))
