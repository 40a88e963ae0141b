"""No job leaves memory behind, whatever its size and however it ends; and the gauge that shows it."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from stoker.models.interface import ImageDefaults, ImageParameters, Step
from stoker.models.memory_gauge import MemoryGauge, process_bytes
from tests.models.speed_ups.pictures import flux as flux_of
from tests.models.speed_ups.pictures import picture

SIZES = ((256, 256), (320, 256), (256, 384), (320, 320))
MIB = 2**20


def tensor_bytes() -> int:
    """What all tensors of this process hold. torch's memory is none of Python's allocator."""
    import torch

    gc.collect()
    storages = {
        one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
        for one in gc.get_objects()
        if issubclass(type(one), torch.Tensor)
    }
    return sum(storages.values())


def many_jobs(pipeline: Any, number: int) -> None:
    """Of mixed sizes, steps and prompts. Each fifth is cancelled."""

    def on_step(step: Step) -> None:
        if cancelled and step.number == 2:
            raise InterruptedError

    for job in range(number):
        cancelled = job % 5 == 4
        width, height = SIZES[job % len(SIZES)]
        prompt = f"a lighthouse and {job % 3} houses"
        asked = ImageParameters(prompt, width, height, 2 + job % 2, job, guidance=3.5)
        try:
            pipeline.generate(asked, on_step)
        except InterruptedError:
            assert cancelled


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["exact", "fast", "low-memory"])
def test_tensors_are_as_many_after_jobs_of_mixed_sizes(profile: str, tiny_folder: Any) -> None:
    pipeline = flux_of(tiny_folder, profile)
    pipeline.warm([(256, 256)], ImageDefaults(steps=12, guidance=3.5))
    many_jobs(pipeline, 15)  # with all prompts encoded
    before = tensor_bytes()
    many_jobs(pipeline, 15)
    assert tensor_bytes() == before


@pytest.mark.slow
def test_the_process_does_not_grow_over_a_thousand_jobs(tiny_folder: Any) -> None:
    pipeline = flux_of(tiny_folder, "fast")
    pipeline.warm([(256, 256)], ImageDefaults(steps=12, guidance=3.5))
    many_jobs(pipeline, 100)
    tensors, process = tensor_bytes(), process_bytes()
    assert process is not None
    many_jobs(pipeline, 1000)
    after = process_bytes()
    assert after is not None
    assert tensor_bytes() == tensors
    assert after - process < 16 * MIB


def test_the_gauge_reads_the_process_before_and_after(flux: Any, caplog: pytest.LogCaptureFixture) -> None:
    gauge = MemoryGauge("cpu")
    with caplog.at_level("INFO"), gauge.job():
        picture(flux, steps=1)
    assert gauge.last is not None
    assert gauge.last.before_bytes is not None
    assert gauge.last.before_bytes > 50 * MIB
    assert (gauge.last.most_bytes, gauge.most_bytes) == (None, None)
    assert "memory in MiB: " in caplog.text


def test_the_gauge_reads_a_scripted_gpu_also_of_a_failed_job(monkeypatch: pytest.MonkeyPatch) -> None:
    now, peaks = iter([10, 11, 11, 12]), iter([90, 50])
    resets: list[int] = []
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda: next(now))
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda: next(peaks))
    monkeypatch.setattr("torch.cuda.reset_peak_memory_stats", lambda: resets.append(1))
    gauge = MemoryGauge("cuda")
    with gauge.job():
        pass
    with pytest.raises(InterruptedError), gauge.job():
        raise InterruptedError
    assert gauge.last is not None
    assert (gauge.last.before_bytes, gauge.last.most_bytes, gauge.last.after_bytes, gauge.most_bytes) == (
        11,
        50,
        12,
        90,
    )
    assert len(resets) == 2
