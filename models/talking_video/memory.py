"""Whether videos fit on a device, decided before anything is loaded, and what moves so that they do.

    RESIDENT     everything stays on the device
    IN_TURN      the encoders of words and pictures are there only while they work
    BY_BLOCKS    so are the blocks of the network: one works, the next comes; slow
    refused      with the numbers

Pure: bytes in, a plan out. What the parts weigh is exact, for it is read from their files. What the work
takes is an estimate from above: a token of the network is in memory in so many copies, a frame of the
autoencoder in so many tensors. Nothing of it depends on how long the video is: chunks are of one length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from stoker.models.talking_video.chunks import latents_of
from stoker.models.talking_video.sizes import BUCKETS, Bucket

__all__ = ["GIB", "Network", "Parts", "Placement", "Plan", "Work", "decide", "needs", "work_of"]

GIB: Final = 2**30

RESERVE: Final = GIB
"""For the device's own libraries, and what the allocator cannot fill."""

READING: Final = GIB // 2
"""What the encoders of words and pictures take beside their weights."""

BLOCKS_AT_ONCE: Final = 2


class Placement(IntEnum):
    """Where the parts are; the higher, the slower."""

    RESIDENT = 0
    IN_TURN = 1
    BY_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """Bytes of the weights as they lie on the device. `block`: the largest of the network's `blocks`."""

    network: int
    blocks: int
    block: int
    autoencoder: int
    speech_encoder: int
    text_encoder: int
    picture_encoder: int


@dataclass(frozen=True, slots=True)
class Network:
    """The widths that decide what the work takes."""

    width: int
    feed_forward: int
    autoencoder_width: int


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes that come and go beside the weights: while sampling, and while pictures are coded."""

    sampling: int
    coding: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`refused`: a sentence for each size that does not fit."""

    placement: Placement
    refused: Mapping[str, str] = field(default_factory=dict)


def work_of(network: Network, size: str, frames: int) -> Work:
    """Of the largest bucket of a size, in chunks of so many frames; 2 bytes a number in the network, 4 in the
    autoencoder."""
    return max(
        (_work_in(network, bucket, frames) for bucket in BUCKETS[size]),
        key=lambda work: (max(work.sampling, work.coding), work.sampling),
    )


def _work_in(network: Network, bucket: Bucket, frames: int) -> Work:
    pixels = bucket.height * bucket.width
    tokens = latents_of(frames) * pixels // 256
    # Of each token: four times in float32, and query, key, value and what attention gives; the feed-forward
    # before and after its function. Two speakers take no more: what tells who hears whom is a map of some
    # tokens at a time (see `speakers`), gone before the feed-forward.
    sampling = tokens * (network.width * (4 * 4 + 4 * 2) + network.feed_forward * 2 * 2)
    # Of four frames at full size ten tensors at once, and of each of some ten convolutions two frames kept.
    coding = 4 * pixels * (network.autoencoder_width * (4 * 10 + 2 * 10) + 3 * frames)
    return Work(sampling, coding)


def needs(parts: Parts, work: Work, placement: Placement) -> int:
    """The most that is on the device at a time."""
    stays = parts.autoencoder + parts.speech_encoder
    if placement is Placement.BY_BLOCKS:
        held = min(parts.blocks, BLOCKS_AT_ONCE * parts.block)
        stays += parts.network - parts.blocks + held
    else:
        stays += parts.network
    working = max(work.sampling, work.coding)
    if placement is Placement.RESIDENT:
        return RESERVE + stays + parts.text_encoder + parts.picture_encoder + max(working, READING)
    reading = max(parts.text_encoder, parts.picture_encoder) + READING
    return RESERVE + stays + max(working, reading)


def decide(parts: Parts, works: Mapping[str, Work], free: int) -> Plan:
    """The placement under which the most sizes fit in `free` bytes; of those the quickest. What is refused
    fits under none."""
    placement = min(Placement, key=lambda one: (-_fitting(parts, works, one, free), one))
    refused = {
        size: _sentence(size, needs(parts, work, Placement.BY_BLOCKS), free)
        for size, work in works.items()
        if needs(parts, work, placement) > free
    }
    return Plan(placement, refused)


def _fitting(parts: Parts, works: Mapping[str, Work], placement: Placement, free: int) -> int:
    return sum(needs(parts, work, placement) <= free for work in works.values())


def _sentence(size: str, needed: int, free: int) -> str:
    return (
        f"a video of {size} needs {needed / GIB:.1f} GiB even with the network on the device block by block;"
        f" it has {free / GIB:.1f} GiB free"
    )
