"""The images that a job names by URLs, fetched: where it starts, and what it looks at.

    image    where it starts: cropped to the shape of the output, and scaled
    mask     stretched to the size of the image before that, and then cropped and scaled like it
    images   what it looks at: whole, in sizes of their own

A mask is white where the image is made anew, and black elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoker.worker import HandlerError, InputRefused

if TYPE_CHECKING:
    from PIL import Image

    from stoker.worker import Job

RATIO_MOST: Final = 8
"""The longer side of an image to look at, in shorter sides."""


def made(
    job: Job, image: str | None, mask: str | None, size: tuple[int, int]
) -> tuple[Image.Image | None, Image.Image | None]:
    """Fetches the image and its mask, which are URLs; None where there is none. Raises HandlerError, whose
    message says what is wrong."""
    if image is None:
        return None, None
    from stoker.models import input_image

    whole = _opened(job, "image", image, input_image.opened)
    if mask is None:
        return _fitted(whole, size), None
    part = _opened(job, "mask_image", mask, input_image.opened_mask).resize(whole.size)
    cut = _fitted(part, size).point([0] * 128 + [255] * 128)
    if cut.getextrema() == (0, 0):
        raise HandlerError("mask_image: nothing of it is transparent or white, so nothing would be made anew")
    return _fitted(whole, size), cut


def references(job: Job, urls: Sequence[str]) -> tuple[Image.Image, ...]:
    """Fetches the images to look at, which are held at once: together they may be as large as one that a job
    starts from. Raises HandlerError, whose message names the image."""
    if not urls:
        return ()
    from stoker.models import input_image

    found: list[Image.Image] = []
    pixels = 0
    for number, url in enumerate(urls):
        name = f"images[{number}]"
        image = _opened(job, name, url, input_image.opened)
        _require_shape(name, image)
        pixels += image.width * image.height
        if pixels > input_image.MOST:
            raise HandlerError(
                f"Invalid images: the first {number + 1} have {pixels:,} pixels; there may be"
                f" {input_image.MOST:,} in all"
            )
        found.append(image)
    return tuple(found)


def _require_shape(name: str, image: Image.Image) -> None:
    short, long = sorted(image.size)
    if long > RATIO_MOST * short:
        raise HandlerError(
            f"Invalid {name}: it has {image.width} x {image.height} pixels; its longer side may be"
            f" {RATIO_MOST} times the shorter one"
        )


def _fitted(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    from PIL import Image, ImageOps

    return ImageOps.fit(image, size, Image.Resampling.LANCZOS)


def _opened(job: Job, name: str, url: str, opened: Callable[[Path], Image.Image]) -> Image.Image:
    from stoker.models import input_image

    try:
        return opened(job.fetch(url, max_bytes=input_image.BYTES_MOST).path)
    except InputRefused as error:
        raise HandlerError(f"Invalid {name} URL: {error}", retryable=error.retryable) from error
    except input_image.InvalidImage as error:
        raise HandlerError(f"Invalid {name}: {error}") from error
