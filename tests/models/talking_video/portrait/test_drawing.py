"""What a pose changes in the image, and what it leaves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from stoker.models.talking_video.portrait.drawing import Portrait, Pose
from stoker.models.talking_video.portrait.engine import TalkMini
from stoker.models.talking_video.portrait.geometry import measured
from stoker.models.talking_video.portrait.landmarks import assumed_face


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


def test_the_drawn_inside_takes_the_place_of_an_open_mouth(talk_mini: TalkMini) -> None:
    """Half a disc, as the mouth of a laughing drawing: closed, nothing of it is left but a line."""
    ink, red, image = (40, 30, 20), (150, 20, 20), Image.new("RGB", (640, 640), (255, 255, 255))
    pen = ImageDraw.Draw(image)
    pen.ellipse((80, 80, 560, 560), fill=(255, 210, 40), outline=ink, width=6)
    for x in (240, 400):
        pen.ellipse((x - 10, 230, x + 10, 250), fill=ink)
    pen.chord((200, 248, 440, 464), 0, 180, fill=red, outline=ink, width=5)
    pixels = np.asarray(image)
    laughing = Portrait(pixels, measured(talk_mini._face(pixels, assumed=False), pixels))
    closed, opened = (drawn(laughing, Pose(opening=opening)) for opening in (0.0, 1.0))
    dark = closed[340:480, 180:460].sum(axis=2) < 300
    assert 100 < dark.any(axis=0).sum() < 280, "as wide as the mouth"
    assert dark.sum(axis=0).max() < 12, "a line"
    mouth = opened[340:480, 300:340].reshape(-1, 3)
    assert (np.abs(mouth - red).max(axis=1) > 8).all()
    assert (mouth.min(axis=1) > 180).any(), "teeth"


def test_an_open_mouth_changes_the_lower_face_only(portrait: Portrait, drawing: NDArray[np.uint8]) -> None:
    rows, columns = np.nonzero(changed(drawn(portrait, Pose(opening=1)), drawing))
    assert rows.min() > 355
    assert rows.max() < 600
    assert columns.min() > 190
    assert columns.max() < 450


def test_the_further_it_opens_the_more_of_the_inside_shows(portrait: Portrait) -> None:
    inside = [
        int(((mouth.max(axis=2) < 110) | (mouth.min(axis=2) > 178)).sum())
        for mouth in (
            drawn(portrait, Pose(opening=opening))[380:500, 270:370]
            for opening in (0.0, 0.25, 0.5, 0.75, 1.0)
        )
    ]
    assert inside == sorted(inside)
    assert inside[-1] > inside[0] + 1000


def test_a_round_mouth_is_narrower_than_a_spread_one(portrait: Portrait) -> None:
    def width(pose: Pose) -> int:
        lips = drawn(portrait, pose)[395:460, 240:400]
        red = (lips[..., 0] - lips[..., 1] > 80) & (lips[..., 0] < 215)
        return int(np.ptp(np.nonzero(red.any(axis=0))[0]))

    assert width(Pose(0.4, -1.0)) < width(Pose(0.4)) - 8 < width(Pose(0.4, 1.0)) - 8


def test_a_round_mouth_does_not_narrow_the_nose(portrait: Portrait, drawing: NDArray[np.uint8]) -> None:
    assert not changed(drawn(portrait, Pose(0.3, -1.0)), drawing)[310:365].any()


@pytest.mark.parametrize("opening", [0.25, 0.5, 0.75, 1.0])
def test_an_open_mouth_has_teeth_above_and_dark_below(portrait: Portrait, opening: float) -> None:
    """From the middle of the upper lip downwards; teeth end before the lower lip does."""
    column = drawn(portrait, Pose(opening))[395:480, 323:327].mean(axis=1)
    white = np.flatnonzero(column.min(axis=1) > 178)
    dark = np.flatnonzero(column.max(axis=1) < 90)
    assert len(white) >= 3
    assert len(dark) >= 2
    assert (np.diff(white) == 1).all()
    assert dark.max() > white.max()


@pytest.mark.parametrize("opening", [0.4, 0.7, 1.0])
def test_nothing_of_the_line_of_closed_lips_is_left_beside_an_open_mouth(
    portrait: Portrait, drawing: NDArray[np.uint8], opening: float
) -> None:
    """The demo's face has a brown line, from column 281 to 359, in lips from 271 to 369."""

    def brown(frame: NDArray[np.floating]) -> NDArray[np.bool_]:
        return np.abs(frame[395:480, 265:375] - (72, 48, 40)).max(axis=2) < 12

    assert brown(drawn(portrait, Pose(opening))).sum() < 0.08 * brown(drawing.astype(np.float32)).sum()


