"""The video model with its profiles: on talk-tiny, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.models.interface import ImageDefaults
from stoker.models.speed_ups import block_compile, layers, profiles, step_caches
from stoker.models.speed_ups.speed_up import Loaded
from stoker.models.talking_video import pipeline as video
from stoker.models.talking_video.infinitetalk import InfiniteTalk
from stoker.models.talking_video.sampling.sampling import Stopped
from tests.models.talking_video.spoken import Spoken, spoken

SIDE, FRAMES, STEPS = 64, 21, 10


def talk(folder: Path, profile: str = "exact") -> InfiniteTalk:
    """With so many steps that some can be left out."""
    made = InfiniteTalk(folder, "cpu", "tiny", profile)
    made.settings = replace(made.settings, steps=STEPS)
    made.warm([(256, 256)], ImageDefaults(steps=1))
    return made


def shot(made: InfiniteTalk, stop_at: int = 0) -> Any:
    """The frames of two chunks; ends after a number of steps if one is given."""
    frame = torch.linspace(-0.8, 0.8, SIDE).expand(3, SIDE, SIDE)
    scene = video.encode_scene(made.parts, "somebody speaks", frame, texts=made.encode_prompt)
    speech: Spoken = spoken(made.parts, FRAMES)

    def on_step(step: video.Step) -> bool:
        return step.number != stop_at

    groups = video.generate(made.parts, scene, speech, made.settings, "480p", 1, on_step)
    return torch.cat([group.pixels for group in groups])


@pytest.fixture(scope="module")
def exact(talk_tiny: Path) -> Any:
    torch.set_num_threads(1)
    return shot(talk(talk_tiny))


def loaded(made: InfiniteTalk, **more: Any) -> Loaded:
    return Loaded(made.parts.network, None, "cpu", steps=STEPS, **more)


@pytest.mark.parametrize("profile", ["fast", "low-memory"])
@pytest.mark.slow
@pytest.mark.numbers
def test_every_profile_runs_without_a_gpu(talk_tiny: Path, exact: Any, profile: str) -> None:
    made = talk(talk_tiny, profile)
    assert (
        set(made.speed_ups)
        == {
            "fast": {"prompt-cache", "first-block-cache"},
            "low-memory": {"planned-placement", "prompt-cache"},
        }[profile]
    )
    first = shot(made)
    assert torch.equal(shot(made), first)
    assert (first - exact).abs().mean() < 0.5 * exact.std()


@pytest.mark.slow
@pytest.mark.numbers
def test_what_is_exact_is_what_it_is_without_speed_ups(talk_tiny: Path, exact: Any) -> None:
    plain = InfiniteTalk(talk_tiny, "cpu", "tiny")
    plain.settings = replace(plain.settings, steps=STEPS)
    assert plain.speed_ups == {}
    assert torch.equal(shot(plain), exact)


def test_weights_in_float8_are_a_quarter_of_those_in_float32(talk_tiny: Path) -> None:
    small = talk(talk_tiny, "low-memory").parts.network.blocks[0].attn1.to_q.weight
    assert small.dtype is torch.float8_e4m3fn
    assert talk(talk_tiny).parts.network.blocks[0].attn1.to_q.weight.dtype is torch.float32


@pytest.mark.slow
@pytest.mark.numbers
def test_blocks_are_left_out_for_each_forward_by_itself_and_a_cancel_leaves_nothing(talk_tiny: Path) -> None:
    made = talk(talk_tiny)
    step_caches.first_block_cache(loaded(made))
    ran: list[int] = []
    last = made.parts.network.blocks[-1].audio_cross_attn
    last.register_forward_hook(lambda *_: ran.append(1))
    first = shot(made)
    assert 0 < len(ran) < 2 * STEPS * 3  # chunks, steps, forwards
    with pytest.raises(Stopped):
        shot(made, stop_at=3)
    assert torch.equal(shot(made), first)


def test_fused_projections_make_the_same_video(talk_tiny: Path, exact: Any) -> None:
    made = talk(talk_tiny)
    layers.fused_projections(loaded(made))
    assert (shot(made) - exact).abs().max() < 2 / 127.5


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.slow
@pytest.mark.numbers
def test_each_size_runs_once_before_the_first_job_but_for_refused_ones(
    talk_tiny: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """On what passes for a GPU: the network, unless compiling has run it, and both halves of the
    autoencoder."""
    made = InfiniteTalk(talk_tiny, "cpu", "tiny")
    applied = profiles.Applied({"block-compile": "on"} if compiled else {})
    monkeypatch.setattr(profiles, "apply", lambda names, loaded: applied)
    monkeypatch.setattr(Loaded, "on_gpu", True)
    made.settings = replace(made.settings, shrink=10)
    made.parts = replace(made.parts, refused={"720p": "it does not fit"})
    ran: list[tuple[str, int, int]] = []
    made.parts.network.register_forward_hook(
        lambda module, given, out: ran.append(("network", *(8 * side for side in given[0].shape[-2:])))
    )
    coded: list[tuple[int, int]] = []

    def code(autoencoder: Any, settings: Any, width: int, height: int, device: str) -> None:
        coded.append((width, height))
        video.code_once(autoencoder, settings, width, height, device)

    monkeypatch.setattr("stoker.models.talking_video.infinitetalk.code_once", code)
    made.warm([(640, 640), (960, 960), (640, 1280)], ImageDefaults(steps=1))
    assert coded == [(640, 1280), (640, 640)]
    assert ran == ([] if compiled else [("network", 128, 64), ("network", 64, 64)])


@pytest.mark.slow
@pytest.mark.numbers
def test_compiled_blocks_make_the_same_video_and_nothing_is_compiled_in_a_job(
    talk_tiny: Path, exact: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(1)
        return graph.forward

    monkeypatch.setattr(block_compile, "BACKEND", backend)
    made = talk(talk_tiny)
    torch._dynamo.reset()
    try:
        side = SIDE * made.settings.shrink
        examples = {"a": lambda: video.run_once(made.parts.network, made.settings, side, side)}
        block_compile.block_compile(loaded(made, examples=examples))
        compiled = len(graphs)
        with block_compile.settled(compiled=True):
            found = shot(made)
    finally:
        torch._dynamo.reset()
    assert len(graphs) == compiled > 0
    assert (found - exact).abs().max() < 2 / 127.5
