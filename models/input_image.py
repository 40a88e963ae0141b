"""The image that a caller sent, opened: upright by its EXIF, in sRGB, opaque.

The size is read from the header before anything is decoded: a file of a kilobyte may declare a gigapixel.
What keeps Pillow from reading an image that other programs show is mended first, see `image_repairs`.
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from PIL import Image, ImageChops, ImageCms, UnidentifiedImageError

from stoker.models import image_repairs
from stoker.worker.payloads import media_types

FORMATS: Final = ("PNG", "JPEG", "WEBP")
MEDIA_TYPES: Final = ("image/png", "image/jpeg", "image/webp")
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

Conversion: TypeAlias = Callable[[Image.Image], Image.Image]

SRGB: Final = ImageCms.createProfile("sRGB")
GAMMA: Final = 1 / 2.2
"""The approximate gamma of sRGB. A PNG may declare another."""


LEAST: Final = 64
MOST: Final = 25_000_000
BYTES_MOST: Final = 30_000_000
"""The pixels of each side, of the whole image, and the bytes of its file."""


class InvalidImage(ValueError):
    """The image cannot be used; the message says why, and what is allowed."""


def opened(path: Path, least: int = LEAST, most: int = MOST) -> Image.Image:
    """Returns the whole image in RGB, upright. `least`: the pixels of each side; `most`: those of all. Raises
    InvalidImage."""
    return _opened(path, least, most, _in_srgb)


def opened_mask(path: Path) -> Image.Image:
    """Returns a mask in 8 bits of grey, upright: white where it is transparent or, if it is opaque, where it
    is white. Raises InvalidImage."""
    return _opened(path, LEAST, MOST, _in_grey)


def _opened(path: Path, least: int, most: int, converted: Conversion) -> Image.Image:
    data = image_repairs.repaired(path.read_bytes())
    try:
        try:
            return _decoded(data, least, most, converted)
        except OSError as error:
            return _decoded_to_its_end(data, least, most, converted, error)
    except UnidentifiedImageError:
        raise InvalidImage(_of_no_format(data)) from None
    except Image.DecompressionBombError:
        raise InvalidImage(f"it is larger than {most / 1e6:g} million pixels") from None
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, InvalidImage):
            raise
        raise InvalidImage(f"it cannot be decoded completely: {error}") from error


def _decoded(data: bytes, least: int, most: int, converted: Conversion) -> Image.Image:
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        _check(image, least, most)
        return converted(_upright(image))


def _decoded_to_its_end(
    data: bytes, least: int, most: int, converted: Conversion, error: OSError
) -> Image.Image:
    """Decodes a JPEG whose end marker alone is missing. Raises the error if more is missing."""
    found = None
    for ended in image_repairs.endings(data):
        image = _decoded(ended, least, most, converted)
        if found is not None and found.tobytes() != image.tobytes():
            raise error
        found = image
    if found is None:
        raise error
    return found


def _of_no_format(data: bytes) -> str:
    came = media_types.media_type_of_bytes(data[: media_types.HEAD])
    if came is None or came in MEDIA_TYPES:
        return "it is not a png, jpeg or webp image"
    return f"it is {came}; it must be a png, jpeg or webp image"


def _check(image: Image.Image, least: int, most: int) -> None:
    width, height = image.size
    if getattr(image, "n_frames", 1) > 1 and image.format != STILLS:
        raise InvalidImage("it is animated; it must be a single image")
    if min(width, height) < least:
        raise InvalidImage(f"it has {width} x {height} pixels; each side must have at least {least}")
    if width * height > most:
        raise InvalidImage(f"it has {width} x {height} pixels; there may be {most / 1e6:g} million in all")


def _upright(image: Image.Image) -> Image.Image:
    """Does not use Pillow's `exif_transpose`, which also writes the EXIF again and fails at invalid values.
    An EXIF that cannot be read is ignored."""
    turn = None
    with contextlib.suppress(OSError, SyntaxError, ValueError, struct.error):
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


def _in_grey(image: Image.Image) -> Image.Image:
    if _may_be_transparent(image):
        alpha = image.convert("RGBA").getchannel("A")
        if alpha.getextrema() != (255, 255):
            return ImageChops.invert(alpha)
    return _opaque(image).convert("L")


def _may_be_transparent(image: Image.Image) -> bool:
    return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info


def _opaque(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits: converting would cut off the upper half
        grey = np.asarray(image, np.float32) / 257.0
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if _may_be_transparent(image):
        transparent = image.convert("RGBA")
        background = Image.new("RGBA", transparent.size, BACKGROUND)
        return Image.alpha_composite(background, transparent).convert("RGB")
    return image.convert("RGB")
