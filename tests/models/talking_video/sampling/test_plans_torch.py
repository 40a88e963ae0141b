"""Sampling, colours and streamed decoding: what must hold of any numbers."""

from __future__ import annotations

from itertools import pairwise, zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.models.talking_video.network.frames_from_latents import LatentScale, decoded, encoded
from stoker.models.talking_video.sampling.sampling import Conditions, Stopped, chunk_seed, denoised, noise_of
from stoker.models.talking_video.sampling.schedule import Guidance, levels
from stoker.models.talking_video.video import colour
from tests.models.talking_video.video import reference_colour

FEW = settings(max_examples=25, deadline=None, derandomize=True, database=None)


# Noise


def test_chunks_have_seeds_of_their_own_that_stay_as_they_are() -> None:
    drawn = {(seed, chunk): chunk_seed(seed, chunk) for seed in range(60) for chunk in range(60)}
    assert len(set(drawn.values())) == len(drawn)
    assert all(0 <= value < 2**32 for value in drawn.values())
    some = [chunk_seed(0, 0), chunk_seed(0, 1), chunk_seed(1, 0), chunk_seed(2**32 - 1, 217)]
    assert some == [1_427_366_890, 2_839_049_726, 416_735_690, 1_969_839_870], (
        "old videos cannot be made again"
    )


def test_no_seed_runs_into_another_chunk() -> None:
    """1/11 and 11/1 must not meet, as the same digits would."""
    assert len({chunk_seed(1, 11), chunk_seed(11, 1), chunk_seed(111, 0), chunk_seed(0, 111)}) == 4


@FEW
@given(st.integers(0, 2**32), st.integers(0, 300))
def test_noise_is_the_same_again_whatever_was_drawn_between(seed: int, chunk: int) -> None:
    first = noise_of(seed, chunk, (1, 4, 3, 2, 2))
    before = torch.get_rng_state()
    noise_of(seed, chunk + 1, (1, 4, 3, 2, 2))
    torch.manual_seed(seed)
    assert torch.equal(noise_of(seed, chunk, (1, 4, 3, 2, 2)), first)
    assert not torch.equal(noise_of(seed, chunk + 1, (1, 4, 3, 2, 2)), first)
    torch.set_rng_state(before)
    noise_of(seed, chunk, (1, 4, 3, 2, 2))
    assert torch.equal(torch.get_rng_state(), before), "it drew from everybody's generator"


# The loop


class Straight:
    """A network whose velocity always points from the clean latents to the noise: Euler ends at the clean."""

    dtype = torch.float32

    def __init__(self, clean: torch.Tensor, noise: torch.Tensor) -> None:
        self.velocity, self.times, self.inputs = noise - clean, list[float](), list[torch.Tensor]()

    def __call__(
        self, latents_in: torch.Tensor, time: torch.Tensor, *expected: Any, masks: Any, before_block: Any
    ) -> torch.Tensor:
        self.times.append(float(time))
        self.inputs.append(latents_in)
        return self.velocity


def conditions(latents: torch.Tensor) -> Conditions:
    still = torch.ones(1, 8, *latents.shape[2:])
    nothing = torch.zeros(1)
    return Conditions(nothing, nothing, nothing, still, nothing, nothing)


@FEW
@given(st.integers(1, 12), st.floats(1.0, 12.0), st.sampled_from([(1.0, 1.0), (1.0, 2.0), (5.0, 4.0)]))
def test_steps_lead_from_the_noise_to_what_the_network_sees(
    steps: int, shift: float, scales: tuple[float, float]
) -> None:
    torch.manual_seed(steps)
    clean, noise = torch.randn(1, 4, 5, 2, 2), torch.randn(1, 4, 5, 2, 2)
    known = clean[:, :, :2]
    network, expected = Straight(clean, noise), list[int]()
    out = denoised(
        network,
        conditions(clean),
        noise,
        known,
        levels(steps, shift),
        Guidance(*scales),
        lambda done: expected.append(done) is None,
    )
    torch.testing.assert_close(out, clean, atol=1e-5, rtol=1e-5)
    assert torch.equal(out[:, :, :2], known), "what is known is not denoised but kept"
    assert all(torch.equal(latents_in[:, :4, :2], known) for latents_in in network.inputs), (
        "and shown clean at each step"
    )
    assert expected == list(range(1, steps + 1))
    assert network.times[0] == 1000.0
    assert all(later <= now for now, later in pairwise(network.times))


