"""Image jobs of mixed sizes, schedulers and ends leave no memory behind."""

from __future__ import annotations

import ctypes
import gc
import random
from pathlib import Path
from typing import Any

import pytest

from stoker.worker.testing import LocalJob

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
"""diffusers' schedulers, with a newer numpy."""

SIDES = range(256, 513, 64)


def tensor_bytes() -> int:
    """Of all tensors that are alive, each storage once."""
    import torch

    gc.collect()
    storages = {
        one.untyped_storage()._cdata: one.untyped_storage().nbytes()
        for one in gc.get_objects()
        if issubclass(type(one), torch.Tensor)
    }
    return sum(storages.values())


def resident_bytes() -> int:
    """Returns what the process holds after the allocator gave back what is free, which differs by machine."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) << 10


def make(model: Any, draw: random.Random) -> None:
    """One of ten is cancelled, one of ten refused."""
    fate = draw.randrange(10)
    job_input = {
        "prompt": draw.choice(["a fox", "a lighthouse on a cliff at dawn"]),
        "width": draw.choice(SIDES),
        "height": draw.choice(SIDES),
        "num_inference_steps": draw.choice([1, 2, 3]),
        "scheduler": draw.choice(["euler", "dpm++2m", "unipc"]),
        "seed": draw.randrange(1000),
    }
    if draw.random() < 0.3:
        del job_input["scheduler"]
    if draw.random() < 0.1:
        job_input["num_images"] = 2
    if fate == 0:
        job_input["num_inference_steps"] = 3  # its cancel comes after the first
    if fate == 1:
        job_input["width"] = 100
    job = LocalJob(model.run, job_input, on_progress=lambda _: job.cancel() if fate == 0 else None)
    job.run()
    assert (job.error is None) == (fate > 1), job.error


def make_many(model: Any, draw: random.Random, count: int) -> None:
    for _ in range(count):
        make(model, draw)
    make(model, random.Random(7))  # the same before each measurement: the scheduler keeps its last times


@pytest.mark.parametrize("count", [30, 1000])
@pytest.mark.slow
def test_memory_is_flat_over_jobs_of_mixed_sizes(model: Any, count: int) -> None:
    """A leak grows in each round; what the libraries keep once for each shape does not."""
    draw = random.Random(count)
    make_many(model, draw, max(10, count // 5))
    tensors, resident, grown = tensor_bytes(), [resident_bytes()], 1 << 40
    while len(resident) < 6 and grown > 16 << 20:
        make_many(model, draw, count)
        resident.append(resident_bytes())
        grown = resident[-1] - resident[-2]
        assert tensor_bytes() - tensors < 1024, "less than the latents of one job"
    assert grown <= 16 << 20, resident
