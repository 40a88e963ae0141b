"""The caller's picture as a frame: turned as its EXIF says, in sRGB, opaque, cut to the shape of the video.

Its size is read from the header before any of it is decoded: a file of a kilobyte may claim a gigapixel.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, UnidentifiedImageError

from stoker.models.talking_video.limits import DEFAULT, Limits
from stoker.models.talking_video.sizes import Bucket, cover, nearest

__all__ = ["InvalidPicture", "cut", "opened"]

FORMATS: Final = ("PNG", "JPEG", "WEBP")
STILLS: Final = "MPO"
"""What Pillow calls a JPEG of a phone that holds another picture beside the first, such as its depth."""

BACKGROUND: Final = (255, 255, 255)
"""Behind what is transparent."""

ORIENTATION: Final = 0x0112
TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What brings a picture upright, by its EXIF's orientation."""

SRGB: Final = ImageCms.createProfile("sRGB")
GAMMA: Final = 1 / 2.2
"""Of sRGB, more or less. A PNG may say that its numbers go by another."""


class InvalidPicture(ValueError):
    """It cannot be used; the text says why, and what is allowed."""


def opened(path: Path, limits: Limits = DEFAULT) -> Image.Image:
    """RGB, whole and upright. Raises InvalidPicture."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            _check(image, limits)
            return _in_srgb(_upright(image))
    except UnidentifiedImageError:
        raise InvalidPicture("it is no png, jpeg or webp picture") from None
    except Image.DecompressionBombError:
        raise InvalidPicture(f"it is larger than {limits.image_most / 1e6:g} million pixels") from None
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, InvalidPicture):
            raise
        raise InvalidPicture(f"it cannot be decoded whole: {error}") from error


def _check(image: Image.Image, limits: Limits) -> None:
    width, height = image.size
    if getattr(image, "n_frames", 1) > 1 and image.format != STILLS:
        raise InvalidPicture("it is animated; it must be a single picture")
    if min(width, height) < limits.image_least:
        raise InvalidPicture(
            f"it has {width} x {height} pixels; each side must have at least {limits.image_least}"
        )
    if width * height > limits.image_most:
        raise InvalidPicture(
            f"it has {width} x {height} pixels; there may be {limits.image_most / 1e6:g} million in all"
        )


def _upright(image: Image.Image) -> Image.Image:
    """Pillow's own turning writes the EXIF anew, too, which ends in errors where it holds odd values."""
    turn = TURNS.get(image.getexif().get(ORIENTATION, 1))
    return image if turn is None else image.transpose(turn)


def _in_srgb(image: Image.Image) -> Image.Image:
    """RGB, by its colour profile, else by a PNG's gamma. A profile that cannot be read, or is for pictures of
    another kind, says nothing."""
    profile, gamma = image.info.get("icc_profile"), image.info.get("gamma", GAMMA)
    plain = image if image.mode in ("L", "CMYK") and "transparency" not in image.info else _opaque(image)
    if profile:
        with contextlib.suppress(ImageCms.PyCMSError, OSError):
            given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            return ImageCms.profileToProfile(plain, given, SRGB, outputMode="RGB") or plain
    elif gamma > 0 and abs(gamma - GAMMA) > 0.01:
        light = [round(255 * (value / 255) ** (GAMMA / gamma)) for value in range(256)]
        return plain.convert("RGB").point(light * 3)
    return plain.convert("RGB")


def _opaque(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits: converting would cut off the upper half
        grey = np.asarray(image, np.float32) / 257.0
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        seen = image.convert("RGBA")
        behind = Image.new("RGBA", seen.size, BACKGROUND)
        return Image.alpha_composite(behind, seen).convert("RGB")
    return image.convert("RGB")


def cut(image: Image.Image, size: str, shrink: int = 1) -> tuple[Bucket, NDArray[np.uint8]]:
    """The bucket of a size that fits best, and the picture in it, (H, W, 3), so many times smaller. Only what
    is kept is scaled: a strip of 64 x 390,625 pixels would need gigabytes whole."""
    bucket = nearest(size, image.height, image.width)
    inside = Bucket(bucket.height // shrink, bucket.width // shrink)
    place = cover(image.height, image.width, inside)
    across, down = image.width / place.width, image.height / place.height
    left, top = place.left * across, place.top * down
    kept = (left, top, left + inside.width * across, top + inside.height * down)
    scaled = image.resize((inside.width, inside.height), Image.Resampling.LANCZOS, _within(kept, image))
    return bucket, np.asarray(scaled, np.uint8)


def _within(box: tuple[float, ...], image: Image.Image) -> tuple[float, float, float, float]:
    """A sum may be over the edge by its last bit."""
    left, top, right, bottom = box
    return left, top, min(right, image.width), min(bottom, image.height)
