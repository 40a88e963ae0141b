"""What a pose changes in the image, and what it leaves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.drawing import Portrait, Pose
from stoker.models.talking_video.portrait.engine import TalkMini
from stoker.models.talking_video.portrait.geometry import measured


@pytest.fixture(scope="module")
def portrait(talk_mini: TalkMini, drawing: NDArray[np.uint8]) -> Portrait:
    found = talk_mini._finder.find(drawing)
    assert found is not None
    return Portrait(drawing, measured(found, drawing))


def drawn(portrait: Portrait, pose: Pose) -> NDArray[np.float32]:
    return (portrait.draw(pose).permute(1, 2, 0).numpy() + 1) * 127.5


def changed(frame: NDArray[np.float32], image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.abs(frame - image).max(axis=2) > 8


def test_the_pose_of_the_image_changes_nothing(portrait: Portrait, drawing: NDArray[np.uint8]) -> None:
    assert not changed(drawn(portrait, Pose()), drawing).any()


def test_an_open_mouth_changes_the_lower_face_only(portrait: Portrait, drawing: NDArray[np.uint8]) -> None:
    rows, columns = np.nonzero(changed(drawn(portrait, Pose(opening=1)), drawing))
    assert rows.min() > 355
    assert rows.max() < 600
    assert columns.min() > 190
    assert columns.max() < 450


def test_the_further_it_opens_the_more_of_the_inside_shows(portrait: Portrait) -> None:
    inside = [
        int((drawn(portrait, Pose(opening=opening))[380:500, 270:370].max(axis=2) < 110).sum())
        for opening in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    assert inside == sorted(inside)
    assert inside[-1] > inside[0] + 1000


def test_a_round_mouth_is_narrower_than_a_spread_one(portrait: Portrait) -> None:
    def width(pose: Pose) -> int:
        lips = drawn(portrait, pose)[395:460, 240:400]
        red = (lips[..., 0] - lips[..., 1] > 80) & (lips[..., 0] < 215)
        return int(np.ptp(np.nonzero(red.any(axis=0))[0]))

    assert width(Pose(0.4, -1.0)) < width(Pose(0.4)) - 8 < width(Pose(0.4, 1.0)) - 8


def test_closing_the_eyes_changes_them_only(portrait: Portrait, drawing: NDArray[np.uint8]) -> None:
    frame = drawn(portrait, Pose(closed=1))
    rows, _ = np.nonzero(changed(frame, drawing))
    assert 190 < rows.min() < rows.max() < 310
    white = (frame[245:300, 220:420].min(axis=2) > 235).sum()
    assert white < 0.8 * (drawing[245:300, 220:420].min(axis=2) > 235).sum()


def test_the_head_moves_and_the_edge_of_the_image_does_not(
    portrait: Portrait, drawing: NDArray[np.uint8]
) -> None:
    difference = changed(drawn(portrait, Pose(turn=0.014, right=0.012, down=0.01)), drawing)
    assert difference[100:520, 180:460].any()
    assert not difference[:, :4].any()
    assert not difference[:4].any()
