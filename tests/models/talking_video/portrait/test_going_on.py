"""talk-mini goes on where an earlier attempt was: its frames are those of an unbroken run, 0 of 255."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stoker.models.interface import VideoParameters
from stoker.models.talking_video.portrait.engine import TalkMini
from stoker.models.talking_video.sampling.chunks import FPS
from tests.models.talking_video.portrait.test_speech import samples


@pytest.mark.slow
@pytest.mark.numbers
def test_the_frames_after_a_state_are_those_of_an_unbroken_run(talk_mini: TalkMini, drawing: Any) -> None:
    parameters = VideoParameters("a face", "480p", 3, drawing, samples("slt"), 2 * FPS + 7)
    whole = list(talk_mini.generate(parameters, lambda step: None, lambda: True))
    states = [(part.first + len(part.pixels), part.state) for part in whole if part.state is not None]
    assert [frame for frame, _ in states] == [FPS, 2 * FPS, 2 * FPS + 7]
    for frame, state in states[:-1]:
        assert state is not None
        rest = replace(parameters, begun=frame, state=state)
        again = list(talk_mini.generate(rest, lambda step: None, lambda: True))
        wanted = [part for part in whole if part.first >= frame]
        assert [part.first for part in again] == [part.first for part in wanted]
        for one, other in zip(again, wanted, strict=True):
            assert np.array_equal(one.pixels.numpy(), other.pixels.numpy())
