"""Decides, before anything is loaded, whether videos fit on a device, and which parts must be moved so that
they fit.

    RESIDENT     everything stays on the device
    IN_TURN      the encoders of text and images are on the device only while they run
    BY_BLOCKS    so are the blocks of the network: one runs while the next is moved; slow
    refused      the size does not fit; the message has the numbers

Pure: bytes in, a plan out. The size of the parts is exact, since it is read from their files. The memory for
the computation is an upper estimate: so many copies of each token of the network, so many tensors of each
frame of the autoencoder. It does not depend on the length of the video, since all chunks have one length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from stoker.models.talking_video.sampling.chunks import latents_of
from stoker.models.talking_video.video.sizes import BUCKETS, Bucket

GIB: Final = 2**30

RESERVE: Final = GIB
"""For the device's libraries, and for fragmentation."""

ENCODING_INPUTS: Final = GIB // 2
"""The memory that the encoders of text and images take besides their weights."""

ENCODING_SPEECH: Final = GIB // 2
"""The memory that the speech encoder takes for two minutes, the most that it encodes at once (see
`stretches`)."""

BLOCKS_AT_ONCE: Final = 2


class MemoryUse(IntEnum):
    """The places of the parts. The higher the value, the slower."""

    RESIDENT = 0
    IN_TURN = 1
    BY_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """The bytes of the weights on the device. `block`: the largest of the network's `blocks`."""

    network: int
    blocks: int
    block: int
    autoencoder: int
    speech_encoder: int
    text_encoder: int
    image_encoder: int


@dataclass(frozen=True, slots=True)
class Network:
    """The widths that decide how much memory the computation takes."""

    width: int
    feed_forward: int
    autoencoder_width: int


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes that are needed besides the weights: while sampling, and while frames are encoded or decoded."""

    sampling: int
    coding: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The plan of a device's memory. `refused`: a message for each size that does not fit."""

    placement: MemoryUse
    refused: Mapping[str, str] = field(default_factory=dict)


def work_of(network: Network, size: str, frames: int) -> Work:
    """Returns the memory for the largest bucket of a size, in chunks of so many frames, with 2 bytes a number
    in the network and 4 in the autoencoder."""
    return max(
        (_work_in(network, bucket, frames) for bucket in BUCKETS[size]),
        key=lambda work: (max(work.sampling, work.coding), work.sampling),
    )


def _work_in(network: Network, bucket: Bucket, frames: int) -> Work:
    pixels = bucket.height * bucket.width
    tokens = latents_of(frames) * pixels // 256
    # Each token four times in float32, and as query, key, value and output of attention; and the feed-forward
    # before and after its activation. Two speakers take no more: the attention to the speakers is computed
    # for some tokens at a time (see `speakers`) and freed before the feed-forward.
    sampling = tokens * (network.width * (4 * 4 + 4 * 2) + network.feed_forward * 2 * 2)
    # Ten tensors of four frames at full size at once, and two cached frames for each of some ten
    # convolutions.
    coding = 4 * pixels * (network.autoencoder_width * (4 * 10 + 2 * 10) + 3 * frames)
    return Work(sampling, coding)


def needs(parts: Parts, work: Work, placement: MemoryUse) -> int:
    """Returns the most bytes that are on the device at a time."""
    stays = parts.autoencoder + parts.speech_encoder
    if placement is MemoryUse.BY_BLOCKS:
        resident = min(parts.blocks, BLOCKS_AT_ONCE * parts.block)
        stays += parts.network - parts.blocks + resident
    else:
        stays += parts.network
    working = max(work.sampling, work.coding, ENCODING_SPEECH)
    if placement is MemoryUse.RESIDENT:
        return RESERVE + stays + parts.text_encoder + parts.image_encoder + max(working, ENCODING_INPUTS)
    reading = max(parts.text_encoder, parts.image_encoder) + ENCODING_INPUTS
    return RESERVE + stays + max(working, reading)


def decide(parts: Parts, works: Mapping[str, Work], free_bytes: int) -> MemoryPlan:
    """Returns the fastest of the placements with which the most sizes fit in `free_bytes`. A refused size
    fits with none of them."""
    placement = min(MemoryUse, key=lambda one: (-_fitting(parts, works, one, free_bytes), one))
    refused = {
        size: _refusal(size, needs(parts, work, MemoryUse.BY_BLOCKS), free_bytes)
        for size, work in works.items()
        if needs(parts, work, placement) > free_bytes
    }
    return MemoryPlan(placement, refused)


def _fitting(parts: Parts, works: Mapping[str, Work], placement: MemoryUse, free_bytes: int) -> int:
    return sum(needs(parts, work, placement) <= free_bytes for work in works.values())


def _refusal(size: str, needed: int, free_bytes: int) -> str:
    return (
        f"a video of {size} needs {needed / GIB:.1f} GiB even with the network on the device block by block;"
        f" it has {free_bytes / GIB:.1f} GiB free"
    )
