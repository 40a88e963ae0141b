"""Turns the caller's image into a frame: upright by its EXIF, in sRGB, opaque, cut to the shape of the video.

The size is read from the header before anything is decoded: a file of a kilobyte may declare a gigapixel.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, UnidentifiedImageError

from stoker.models.talking_video.limits import DEFAULT, VideoLimits
from stoker.models.talking_video.video.sizes import Bucket, cover, nearest

FORMATS: Final = ("PNG", "JPEG", "WEBP")
STILLS: Final = "MPO"
"""Pillow's name for a JPEG of a phone that holds a second image, such as a depth map."""

BACKGROUND: Final = (255, 255, 255)
"""The colour behind transparent pixels."""

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
"""The transposition that turns an image upright, by the orientation in its EXIF."""

SRGB: Final = ImageCms.createProfile("sRGB")
GAMMA: Final = 1 / 2.2
"""The approximate gamma of sRGB. A PNG may declare another."""


class InvalidImage(ValueError):
    """The image cannot be used; the message says why, and what is allowed."""


def opened(path: Path, limits: VideoLimits = DEFAULT) -> Image.Image:
    """The whole image in RGB, upright. Raises InvalidImage."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            _check(image, limits)
            return _in_srgb(_upright(image))
    except UnidentifiedImageError:
        raise InvalidImage("it is not a png, jpeg or webp image") from None
    except Image.DecompressionBombError:
        raise InvalidImage(f"it is larger than {limits.image_most / 1e6:g} million pixels") from None
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, InvalidImage):
            raise
        raise InvalidImage(f"it cannot be decoded completely: {error}") from error


def _check(image: Image.Image, limits: VideoLimits) -> None:
    width, height = image.size
    if getattr(image, "n_frames", 1) > 1 and image.format != STILLS:
        raise InvalidImage("it is animated; it must be a single image")
    if min(width, height) < limits.image_least:
        raise InvalidImage(
            f"it has {width} x {height} pixels; each side must have at least {limits.image_least}"
        )
    if width * height > limits.image_most:
        raise InvalidImage(
            f"it has {width} x {height} pixels; there may be {limits.image_most / 1e6:g} million in all"
        )


def _upright(image: Image.Image) -> Image.Image:
    """Does not use Pillow's `exif_transpose`, which also writes the EXIF again and fails at invalid
    values."""
    turn = TURNS.get(image.getexif().get(ORIENTATION, 1))
    return image if turn is None else image.transpose(turn)


def _in_srgb(image: Image.Image) -> Image.Image:
    """Converts to sRGB by the colour profile, else by a PNG's gamma. A profile that cannot be read, or that
    is for another kind of image, is ignored."""
    profile, gamma = image.info.get("icc_profile"), image.info.get("gamma", GAMMA)
    plain = image if image.mode in ("L", "CMYK") and "transparency" not in image.info else _opaque(image)
    if profile:
        with contextlib.suppress(ImageCms.PyCMSError, OSError):
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            return ImageCms.profileToProfile(plain, source, SRGB, outputMode="RGB") or plain
    elif gamma > 0 and abs(gamma - GAMMA) > 0.01:
        light = [round(255 * (value / 255) ** (GAMMA / gamma)) for value in range(256)]
        return plain.convert("RGB").point(light * 3)
    return plain.convert("RGB")


def _opaque(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits: converting would cut off the upper half
        grey = np.asarray(image, np.float32) / 257.0
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        transparent = image.convert("RGBA")
        background = Image.new("RGBA", transparent.size, BACKGROUND)
        return Image.alpha_composite(background, transparent).convert("RGB")
    return image.convert("RGB")


def cut(image: Image.Image, size: str, shrink: int = 1) -> tuple[Bucket, NDArray[np.uint8]]:
    """The bucket of a size that fits best, and the image in it, (H, W, 3), `shrink` times smaller. Only the
    cropped part is scaled: a strip of 64 x 390,625 pixels would need gigabytes as a whole."""
    bucket = nearest(size, image.height, image.width)
    target = Bucket(bucket.height // shrink, bucket.width // shrink)
    crop = cover(image.height, image.width, target)
    across, down = image.width / crop.width, image.height / crop.height
    left, top = crop.left * across, crop.top * down
    # Rounding may move the right and bottom edges beyond the image.
    right = min(left + target.width * across, image.width)
    bottom = min(top + target.height * down, image.height)
    box = (left, top, right, bottom)
    scaled = image.resize((target.width, target.height), Image.Resampling.LANCZOS, box)
    return bucket, np.asarray(scaled, np.uint8)
