"""What must hold of the plan of a video. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

from hypothesis import strategies as st

from tests.models.talking_video.sampling.drawn import drawn

TOTALS = st.integers(1, 700)


@st.composite
def shapes(draw: Any) -> tuple[int, int, bool]:
    """Frames, motion, and whether the tail is whole."""
    latents = draw(st.integers(2, 21))
    motion = draw(st.integers(1, latents - 1))
    return 4 * latents - 3, 4 * motion - 3, draw(st.booleans())


def plan(m: Any, total: int, shape: tuple[int, int, bool]) -> list[Any]:
    made = list(islice(m.plan(total, m.ChunkShape(*shape)), total + 1))
    assert len(made) <= total, "it does not end"
    return made


@drawn(TOTALS, shapes())
def every_frame_is_output_once_and_in_order(m: Any, total: int, shape: Any) -> None:
    assert [frame for chunk in plan(m, total, shape) for frame in chunk.output] == list(range(total))


@drawn(TOTALS, shapes())
def a_chunk_holds_what_it_gives_out(m: Any, total: int, shape: Any) -> None:
    for chunk in plan(m, total, shape):
        assert chunk.new >= 1
        assert chunk.first + chunk.known == chunk.output.start
        assert chunk.output.stop <= chunk.first + chunk.frames


@drawn(TOTALS, shapes())
def frames_and_known_frames_are_4n_plus_1(m: Any, total: int, shape: Any) -> None:
    for chunk in plan(m, total, shape):
        assert chunk.frames % 4 == 1
        assert chunk.latents == (chunk.frames + 3) // 4
        assert chunk.known == (shape[1] if chunk.index else 0)


@drawn(TOTALS, shapes())
def the_known_frames_are_the_last_of_the_chunk_before(m: Any, total: int, shape: Any) -> None:
    """So the audio's index moves with the video's, and never drifts."""
    for before, after in pairwise(plan(m, total, shape)):
        assert after.index == before.index + 1
        assert after.first + after.known == before.first + before.frames
        assert before.new == before.frames - before.known, "only the last is cut"


@drawn(TOTALS, shapes())
def the_tail_is_as_long_as_it_must_be(m: Any, total: int, shape: Any) -> None:
    *others, last = plan(m, total, shape)
    frames, _, whole = shape
    assert all(chunk.frames == frames for chunk in others)
    assert last.frames <= frames
    beyond = last.first + last.frames - total
    assert (last.frames == frames and beyond < frames) if whole else 0 <= beyond < 4


@drawn(TOTALS, shapes())
def they_are_counted_without_making_them(m: Any, total: int, shape: Any) -> None:
    assert m.count(total, m.ChunkShape(*shape)) == len(plan(m, total, shape))


def the_published_shape_is_the_default(m: Any) -> None:
    shape = m.ChunkShape()
    assert (shape.frames, shape.motion, shape.step) == (81, 9, 72)
    assert [(c.first, c.known, c.new) for c in islice(m.plan(200), 9)] == [
        (0, 0, 81),
        (72, 9, 72),
        (144, 9, 47),
    ]


def a_shape_that_no_latents_fit_is_refused(m: Any) -> None:
    for wrong_shape in ((80, 9), (81, 8), (81, 81), (9, 17), (0, 1), (5, -3)):
        assert refused(m.ChunkShape, *wrong_shape), wrong_shape
    assert refused(next, m.plan(0))


def refused(call: Any, *arguments: Any) -> bool:
    try:
        call(*arguments)
    except ValueError:
        return True
    return False


@drawn(st.integers(0, 10**9), st.sampled_from([8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 192_000]))
def the_length_is_floored_exactly(m: Any, samples: int, rate: int) -> None:
    frames = m.video_frames(samples, rate)
    assert frames * rate <= samples * 25 < (frames + 1) * rate


def a_whole_number_of_frames_loses_none(m: Any) -> None:
    for rate in (8_000, 16_000, 22_050, 44_100, 48_000):
        for frames in range(1, 1500):
            assert m.video_frames(frames * rate // 25, rate) == frames
            assert m.video_frames(frames * rate // 25 - 1, rate) == frames - 1


@drawn(st.integers(0, 500), st.integers(1, 60))
def audio_beyond_the_end_is_played_backwards_and_on(m: Any, index: int, length: int) -> None:
    there = [*range(length), *reversed(range(length))]
    assert m.mirrored(index, length) == there[index % len(there)]


@drawn(st.integers(1, 1000))
def the_fitting_length_is_the_least(m: Any, frames: int) -> None:
    assert m.fitting(frames) == next(n for n in range(frames, frames + 4) if n % 4 == 1)
    assert m.fits_latents(frames) == (m.fitting(frames) == frames)


ALL = [
    every_frame_is_output_once_and_in_order,
    a_chunk_holds_what_it_gives_out,
    frames_and_known_frames_are_4n_plus_1,
    the_known_frames_are_the_last_of_the_chunk_before,
    the_tail_is_as_long_as_it_must_be,
    they_are_counted_without_making_them,
    the_published_shape_is_the_default,
    a_shape_that_no_latents_fit_is_refused,
    the_length_is_floored_exactly,
    a_whole_number_of_frames_loses_none,
    audio_beyond_the_end_is_played_backwards_and_on,
    the_fitting_length_is_the_least,
]

MUTANTS = [
    ("steps of whole chunks", "return self.frames - self.motion", "return self.frames"),
    ("known frames given out again", "range(self.first + self.known, ", "range(self.first, "),
    ("the tail is not cut", "new = min(frames - known, missing)", "new = frames - known"),
    ("the tail's known frames forgotten", "fitting(known + missing)", "fitting(missing)"),
    ("a whole tail of its own accord", "whole = shape.whole_tail or ", "whole = True or "),
    (
        "one chunk too many on the edge",
        "-(-(total - shape.frames) // shape.step))",
        "1 + (total - shape.frames) // shape.step)",
    ),
    ("the last chunk's audio drifts", "first + shape.step, shape.motion", "first + frames, shape.motion"),
    ("a float's seconds", "samples * FPS // rate", "int(samples / rate * FPS)"),
    ("the end is not repeated", "2 * length - 1 - index", "(2 * length - 2 - index) % length"),
    ("rounded down", "frames + (1 - frames) % STRIDE", "frames - (frames - 1) % STRIDE"),
    ("motion may be all", "if self.motion >= self.frames:", "if self.motion > self.frames:"),
]
