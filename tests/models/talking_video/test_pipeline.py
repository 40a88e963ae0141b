"""The whole way from an image and a voice to frames, with small drawn weights at 64 x 64, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from stoker.models.talking_video import pipeline
from stoker.models.talking_video.audio.speech import PER_FRAME, EncodedSpeech, Samples, TwoSpeakers
from stoker.models.talking_video.audio.stretches import Stretches
from stoker.models.talking_video.pipeline import Step, chunk_frames, encode_scene, generate
from stoker.models.talking_video.sampling.chunks import FPS, ChunkShape, count, plan, video_frames
from stoker.models.talking_video.sampling.sampling import Stopped
from stoker.models.talking_video.sampling.schedule import Guidance
from stoker.models.talking_video.sampling.settings import SETTINGS, UNWANTED
from stoker.models.weights import alignment
from tests.models.in_full import IN_FULL
from tests.models.talking_video.spoken import Spoken, spoken

SIDE = 64
PROFILE = SETTINGS["tiny"]
STEP = PROFILE.shape.step
LONG = 17 + 2 * STEP
"""Three chunks."""


@pytest.fixture(scope="module")
def video_pipeline(drawn_video_pipeline: Any) -> Any:
    return drawn_video_pipeline


@pytest.fixture(scope="module")
def scene(video_pipeline: Any) -> Any:
    rows = torch.linspace(-0.8, 0.8, SIDE)
    image = torch.stack([rows.expand(SIDE, SIDE), rows.expand(SIDE, SIDE).T, rows.outer(rows)])
    return encode_scene(video_pipeline, "somebody speaks", image)


@pytest.fixture(scope="module")
def speech(video_pipeline: Any) -> Spoken:
    return spoken(video_pipeline, LONG)


def test_every_weight_lies_at_a_boundary(video_pipeline: Any) -> None:
    for network in video_pipeline.networks():
        for weight in (*network.parameters(), *network.buffers()):
            assert alignment.is_aligned(weight)


def shot(video_pipeline: Any, scene: Any, speech: Any, seed: int = 1, profile: Any = PROFILE) -> torch.Tensor:
    groups = list(generate(video_pipeline, scene, speech, profile, "480p", seed, lambda step: True))
    ends = [group.first + len(group.pixels) for group in groups]
    assert [group.first for group in groups] == [0, *ends[:-1]], "in order, without a gap"
    return torch.cat([group.pixels for group in groups])


@pytest.fixture(scope="module")
def video(video_pipeline: Any, scene: Any, speech: Spoken) -> torch.Tensor:
    return shot(video_pipeline, scene, speech)


def test_every_chunk_differs_and_depends_on_the_audio(video: torch.Tensor) -> None:
    assert video.shape == (LONG, 3, SIDE, SIDE)
    assert video.abs().max() <= 1.0
    moves = (video[1:] - video[:-1]).abs().mean((1, 2, 3))
    assert moves.min() > 1e-4


def test_the_same_seed_gives_the_same_bytes(
    video_pipeline: Any, scene: Any, speech: Spoken, video: torch.Tensor
) -> None:
    torch.manual_seed(99)  # nobody else's numbers matter
    assert torch.equal(shot(video_pipeline, scene, speech), video)


def test_another_seed_gives_another_video(
    video_pipeline: Any, scene: Any, speech: Spoken, video: torch.Tensor
) -> None:
    short = Spoken(speech.values[:9])
    first, second = (shot(video_pipeline, scene, short, seed) for seed in (1, 2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("index", [1, *(pytest.param(one, marks=IN_FULL) for one in (0, 2))])
def test_a_chunk_made_alone_equals_that_of_the_whole(
    video_pipeline: Any, scene: Any, speech: Spoken, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    features: dict[int, Any] = {}
    made: dict[int, list[torch.Tensor]] = {}

    def noting(*arguments: Any) -> Iterator[Any]:
        features[arguments[3].index] = arguments[10]
        for frames, shown in chunk_frames(*arguments):
            made.setdefault(arguments[3].index, []).append(frames)
            yield frames, shown

    monkeypatch.setattr(pipeline, "chunk_frames", noting)
    shot(video_pipeline, scene, speech)
    before = None if index == 0 else torch.cat(made[index - 1])[-PROFILE.shape.motion :]
    if before is not None:
        with torch.inference_mode():
            assert torch.equal(features[index], pipeline._known(video_pipeline, scene, before))
    chunk = list(plan(LONG, PROFILE.shape))[index]
    alone = chunk_frames(video_pipeline, scene, speech, chunk, before, PROFILE, "480p", 1, lambda step: True)
    assert torch.equal(torch.cat([frames for frames, _ in alone]), torch.cat(made[index]))


def test_a_video_that_goes_on_at_a_chunk_is_that_of_the_whole(
    video_pipeline: Any, scene: Any, speech: Spoken, video: torch.Tensor
) -> None:
    def run(begun: int = 0, known: Any = None) -> list[Any]:
        arguments = (speech, PROFILE, "480p", 1, lambda step: True, lambda: True, begun, known)
        return list(generate(video_pipeline, scene, *arguments))

    ends = [(group.first + len(group.pixels), group.known) for group in run() if group.known is not None]
    assert [frame for frame, _ in ends] == [chunk.output.stop for chunk in plan(LONG, PROFILE.shape)][:-1]
    for frame, known in ends:
        rest = torch.cat([group.pixels for group in run(frame, known)])
        assert torch.equal(rest, video[frame:])


def test_later_audio_changes_nothing_earlier(
    video_pipeline: Any, scene: Any, speech: Spoken, video: torch.Tensor
) -> None:
    """Frames that only the last chunk hears: beyond the window of the one before."""
    encoded_before = (
        list(plan(LONG, PROFILE.shape))[1].output.stop + video_pipeline.network.config.audio_window // 2
    )
    other = speech.values.clone()
    other[encoded_before:] *= -1
    changed = (shot(video_pipeline, scene, Spoken(other)) != video).flatten(1).any(1)
    last = list(plan(LONG, PROFILE.shape))[2].output
    assert not changed[: last.start].any()
    assert changed[last.start :].any()
    assert changed[-1]


def encoded(video_pipeline: Any, samples: np.ndarray, frames: int, stretches: Stretches) -> EncodedSpeech:
    # The level and the offset are given, not measured: else a louder end would change the beginning.
    return EncodedSpeech(video_pipeline.speech_encoder, Samples(samples, 0.0, 0.3), frames, stretches)


@pytest.mark.slow
@pytest.mark.numbers
def test_speech_that_is_played_backwards_late_changes_nothing_early(video_pipeline: Any, scene: Any) -> None:
    """From samples on: frames 16 to 32 are encoded with two frames more, and the second chunk's
    last window ends there."""
    stretches = Stretches(whole_s=28 / FPS, behind_s=10 / FPS, ahead_s=2 / FPS)
    generator = np.random.default_rng(3)
    samples = generator.normal(0, 0.3, LONG * PER_FRAME).astype(np.float32)
    _, second, last = plan(LONG, PROFILE.shape)
    assert second.output.stop + 2 <= 32
    turned = samples.copy()
    begin = (32 + 2) * PER_FRAME
    turned[begin:] = turned[begin:][::-1]
    videos = [
        shot(video_pipeline, scene, encoded(video_pipeline, some, LONG, stretches))
        for some in (samples, turned)
    ]
    changed = (videos[0] != videos[1]).flatten(1).any(1)
    assert not changed[: last.output.start].any()
    assert changed[last.output.start :].any()


def test_an_audio_frame_reaches_the_latents_whose_windows_hold_it(
    video_pipeline: Any, scene: Any, speech: Spoken
) -> None:
    chunk = next(plan(LONG, PROFILE.shape))
    other = speech.values.clone()
    other[8] += 1.0
    before, after = (
        pipeline.audio_tokens(video_pipeline, each, chunk)[0] for each in (speech, Spoken(other))
    )
    changed = (before != after).flatten(2).any(2)[0].tolist()
    # Frames 6 to 10 have it in their windows; latent 2 stands for frames 5 to 8, latent 3 for 9 to 12.
    assert changed == [False, False, True, True, False]


@pytest.mark.parametrize("stop_at", [(0, 1), (1, 1), (2, 2)])
def test_a_cancel_within_a_chunk_ends_it_there(
    video_pipeline: Any, scene: Any, speech: Spoken, stop_at: tuple[int, int]
) -> None:
    reported: list[tuple[int, int]] = []
    chunks_done: set[int] = set()

    def on_step(step: Step) -> bool:
        reported.append((step.chunk.index, step.number))
        return reported[-1] != stop_at

    def watch() -> None:
        for frames in generate(video_pipeline, scene, speech, PROFILE, "480p", 1, on_step):
            chunks_done.add(frames.chunk.index)

    with pytest.raises(Stopped):
        watch()
    assert reported[-1] == stop_at
    assert len(reported) == stop_at[0] * PROFILE.steps + stop_at[1], "no step after the stop"
    assert chunks_done == set(range(stop_at[0])), "nothing of the stopped chunk is shown"


def test_a_cancel_within_a_step_ends_it_before_the_next_block(
    video_pipeline: Any, scene: Any, speech: Spoken
) -> None:
    reported: list[Step] = []
    blocks = len(video_pipeline.network.blocks)
    left = blocks + 1

    def go_on() -> bool:
        nonlocal left
        left -= 1
        return left > 0

    entered: list[int] = []
    hook = video_pipeline.network.blocks[0].register_forward_pre_hook(lambda *features: entered.append(1))
    made = generate(
        video_pipeline, scene, speech, PROFILE, "480p", 1, lambda step: reported.append(step) is None, go_on
    )
    try:
        with pytest.raises(Stopped):
            next(made)
    finally:
        hook.remove()
    assert left == 0, "checked before each block, and not after the first refusal"
    assert len(entered) == 1, "the second forward was not begun"
    assert reported == []


def test_the_first_frames_come_before_the_second_chunk_begins(
    video_pipeline: Any, scene: Any, speech: Spoken
) -> None:
    reported: list[int] = []

    def on_step(step: Step) -> bool:
        reported.append(step.chunk.index)
        return True

    made = generate(video_pipeline, scene, speech, PROFILE, "480p", 1, on_step)
    first = next(made)
    assert (first.first, len(first.pixels)) == (0, 1), "the first latent is one frame"
    assert reported == [0] * PROFILE.steps
    shown = 1
    while shown < PROFILE.shape.frames:
        shown += len(next(made).pixels)
        assert set(reported) == {0}
    made.close()


@pytest.mark.parametrize(
    ("samples", "rate", "frames"),
    [
        (1_764, 44_100, 1),
        (3_200, 16_000, 5),
        (8_000 * 2 // 5 + 1, 8_000, 10),
        (16_000 * 16 // 25, 16_000, 16),
        (44_100 * 17 // 25, 44_100, 17),
        (44_100 * 18 // 25, 44_100, 18),
        (48_000 * 29 // 25, 48_000, 29),
        (48_000 * 29 // 25 - 1, 48_000, 28),
        (22_050 * 30 // 25, 22_050, 30),
    ],
)
@pytest.mark.parametrize("whole_tail", [False, True])
@pytest.mark.slow
@pytest.mark.numbers
def test_frames_are_counted_to_the_last(
    video_pipeline: Any, samples: int, rate: int, frames: int, whole_tail: bool
) -> None:
    """At 16 x 16 and one step of one forward: here only the number matters."""
    quick = replace(
        PROFILE, steps=1, guidance=Guidance(1.0, 1.0), shape=ChunkShape(17, 5, whole_tail=whole_tail)
    )
    tiny = encode_scene(video_pipeline, "", torch.linspace(-1, 1, 3 * 16 * 16).reshape(3, 16, 16))
    assert video_frames(samples, rate) == frames
    out = shot(video_pipeline, tiny, spoken(video_pipeline, frames), profile=quick)
    assert out.shape == (frames, 3, 16, 16)


def test_the_audio_of_two_speakers_acts_where_their_masks_are(
    video_pipeline: Any, scene: Any, speech: Spoken
) -> None:
    """Nothing here is trained, so only that each voice reaches the video, and where they stand, is seen."""
    masks = torch.zeros(2, SIDE, SIDE)
    masks[0, :, : SIDE // 2] = masks[1, :, SIDE // 2 :] = 1.0
    first, second = Spoken(speech.values[:5]), Spoken(speech.values[5:10])
    two = replace(scene, masks=pipeline.token_masks(masks), stills={})
    turned = replace(scene, masks=pipeline.token_masks(masks.flip(0)), stills={})
    assert pipeline.token_masks(masks).sum(1).tolist() == [8.0, 8.0, 0.0]
    (chunk,) = plan(5, PROFILE.shape)
    projected, silent = pipeline.audio_tokens(video_pipeline, TwoSpeakers(first, second), chunk)
    assert projected.shape[2] == 2 * silent.shape[2] == 2 * video_pipeline.network.config.audio_tokens
    alone = [pipeline.audio_tokens(video_pipeline, speaker, chunk)[0] for speaker in (first, second)]
    assert torch.equal(projected, torch.cat(alone, dim=2))
    shown = shot(video_pipeline, two, TwoSpeakers(first, second))
    assert torch.equal(shown, shot(video_pipeline, two, TwoSpeakers(first, second)))
    for other_scene, speakers in (
        (two, TwoSpeakers(first, first)),
        (two, TwoSpeakers(second, second)),
        (turned, TwoSpeakers(first, second)),
    ):
        assert not torch.equal(shown, shot(video_pipeline, other_scene, speakers))


def test_forwards_without_a_prompt_get_the_negative_prompt(video_pipeline: Any, scene: Any) -> None:
    prompt, unwanted, nothing = pipeline.encode_prompts(video_pipeline, ["somebody speaks", UNWANTED, ""])
    assert torch.equal(scene.text, prompt)
    assert torch.equal(scene.no_text, unwanted)
    assert not torch.equal(unwanted, nothing)


def test_white_space_and_entities_of_a_prompt_change_nothing(video_pipeline: Any) -> None:
    plain, other, more = pipeline.encode_prompts(
        video_pipeline, ["Tom & Ann talk", "  Tom &amp; Ann\n\ttalk ", "Tom &amp;amp; Ann talk"]
    )
    assert torch.equal(plain, other)
    assert torch.equal(plain, more)


def test_speakers_and_masks_must_agree(video_pipeline: Any, scene: Any, speech: Spoken) -> None:
    short, longer = Spoken(speech.values[:5]), Spoken(speech.values[:6])
    with pytest.raises(ValueError, match="5 and 6 frames"):
        TwoSpeakers(short, longer)
    with pytest.raises(ValueError, match="the masks of two speakers if and only if"):
        shot(video_pipeline, replace(scene, masks=None), TwoSpeakers(short, short))
    with pytest.raises(ValueError, match="if and only if there is the audio of two"):
        shot(video_pipeline, replace(scene, masks=torch.zeros(3, 16)), short)


def test_steps_and_chunks_are_reported(video_pipeline: Any, scene: Any, speech: Spoken) -> None:
    reported: list[tuple[int, int, int]] = []

    def on_step(step: Step) -> bool:
        reported.append((step.chunk.index, step.number, step.of))
        return True

    list(generate(video_pipeline, scene, speech, PROFILE, "720p", 1, on_step))
    chunks = count(LONG, PROFILE.shape)
    assert reported == [(chunk, step, 2) for chunk in range(chunks) for step in (1, 2)]