def test_the_mouth_is_as_wide_as_the_line_of_its_lips(portrait: Portrait) -> None:
    mouth = portrait._measures.mouth
    column = float(mouth.reference.origin[0])
    assert column + mouth.left == pytest.approx(281, abs=3)
    assert column + mouth.right == pytest.approx(359, abs=3)


@pytest.mark.parametrize("width", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("opening", [0.2, 0.6, 1.0])
def test_skin_is_stretched_and_never_folded(portrait: Portrait, opening: float, width: float) -> None:
    """The rows that a column looks up go down, but where the lips are: there the inside is drawn."""
    window = portrait._mouth_window()
    columns, rows = portrait._columns[window].copy(), portrait._rows[window].copy()
    at, inside, _ = portrait._mouth(Pose(opening, width), columns, rows)
    steps = np.diff(rows, axis=0)
    drawn_over = np.zeros(rows.shape, bool)
    drawn_over[at] = inside > 0
    assert steps[~(drawn_over[1:] | drawn_over[:-1])].min() > -0.3


def test_closing_the_eyes_changes_them_only(portrait: Portrait, drawing: NDArray[np.uint8]) -> None:
    rows, columns = np.nonzero(changed(drawn(portrait, Pose(closed=1)), drawing))
    assert 240 < rows.min() < rows.max() < 295
    assert 220 < columns.min() < columns.max() < 420


@pytest.mark.parametrize("kind", ["meadow", "noise", "outline", "eyes"])
def test_of_an_assumed_face_only_eyes_that_are_there_close(kind: str) -> None:
    """Those of `outline` are elsewhere than the assumed ones, which lie on the circle."""
    ink, image = (40, 30, 20), Image.new("RGB", (640, 640), (255, 210, 40))
    pen, half = ImageDraw.Draw(image), {"outline": 144, "eyes": 80}.get(kind)
    if half is not None:
        pen.ellipse((80, 80, 560, 560), outline=ink, width=14)
        pen.line((320 - half, 400, 320 + half, 400), fill=ink, width=8)
        for x in (240, 400):
            pen.ellipse((x - 16, 224, x + 16, 256), fill=ink)
    pixels = np.asarray(image)
    if kind == "noise":
        pixels = np.random.default_rng(1).integers(90, 160, pixels.shape, np.uint8)
    blinking = Portrait(pixels, measured(assumed_face(pixels), pixels))
    rows, columns = np.nonzero(changed(drawn(blinking, Pose(closed=1.0)), pixels))
    if kind != "eyes":
        assert len(rows) == 0
        return
    assert rows.min() > 200
    assert rows.max() < 280
    assert {int(column) // 320 for column in columns} == {0, 1}


def test_closed_lids_cover_the_eyes_of_a_drawing(portrait: Portrait) -> None:
    """First less and less of the white shows, then nothing of the eye; the lashes lie at its lower edge."""
    whites = []
    for closed in (0.0, 0.36, 0.72, 1.0):
        eyes = drawn(portrait, Pose(closed=closed))[245:300, 220:420]
        whites.append(int((eyes.min(axis=2) > 215).sum()))
    assert whites == sorted(whites, reverse=True)
    assert whites[-1] == 0
    assert not (np.abs(eyes - (60, 90, 70)).max(axis=2) < 20).any()
    rows, _ = np.nonzero(eyes.max(axis=2) < 150)
    assert 265 < rows.min() + 245 < rows.max() + 245 < 295


def test_closed_lids_of_a_photo_are_skin(talk_mini: TalkMini, photo: NDArray[np.uint8]) -> None:
    found = talk_mini._finder.find(photo)
    assert found is not None
    portrait = Portrait(photo, measured(found, photo))
    for eye in portrait._measures.eyes:
        across, parts = np.meshgrid(np.linspace(-0.3, 0.3, 13), np.linspace(0.15, 0.75, 9))
        u = (across * eye.width).astype(np.float32)
        v = eye.upper.over(u) + parts.astype(np.float32) * (eye.lower.over(u) - eye.upper.over(u))
        below = eye.reference.seen(photo, u, eye.lower.over(u) + np.float32(0.2 * eye.width))
        lids = eye.reference.seen(drawn(portrait, Pose(closed=1)).round().astype(np.uint8), u, v)
        skin = np.median(below.reshape(-1, 3), axis=0)
        assert np.abs(eye.reference.seen(photo, u, v) - skin).mean() > 50
        assert np.abs(lids - skin).mean() < 30


def test_the_head_moves_and_the_edge_of_the_image_does_not(
    portrait: Portrait, drawing: NDArray[np.uint8]
) -> None:
    difference = changed(drawn(portrait, Pose(turn=0.014, right=0.012, down=0.01)), drawing)
    assert difference[100:520, 180:460].any()
    assert not difference[:, :4].any()
    assert not difference[:4].any()