@pytest.mark.parametrize(
    ("guidance", "expected"),
    [
        (
            Guidance(5, 4),
            [("prompt", "voices", "masks"), ("none", "voices", "masks"), ("none", "silence", None)],
        ),
        (Guidance(1, 2), [("prompt", "voices", "masks"), ("prompt", "silence", None)]),
        (Guidance(1, 1), [("prompt", "voices", "masks")]),
    ],
)
def test_the_conditions_of_each_forward(
    guidance: Guidance, expected: list[tuple[str, str, str | None]]
) -> None:
    """Silence is one voice's, and nobody is looked for in it, with two speakers as with one."""
    names: dict[int, str] = {}

    def named(name: str) -> torch.Tensor:
        value = torch.zeros(1)
        names[id(value)] = name
        return value

    called: list[tuple[str, str, str | None]] = []

    class Listening:
        dtype = torch.float32

        def __call__(self, latents_in: Any, time: Any, text: Any, image: Any, audio: Any, **rest: Any) -> Any:
            masks = rest["masks"]
            assert names[id(image)] == "image"
            called.append((names[id(text)], names[id(audio)], None if masks is None else names[id(masks)]))
            return torch.zeros(1, 4, 2, 1, 1)

    latents = torch.zeros(1, 4, 2, 1, 1)
    inputs = Conditions(
        text=named("prompt"),
        no_text=named("none"),
        image=named("image"),
        still=latents,
        audio=named("voices"),
        silence=named("silence"),
        masks=named("masks"),
    )
    denoised(Listening(), inputs, latents, latents[:, :, :1], [1.0, 0.0], guidance, lambda done: True)
    assert called == expected


def test_it_stops_after_the_step_whose_callback_stops_it() -> None:
    clean, noise = torch.zeros(1, 4, 2, 1, 1), torch.ones(1, 4, 2, 1, 1)
    network = Straight(clean, noise)
    with pytest.raises(Stopped):
        denoised(
            network,
            conditions(clean),
            noise,
            clean[:, :, :1],
            levels(9, 7.0),
            Guidance(1, 1),
            lambda n: n < 3,
        )
    assert len(network.times) == 3


# Colours


def image(seed: int, contrast: float = 0.6, shift: float = 0.0, count: int = 1) -> torch.Tensor:
    """Not noise alone: a slope and a grain."""
    generator = torch.Generator().manual_seed(seed)
    slope = torch.linspace(-1, 1, 24).expand(count, 3, 16, 24) * torch.rand(
        count, 3, 1, 1, generator=generator
    )
    grain = torch.rand(count, 3, 16, 24, generator=generator) - 0.5
    return ((slope + grain) * contrast * 0.5 + shift).clamp(-1, 1)


@FEW
@given(st.integers(0, 10**6))
def test_colours_go_to_lab_and_back(seed: int) -> None:
    frames = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    torch.testing.assert_close(colour.from_lab(colour.to_lab(frames)), frames, atol=2e-5, rtol=0)


def test_known_colours_have_known_numbers() -> None:
    """Of sRGB's white, black, red and middle grey (values of the CIE's formulas, to two places)."""
    shown = torch.tensor([[1.0, 1, 1], [-1, -1, -1], [1, -1, -1], [0, 0, 0]]).view(4, 3, 1, 1)
    lab = colour.to_lab(shown).flatten(1)
    wanted = torch.tensor([[100.0, 0, 0], [0, 0, 0], [53.24, 80.09, 67.20], [53.39, 0, 0]])
    torch.testing.assert_close(lab, wanted, atol=0.02, rtol=0)


def test_colours_that_no_screen_shows_are_cut_off_as_in_the_authors_code() -> None:
    """The box reaches beyond what a screen shows on every side: roots of X, Y and Z are negative in places.
    The last bits differ by the matrix, which scikit-image writes with six digits."""
    box = np.stack(np.meshgrid(np.linspace(-30, 110, 29), *2 * [np.linspace(-130, 130, 27)]), axis=-1)
    theirs = reference_colour.shown(box)
    ours = colour.from_lab(torch.from_numpy(box).float().permute(3, 0, 1, 2).flatten(2).unsqueeze(0))[0]
    assert (reference_colour.roots(box) < 0).any(axis=(0, 1, 2)).all()
    np.testing.assert_allclose(ours.permute(1, 2, 0).reshape(box.shape).numpy(), theirs, atol=2e-3)


