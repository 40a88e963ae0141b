"""Sizes of the video: the nearest bucket of the requested size, and the crop of the image to it.

Pure. A bucket is one of the shapes that the model was trained on, about 627 or 960 pixels squared in area.
The bucket with the nearest ratio of height to width is chosen; the image is scaled to cover it and cropped
about its middle. Sides are multiples of 64. The tables are those of the model's authors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Bucket:
    height: int
    width: int

    @property
    def ratio(self) -> float:
        return self.height / self.width


def _buckets(text: str) -> tuple[Bucket, ...]:
    return tuple(Bucket(*map(int, shape.split("x"))) for shape in text.split())


BUCKETS: Final[Mapping[str, tuple[Bucket, ...]]] = MappingProxyType(
    {
        "480p": _buckets(
            "320x1216 384x1024 448x896 512x768 576x704 640x640 704x576 768x512 832x448 896x448 960x384"
            " 1088x384 1152x320 1216x320 1280x320"
        ),
        "720p": _buckets(
            "448x2048 512x1792 576x1600 640x1408 704x1280 768x1216 832x1088 896x1024 960x960 1024x896"
            " 1088x832 1152x768 1216x768 1280x704 1344x704 1408x640 1472x640 1536x576 1664x576 1856x512"
            " 1920x512"
        ),
    }
)
"""The buckets of each size of the interface, height times width."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The image is scaled to `width` x `height`, and the crop starts at `left`, `top`."""

    height: int
    width: int
    top: int
    left: int


def nearest(size: str, height: int, width: int) -> Bucket:
    """Returns the bucket whose ratio differs least from the image's; of two equally near buckets, that with
    the smaller ratio."""
    ratio = height / width
    return min(BUCKETS[size], key=lambda bucket: (abs(bucket.ratio - ratio), bucket.ratio))


def cover(height: int, width: int, bucket: Bucket) -> Cut:
    """Returns the crop of the middle of the image, scaled so that it just covers the bucket."""
    scale = max(bucket.height / height, bucket.width / width)
    scaled_height = max(round(height * scale), bucket.height)
    scaled_width = max(round(width * scale), bucket.width)
    return Cut(
        scaled_height,
        scaled_width,
        (scaled_height - bucket.height) // 2,
        (scaled_width - bucket.width) // 2,
    )
