"""The whole way from a picture and a voice to frames, with small drawn weights at 64 x 64, on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from spoken import Spoken, spoken

from stoker.models.talking_video import pipeline
from stoker.models.talking_video.chunks import ChunkShape, count, plan, video_frames
from stoker.models.talking_video.pipeline import Step, chunk_frames, see, talk
from stoker.models.talking_video.profiles import PROFILES, UNWANTED
from stoker.models.talking_video.sampling import Stopped
from stoker.models.talking_video.schedule import Guidance
from stoker.models.talking_video.speech import PER_FRAME, EncodedSpeech, Samples, Stretch, TwoVoices

SIDE = 64
PROFILE = PROFILES["tiny"]
STEP = PROFILE.shape.step
LONG = 17 + 2 * STEP
"""Three chunks."""


@pytest.fixture(scope="module")
def talker(drawn_talker: Any) -> Any:
    return drawn_talker


@pytest.fixture(scope="module")
def scene(talker: Any) -> Any:
    rows = torch.linspace(-0.8, 0.8, SIDE)
    picture = torch.stack([rows.expand(SIDE, SIDE), rows.expand(SIDE, SIDE).T, rows.outer(rows)])
    return see(talker, "somebody speaks", picture)


@pytest.fixture(scope="module")
def speech(talker: Any) -> Spoken:
    return spoken(talker, LONG)


def shot(talker: Any, scene: Any, speech: Any, seed: int = 1, profile: Any = PROFILE) -> torch.Tensor:
    pieces = list(talk(talker, scene, speech, profile, "480p", seed, lambda step: True))
    ends = [piece.first + len(piece.pixels) for piece in pieces]
    assert [piece.first for piece in pieces] == [0, *ends[:-1]], "in order, without a gap"
    return torch.cat([piece.pixels for piece in pieces])


@pytest.fixture(scope="module")
def video(talker: Any, scene: Any, speech: Spoken) -> torch.Tensor:
    return shot(talker, scene, speech)


def test_every_chunk_differs_and_the_voice_moves_it(video: torch.Tensor) -> None:
    assert video.shape == (LONG, 3, SIDE, SIDE)
    assert video.abs().max() <= 1.0
    moves = (video[1:] - video[:-1]).abs().mean((1, 2, 3))
    assert moves.min() > 1e-4


def test_the_same_seed_gives_the_same_bytes(
    talker: Any, scene: Any, speech: Spoken, video: torch.Tensor
) -> None:
    torch.manual_seed(99)  # nobody else's numbers matter
    assert torch.equal(shot(talker, scene, speech), video)


def test_another_seed_gives_another_video(
    talker: Any, scene: Any, speech: Spoken, video: torch.Tensor
) -> None:
    short = Spoken(speech.values[:9])
    first, second = (shot(talker, scene, short, seed) for seed in (1, 2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_chunk_made_alone_equals_that_of_the_whole(
    talker: Any, scene: Any, speech: Spoken, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[int, Any] = {}
    made: dict[int, list[torch.Tensor]] = {}

    def noting(*arguments: Any) -> Iterator[Any]:
        given[arguments[3].index] = arguments[4]
        for frames, shown in chunk_frames(*arguments):
            made.setdefault(arguments[3].index, []).append(frames)
            yield frames, shown

    monkeypatch.setattr(pipeline, "chunk_frames", noting)
    shot(talker, scene, speech)
    before = None if index == 0 else torch.cat(made[index - 1])[-PROFILE.shape.motion :]
    assert before is None or torch.equal(given[index], before)
    chunk = list(plan(LONG, PROFILE.shape))[index]
    alone = chunk_frames(talker, scene, speech, chunk, before, PROFILE, "480p", 1, lambda step: True)
    assert torch.equal(torch.cat([frames for frames, _ in alone]), torch.cat(made[index]))


def test_what_is_said_later_changes_nothing_earlier(
    talker: Any, scene: Any, speech: Spoken, video: torch.Tensor
) -> None:
    """Frames that only the last chunk hears: beyond the window of the one before."""
    heard_before = list(plan(LONG, PROFILE.shape))[1].given.stop + talker.network.config.audio_window // 2
    other = speech.values.clone()
    other[heard_before:] *= -1
    changed = (shot(talker, scene, Spoken(other)) != video).flatten(1).any(1)
    last = list(plan(LONG, PROFILE.shape))[2].given
    assert not changed[: last.start].any()
    assert changed[last.start :].any()
    assert changed[-1]


def encoded(talker: Any, samples: np.ndarray, frames: int, stretch: Stretch) -> EncodedSpeech:
    # The level and the offset are given, not measured: else a louder end would be heard at the beginning.
    return EncodedSpeech(talker.speech_encoder, Samples(samples, 0.0, 0.3), frames, stretch)


def test_speech_that_is_played_backwards_late_changes_nothing_early(talker: Any, scene: Any) -> None:
    """From samples on: the encoder listens `ahead_s` forward, so that much less is safe."""
    stretch = Stretch(behind_s=0.4, ahead_s=0.08)
    generator = np.random.default_rng(3)
    samples = generator.normal(0, 0.3, LONG * PER_FRAME).astype(np.float32)
    _, second, last = plan(LONG, PROFILE.shape)
    turned = samples.copy()
    begin = (second.given.stop + 2 + 2) * PER_FRAME  # the window's half, and two frames of `ahead_s`
    turned[begin:] = turned[begin:][::-1]
    videos = [shot(talker, scene, encoded(talker, some, LONG, stretch)) for some in (samples, turned)]
    changed = (videos[0] != videos[1]).flatten(1).any(1)
    assert not changed[: last.given.start].any()
    assert changed[last.given.start :].any()


def test_an_audio_frame_reaches_the_latents_whose_windows_hold_it(
    talker: Any, scene: Any, speech: Spoken
) -> None:
    chunk = next(plan(LONG, PROFILE.shape))
    other = speech.values.clone()
    other[8] += 1.0
    before, after = (pipeline.voice_of(talker, each, chunk)[0] for each in (speech, Spoken(other)))
    changed = (before != after).flatten(2).any(2)[0].tolist()
    # Frames 6 to 10 have it in their windows; latent 2 stands for frames 5 to 8, latent 3 for 9 to 12.
    assert changed == [False, False, True, True, False]


@pytest.mark.parametrize("stop_at", [(0, 1), (1, 1), (2, 2)])
def test_a_cancel_within_a_chunk_ends_it_there(
    talker: Any, scene: Any, speech: Spoken, stop_at: tuple[int, int]
) -> None:
    told: list[tuple[int, int]] = []
    seen: set[int] = set()

    def on_step(step: Step) -> bool:
        told.append((step.chunk.index, step.number))
        return told[-1] != stop_at

    def watch() -> None:
        for frames in talk(talker, scene, speech, PROFILE, "480p", 1, on_step):
            seen.add(frames.chunk.index)

    with pytest.raises(Stopped):
        watch()
    assert told[-1] == stop_at
    assert len(told) == stop_at[0] * PROFILE.steps + stop_at[1], "no step after it was told to stop"
    assert seen == set(range(stop_at[0])), "nothing of the stopped chunk is shown"


def test_a_cancel_within_a_step_ends_it_before_the_next_block(
    talker: Any, scene: Any, speech: Spoken
) -> None:
    told: list[Step] = []
    blocks = len(talker.network.blocks)
    left = blocks + 1

    def go_on() -> bool:
        nonlocal left
        left -= 1
        return left > 0

    entered: list[int] = []
    hook = talker.network.blocks[0].register_forward_pre_hook(lambda *given: entered.append(1))
    made = talk(talker, scene, speech, PROFILE, "480p", 1, lambda step: told.append(step) is None, go_on)
    try:
        with pytest.raises(Stopped):
            next(made)
    finally:
        hook.remove()
    assert left == 0, "asked before each block, and no more after it said no"
    assert len(entered) == 1, "the second forward was not begun"
    assert told == []


def test_the_first_frames_come_before_the_second_chunk_begins(
    talker: Any, scene: Any, speech: Spoken
) -> None:
    told: list[int] = []

    def on_step(step: Step) -> bool:
        told.append(step.chunk.index)
        return True

    made = talk(talker, scene, speech, PROFILE, "480p", 1, on_step)
    first = next(made)
    assert (first.first, len(first.pixels)) == (0, 1), "the first latent is one frame"
    assert told == [0] * PROFILE.steps
    shown = 1
    while shown < PROFILE.shape.frames:
        shown += len(next(made).pixels)
        assert set(told) == {0}
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
def test_frames_are_counted_to_the_last(
    talker: Any, samples: int, rate: int, frames: int, whole_tail: bool
) -> None:
    """At 16 x 16 and one step of one forward: here only the number matters."""
    quick = replace(
        PROFILE, steps=1, guidance=Guidance(1.0, 1.0), shape=ChunkShape(17, 5, whole_tail=whole_tail)
    )
    tiny = see(talker, "", torch.linspace(-1, 1, 3 * 16 * 16).reshape(3, 16, 16))
    assert video_frames(samples, rate) == frames
    out = shot(talker, tiny, spoken(talker, frames), profile=quick)
    assert out.shape == (frames, 3, 16, 16)


def test_two_speakers_are_heard_where_their_masks_are(talker: Any, scene: Any, speech: Spoken) -> None:
    """Nothing here is trained, so only that each voice reaches the video, and where they stand, is seen."""
    masks = torch.zeros(2, SIDE, SIDE)
    masks[0, :, : SIDE // 2] = masks[1, :, SIDE // 2 :] = 1.0
    first, second = Spoken(speech.values[:5]), Spoken(speech.values[5:10])
    two = replace(scene, masks=pipeline.token_masks(masks), stills={})
    turned = replace(scene, masks=pipeline.token_masks(masks.flip(0)), stills={})
    assert pipeline.token_masks(masks).sum(1).tolist() == [8.0, 8.0, 0.0]
    (chunk,) = plan(5, PROFILE.shape)
    heard, silent = pipeline.voice_of(talker, TwoVoices(first, second), chunk)
    assert heard.shape[2] == 2 * silent.shape[2] == 2 * talker.network.config.audio_tokens
    alone = [pipeline.voice_of(talker, voice, chunk)[0] for voice in (first, second)]
    assert torch.equal(heard, torch.cat(alone, dim=2))
    shown = shot(talker, two, TwoVoices(first, second))
    assert torch.equal(shown, shot(talker, two, TwoVoices(first, second)))
    for other_scene, voices in (
        (two, TwoVoices(first, first)),
        (two, TwoVoices(second, second)),
        (turned, TwoVoices(first, second)),
    ):
        assert not torch.equal(shown, shot(talker, other_scene, voices))


def test_without_a_prompt_it_is_told_what_is_unwanted(talker: Any, scene: Any) -> None:
    said, unwanted, nothing = pipeline.words_of(talker, ["somebody speaks", UNWANTED, ""])
    assert torch.equal(scene.text, said)
    assert torch.equal(scene.no_text, unwanted)
    assert not torch.equal(unwanted, nothing)


def test_white_space_and_entities_of_a_prompt_change_nothing(talker: Any) -> None:
    plain, other, more = pipeline.words_of(
        talker, ["Tom & Ann talk", "  Tom &amp; Ann\n\ttalk ", "Tom &amp;amp; Ann talk"]
    )
    assert torch.equal(plain, other)
    assert torch.equal(plain, more)


def test_voices_and_masks_must_agree(talker: Any, scene: Any, speech: Spoken) -> None:
    short, longer = Spoken(speech.values[:5]), Spoken(speech.values[:6])
    with pytest.raises(ValueError, match="5 and 6 frames"):
        TwoVoices(short, longer)
    with pytest.raises(ValueError, match="two voices need the masks"):
        shot(talker, replace(scene, masks=None), TwoVoices(short, short))
    with pytest.raises(ValueError, match="one voice none"):
        shot(talker, replace(scene, masks=torch.zeros(3, 16)), short)


def test_steps_and_chunks_are_told(talker: Any, scene: Any, speech: Spoken) -> None:
    told: list[tuple[int, int, int]] = []

    def on_step(step: Step) -> bool:
        told.append((step.chunk.index, step.number, step.of))
        return True

    list(talk(talker, scene, speech, PROFILE, "720p", 1, on_step))
    chunks = count(LONG, PROFILE.shape)
    assert told == [(chunk, step, 2) for chunk in range(chunks) for step in (1, 2)]