def test_dark_yellow_that_is_stretched_is_the_authors() -> None:
    """Frames that have faded, and are given the colours of a dark image with a strong yellow in it."""
    wanted = colour.Colours(*(torch.tensor(of).view(3, 1, 1) for of in ([20.0, 4, 30], [15.0, 10, 25])))
    faded = image(5, contrast=0.3)
    lab = colour.to_lab(faded)[0].double()
    mean, deviation = lab.mean((-2, -1), keepdim=True), lab.std((-2, -1), keepdim=True)
    stretched = ((lab - mean) * wanted.deviation / deviation + wanted.mean).permute(1, 2, 0).numpy()
    assert (reference_colour.roots(stretched)[..., 2] < 0).mean() > 0.05
    ours = colour.matched(faded, wanted)[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(ours, reference_colour.shown(stretched), atol=2e-3)


@FEW
@given(st.integers(0, 10**6))
def test_matched_frames_have_the_wanted_colours(seed: int) -> None:
    """Where nothing is cut off at the edge of what a screen shows."""
    wanted = colour.colours_of(image(seed, contrast=0.3)[0])
    drifted = image(seed + 1, contrast=0.3, shift=0.1, count=3)
    for frame in colour.matched(drifted, wanted):
        assert frame.abs().max() < 1.0, "cut off: choose other colours"
        found = colour.colours_of(frame)
        torch.testing.assert_close(found.mean, wanted.mean, atol=2e-3, rtol=0)
        torch.testing.assert_close(found.deviation, wanted.deviation, atol=2e-3, rtol=1e-3)


def test_a_frame_of_the_images_own_colours_is_left_alone() -> None:
    frame = image(3)
    torch.testing.assert_close(colour.matched(frame, colour.colours_of(frame[0])), frame, atol=1e-4, rtol=0)


def test_a_flat_frame_is_moved_and_not_stretched() -> None:
    """Rounding errors of a flat frame must not become a pattern."""
    wanted = colour.colours_of(image(5)[0])
    flat = torch.full((1, 3, 16, 24), 0.25)
    flat[..., 0, 0] += 1e-6
    out = colour.matched(flat, wanted)
    lab = colour.to_lab(out)
    assert lab.std((-2, -1)).max() < 1e-3
    torch.testing.assert_close(lab.mean((-2, -1))[0], wanted.mean.flatten(), atol=0.05, rtol=0)


def test_frames_are_matched_each_by_itself() -> None:
    wanted, frames = colour.colours_of(image(5)[0]), image(9, count=4)
    together = colour.matched(frames, wanted)
    for number in range(4):
        assert torch.equal(colour.matched(frames[number : number + 1], wanted)[0], together[number])


# Decoding


@pytest.fixture(scope="module")
def video_pipeline(drawn_video_pipeline: Any) -> Any:
    return drawn_video_pipeline


@pytest.fixture(scope="module")
def latents(video_pipeline: Any) -> torch.Tensor:
    channels = video_pipeline.autoencoder.config.z_dim
    return torch.randn(2, 1, channels, 5, 4, 6, generator=torch.Generator().manual_seed(4))


def streamed(autoencoder: Any, latents: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return torch.cat(list(decoded(autoencoder, latents)))


def test_latent_by_latent_equals_all_at_once(video_pipeline: Any, latents: torch.Tensor) -> None:
    vae = video_pipeline.autoencoder
    with torch.inference_mode():
        at_once = vae.decode(LatentScale(vae).from_unit(latents[0])).sample[0].transpose(0, 1)
        groups = list(decoded(vae, latents[0]))
    assert [len(group) for group in groups] == [1, 4, 4, 4, 4]
    assert torch.equal(torch.cat(groups), at_once.clamp(-1, 1))


def test_two_decodes_at_once_do_not_disturb_each_other(video_pipeline: Any, latents: torch.Tensor) -> None:
    vae = video_pipeline.autoencoder
    alone = [streamed(vae, one) for one in latents]
    assert not torch.equal(*alone)
    with torch.inference_mode():
        groups = list(zip_longest(*(decoded(vae, one) for one in latents)))
    for number in range(2):
        assert torch.equal(torch.cat([group[number] for group in groups]), alone[number])


def test_an_encoding_within_a_decode_changes_nothing(video_pipeline: Any, latents: torch.Tensor) -> None:
    vae = video_pipeline.autoencoder
    alone, kept = streamed(vae, latents[0]), []
    with torch.inference_mode():
        for group in decoded(vae, latents[0]):
            kept.append(group)
            encoded(vae, group[:1].unsqueeze(2))
    assert torch.equal(torch.cat(kept), alone)


@FEW
@given(
    st.lists(st.floats(-3, 3), min_size=4, max_size=4), st.lists(st.floats(0.1, 4), min_size=4, max_size=4)
)
def test_latents_are_scaled_by_channel_and_back(mean: list[float], deviation: list[float]) -> None:
    scale = LatentScale(SimpleNamespace(config=SimpleNamespace(latents_mean=mean, latents_std=deviation)))
    values = torch.randn(1, 4, 2, 3, 3)
    torch.testing.assert_close(scale.to_unit(scale.from_unit(values)), values, atol=1e-4, rtol=1e-4)
    own = torch.tensor(mean).view(1, 4, 1, 1, 1) + torch.tensor(deviation).view(1, 4, 1, 1, 1)
    torch.testing.assert_close(scale.to_unit(own), torch.ones(1, 4, 1, 1, 1), atol=1e-4, rtol=1e-4)
