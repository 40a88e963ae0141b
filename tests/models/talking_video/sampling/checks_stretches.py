"""Properties of the stretches in which audio is encoded. Each check takes the module, so that mutants can be
checked too."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.models.talking_video.sampling.drawn import drawn

FRAMES = st.integers(1, 40_000)
PER_SECOND = 25


@st.composite
def lengths(draw: Any) -> tuple[float, float, float]:
    """The seconds that are encoded at once, behind and ahead, in whole frames."""
    behind, ahead, used = draw(st.integers(0, 300)), draw(st.integers(0, 100)), draw(st.integers(1, 500))
    whole, behind, ahead = ((behind + ahead + used) / PER_SECOND, behind / PER_SECOND, ahead / PER_SECOND)
    return whole, behind, ahead


@st.composite
def spans(draw: Any) -> tuple[int, int, int]:
    """The first and the last requested frame of some audio, and the number of its frames."""
    frames = draw(FRAMES)
    last = draw(st.just(frames) | st.integers(1, frames))
    return draw(st.integers(max(0, last - 2000), last - 1)), last, frames


def over(m: Any, lengths_s: Any, first: int, last: int, frames: int) -> list[Any]:
    made = list(islice(m.Stretches(*lengths_s).over(first, last, frames), last - first + 2))
    assert 1 <= len(made) <= last - first + 1, "none, or no end"
    return made


@drawn(lengths(), spans())
def every_requested_frame_is_used_once_and_in_order(m: Any, lengths_s: Any, span: Any) -> None:
    made = over(m, lengths_s, *span)
    assert made[0].first <= span[0] < made[0].last
    assert made[-1].first < span[1] <= made[-1].last
    assert all(before.last == after.first for before, after in pairwise(made))


@drawn(lengths(), spans())
def every_frame_is_encoded_with_its_surroundings(m: Any, lengths_s: Any, span: Any) -> None:
    _, behind, ahead = (round(one * PER_SECOND) for one in lengths_s)
    frames = span[2]
    for one in over(m, lengths_s, *span):
        assert one.first < one.last <= frames
        assert 0 <= one.begin <= max(0, one.first - behind)
        assert min(frames, one.last + ahead) <= one.end <= frames


@drawn(lengths(), spans())
def no_stretch_is_longer_than_allowed(m: Any, lengths_s: Any, span: Any) -> None:
    whole = round(lengths_s[0] * PER_SECOND)
    for one in over(m, lengths_s, *span):
        assert one.end - one.begin <= whole


@drawn(lengths(), spans())
def audio_that_fits_is_encoded_whole(m: Any, lengths_s: Any, span: Any) -> None:
    first, last, frames = span
    if frames <= round(lengths_s[0] * PER_SECOND):
        assert over(m, lengths_s, first, last, frames) == [m.Stretch(0, frames, 0, frames)]


@drawn(lengths(), spans())
def a_frames_stretch_depends_on_its_number_alone(m: Any, lengths_s: Any, span: Any) -> None:
    first, last, frames = span
    together = over(m, lengths_s, first, last, frames)
    assert over(m, lengths_s, first, first + 1, frames) == together[:1]
    assert over(m, lengths_s, last - 1, last, frames) == together[-1:]


def two_minutes_are_encoded_whole_and_longer_audio_with_ten_seconds_behind_and_three_ahead(m: Any) -> None:
    seconds = PER_SECOND
    assert list(m.DEFAULT.over(70, 90, 120 * seconds)) == [m.Stretch(0, 3000, 0, 3000)]
    first, second = m.DEFAULT.over(2674, 2676, 10 * 60 * seconds)
    assert first == m.Stretch(0, 107 * seconds, 0, 110 * seconds)
    assert second == m.Stretch(107 * seconds, 214 * seconds, 97 * seconds, 217 * seconds)


def a_stretch_without_a_used_frame_is_refused(m: Any) -> None:
    m.Stretches(13.04, 10.0, 3.0)
    with pytest.raises(ValueError, match=r"got 13 and 10 \+ 3"):
        m.Stretches(13.0, 10.0, 3.0)


ALL = [
    every_requested_frame_is_used_once_and_in_order,
    every_frame_is_encoded_with_its_surroundings,
    no_stretch_is_longer_than_allowed,
    audio_that_fits_is_encoded_whole,
    a_frames_stretch_depends_on_its_number_alone,
    two_minutes_are_encoded_whole_and_longer_audio_with_ten_seconds_behind_and_three_ahead,
    a_stretch_without_a_used_frame_is_refused,
]

MUTANTS = [
    (
        "audio of two minutes is cut",
        "frames <= round(self.whole_s * FPS)",
        "frames < round(self.whole_s * FPS)",
    ),
    ("one second ahead", "ahead_s: float = 3.0", "ahead_s: float = 1.0"),
    ("nothing ahead", "end + round(self.ahead_s * FPS)", "end"),
    ("nothing behind", "start - round(self.behind_s * FPS)", "start"),
    ("begins where it is asked to", "first - first % self.used_frames", "first"),
    ("beyond the end", "end = min(start + self.used_frames, frames)", "end = start + self.used_frames"),
    ("too long", "- round(self.behind_s * FPS) - round(self.ahead_s * FPS)", "- round(self.behind_s * FPS)"),
]
