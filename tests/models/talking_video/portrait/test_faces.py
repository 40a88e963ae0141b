"""Where the face is found, in pictures of several kinds, and what is measured of it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from stoker.models.talking_video.portrait.engine import TalkMini
from stoker.models.talking_video.portrait.geometry import measured
from stoker.models.talking_video.portrait.landmarks import (
    CHEEKS,
    CHIN,
    NOSE_TIP,
    UPPER_LIP,
    Face,
    FaceFinder,
    assumed_face,
)
from stoker.worker import HandlerError


def mouth_of(face: Face) -> tuple[float, float]:
    column, row = face.points[list(UPPER_LIP)].mean(axis=0)
    return float(column), float(row)


def test_a_photo(talk_mini: TalkMini, photo: NDArray[np.uint8]) -> None:
    face = talk_mini._finder.find(photo)
    assert face is not None
    assert face.side < 0.2
    assert mouth_of(face) == pytest.approx((305, 353), abs=12)


def test_a_drawing_whose_lips_are_found_by_their_dark_line(
    talk_mini: TalkMini, drawing: NDArray[np.uint8]
) -> None:
    face = talk_mini._finder.find(drawing)
    assert face is not None
    mouth = measured(face, drawing).mouth
    middle = mouth.reference.origin + mouth.reference.down * mouth.upper.over(np.zeros(1, np.float32))
    assert middle[0] == pytest.approx(320, abs=8)
    assert middle[1] == pytest.approx(414, abs=4)


@pytest.mark.parametrize(("shift", "size"), [((150, 60), 320), ((-40, 20), 420)])
def test_a_small_face_anywhere(
    talk_mini: TalkMini, photo: NDArray[np.uint8], shift: tuple[int, int], size: int
) -> None:
    from PIL import Image

    small = np.asarray(Image.fromarray(photo).resize((size, size)))
    wide = np.full((480, 832, 3), 128, np.uint8)
    left, top = (832 - size) // 2 + shift[0], (480 - size) // 2 + shift[1]
    wide[top : top + size, left : left + size] = small
    face = talk_mini._finder.find(wide)
    assert face is not None
    scale = size / 640
    assert mouth_of(face) == pytest.approx((left + 305 * scale, top + 353 * scale), abs=10)


def test_no_face_is_assumed_in_the_middle(talk_mini: TalkMini) -> None:
    empty = np.full((480, 640, 3), 90, np.uint8)
    assert talk_mini._finder.find(empty) is None
    face = assumed_face(empty)
    assert face.assumed
    assert face.side == pytest.approx(0, abs=1e-6)
    measures = measured(face, empty)
    assert 0.25 * 480 < measures.middle[1] < 0.75 * 480
    assert measures.mouth.width > 40
    assert face.points[CHIN, 1] < 480


def test_a_face_from_the_side_is_refused(
    talk_mini: TalkMini, photo: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = talk_mini._finder.find(photo)
    assert found is not None
    turned = found.points.copy()
    turned[NOSE_TIP] = turned[CHEEKS[0]] + (5, 0)
    monkeypatch.setattr(FaceFinder, "find", lambda *_: Face(turned))
    with pytest.raises(HandlerError, match="seen from the side"):
        talk_mini._face(photo, assumed=False)


def test_an_image_without_a_face_is_refused_unless_one_is_to_be_assumed(talk_mini: TalkMini) -> None:
    meadow = np.full((480, 640, 3), (90, 150, 60), np.uint8)
    with pytest.raises(HandlerError, match=r'no face was found in it.*"face": "assume"'):
        talk_mini._face(meadow, assumed=False)
    assert talk_mini._face(meadow, assumed=True).assumed


def face_of_one_colour(side: int, radius: int, *, smiles: bool) -> NDArray[np.uint8]:
    """A yellow disc with two eyes and a line, which the networks take for a face by its outline."""
    ink, image = (40, 30, 20), Image.new("RGB", (side, side), (255, 255, 255))
    pen, x, r = ImageDraw.Draw(image), side / 2, radius
    pen.ellipse((x - r, x - r, x + r, x + r), fill=(255, 210, 40), outline=ink, width=6)
    for eye in (x - 0.35 * r, x + 0.35 * r):
        pen.ellipse((eye - 0.1 * r, x - 0.44 * r, eye + 0.1 * r, x - 0.16 * r), fill=ink)
    if smiles:
        pen.arc((x - 0.6 * r, x - 0.5 * r, x + 0.6 * r, x + 0.6 * r), 20, 160, fill=ink, width=9)
    else:
        pen.line((x - 0.4 * r, x + 0.4 * r, x + 0.4 * r, x + 0.4 * r), fill=ink, width=9)
    return np.asarray(image)


@pytest.mark.parametrize(("side", "radius"), [(512, 190), (640, 120)])
def test_a_face_of_one_colour_whose_mouth_is_missed_is_none(
    talk_mini: TalkMini, side: int, radius: int
) -> None:
    """Its mouth would open above the drawn line."""
    smiley = face_of_one_colour(side, radius, smiles=True)
    with pytest.raises(HandlerError, match="no face was found in it"):
        talk_mini._face(smiley, assumed=False)
    assert talk_mini._face(smiley, assumed=True).assumed


def test_the_mouth_of_a_face_of_one_colour_is_its_line(talk_mini: TalkMini) -> None:
    plain = face_of_one_colour(512, 190, smiles=False)
    face = talk_mini._face(plain, assumed=False)
    mouth = measured(face, plain).mouth
    assert mouth.reference.origin == pytest.approx([256, 256 + 0.4 * 190], abs=8)
    assert mouth.marked
