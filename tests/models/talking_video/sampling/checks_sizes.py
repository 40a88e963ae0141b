"""What must hold of the video's sizes. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.models.talking_video.sampling.drawn import drawn

SIDES = st.integers(1, 20_000)
NAMES = st.sampled_from(["480p", "720p"])


def sides_are_multiples_of_64(m: Any) -> None:
    for name, area in (("480p", 627), ("720p", 960)):
        for bucket in m.BUCKETS[name]:
            assert bucket.height % 64 == bucket.width % 64 == 0
            assert 0.75 < (bucket.height * bucket.width) ** 0.5 / area < 1.1, bucket


def no_ratio_is_there_twice(m: Any) -> None:
    for buckets in m.BUCKETS.values():
        assert len({bucket.ratio for bucket in buckets}) == len(buckets)


@drawn(NAMES, SIDES, SIDES)
def the_nearest_ratio_is_taken(m: Any, name: str, height: int, width: int) -> None:
    found = m.nearest(name, height, width)
    assert found in m.BUCKETS[name]
    for other in m.BUCKETS[name]:
        near, far = abs(found.ratio - height / width), abs(other.ratio - height / width)
        assert near < far or (near == far and found.ratio <= other.ratio)


@drawn(NAMES)
def an_image_of_a_buckets_own_shape_is_not_cut(m: Any, name: str) -> None:
    for bucket in m.BUCKETS[name]:
        for times in (1, 3):
            found = m.nearest(name, bucket.height * times, bucket.width * times)
            assert found == bucket
            cut = m.cover(bucket.height * times, bucket.width * times, bucket)
            assert (cut.height, cut.width, cut.top, cut.left) == (bucket.height, bucket.width, 0, 0)


@drawn(NAMES, SIDES, SIDES)
def the_cut_covers_and_lies_inside(m: Any, name: str, height: int, width: int) -> None:
    bucket = m.nearest(name, height, width)
    cut = m.cover(height, width, bucket)
    assert cut.height >= bucket.height
    assert cut.width >= bucket.width
    assert 0 <= cut.top <= cut.height - bucket.height
    assert 0 <= cut.left <= cut.width - bucket.width
    assert abs(cut.height - bucket.height - 2 * cut.top) <= 1, "not the middle"
    assert abs(cut.width - bucket.width - 2 * cut.left) <= 1, "not the middle"


@drawn(NAMES, SIDES, SIDES)
def it_just_covers_in_the_images_own_ratio(m: Any, name: str, height: int, width: int) -> None:
    bucket = m.nearest(name, height, width)
    cut = m.cover(height, width, bucket)
    assert cut.height == bucket.height or cut.width == bucket.width
    scale = max(bucket.height / height, bucket.width / width)
    assert abs(cut.height - height * scale) <= 1
    assert abs(cut.width - width * scale) <= 1


ALL = [
    sides_are_multiples_of_64,
    no_ratio_is_there_twice,
    the_nearest_ratio_is_taken,
    an_image_of_a_buckets_own_shape_is_not_cut,
    the_cut_covers_and_lies_inside,
    it_just_covers_in_the_images_own_ratio,
]

MUTANTS = [
    ("width over height", "ratio = height / width", "ratio = width / height"),
    ("the image fits inside", "scale = max(", "scale = min("),
    ("cut at the left", "(scaled_width - bucket.width) // 2", "(scaled_width - bucket.width) // 1"),
    ("cut at the bottom", "(scaled_height - bucket.height) // 2", "scaled_height - bucket.height"),
    ("a side that no latents fit", "832x448", "832x456"),
]
