"""`stoker model run` and `stoker model bench`: a pipeline in this process, with the time of each stage.

    set-up      the weights are verified, the pipeline is loaded and warmed up; with the stages of the cold
                start (`models.cold_start`)
    first step  the prompt is read, and the first step made
    steps       the others
    finish      the last step's latents become a file

The handler is the one that a worker runs, on this machine's first GPU, else on its CPU. Peak memory is
that of a job on the GPU, as torch counts it, else this process's.
"""

from __future__ import annotations

import importlib
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from stoker.cli import tables
from stoker.cli.errors import CliError
from stoker.cli.model.listing import known
from stoker.cli.predict.device import first_device
from stoker.cli.predict.local_files import served
from stoker.cli.predict.run import save_files
from stoker.models.checked_input import InvalidInput
from stoker.models.hosted import MODELS
from stoker.models.interface import PipelineEntry, profile_of
from stoker.models.speed_ups import profiles
from stoker.models.talking_video.request import VideoRequest
from stoker.models.text_to_image.request import ImageRequest
from stoker.worker.sdk import Device
from stoker.worker.testing import LocalJob

PROMPT = "a lighthouse on a cliff at dawn"
STAGES = ("first step", "steps", "finish")


def run(
    name: str,
    typed: Mapping[str, Any],
    out: Path,
    console: Console,
    *,
    profile: str | None,
    use_gpu: bool,
    as_json: bool,
) -> None:
    """Saves the files of the output in `out`. Raises CliError if the job fails."""
    with _checked(known(name), typed) as job_input:
        entry, device, handler, set_up_s = _set_up(name, profile, use_gpu=use_gpu)
        job, stages = _timed(handler, job_input, device, show=not as_json)
    output = save_files(job.result(), out)
    record = _record(entry, device, handler, {"set-up": set_up_s, **stages}, len(job.progress)) | {
        "output": output
    }
    _print(record, console, as_json=as_json)


def bench(
    name: str,
    typed: Mapping[str, Any],
    runs: int,
    console: Console,
    *,
    profile: str | None,
    use_gpu: bool,
    as_json: bool,
) -> None:
    """Times jobs: the first warms the pipeline up; the median of the others is printed. Raises CliError if a
    job fails."""
    with _checked(known(name), typed) as job_input:
        entry, device, handler, set_up_s = _set_up(name, profile, use_gpu=use_gpu)
        _timed(handler, job_input, device, show=False)
        found = [_timed(handler, job_input, device, show=False) for _ in range(runs)]
    medians = {stage: statistics.median(stages[stage] for _, stages in found) for stage in STAGES}
    totals = [sum(stages.values()) for _, stages in found]
    record = _record(entry, device, handler, {"set-up": set_up_s, **medians}, len(found[0][0].progress))
    record |= {
        "runs": runs,
        "job_s": statistics.median(totals),
        "least_s": min(totals),
        "most_s": max(totals),
    }
    _print(record, console, as_json=as_json)


@contextmanager
def _checked(entry: PipelineEntry, typed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the job's input, as the handler will take it; names of local files are URLs meanwhile. The input
    is checked before the weights are loaded, which may take minutes. Raises CliError."""
    model = MODELS[entry.model]
    schema = model.schema if model.schema_for is None else model.schema_for(entry)
    with served({"prompt": PROMPT, **typed}, schema) as job_input:
        try:
            if model.schema_for is None:
                VideoRequest.parse(job_input)
            else:
                ImageRequest.parse(job_input, schema, entry.choices)
        except InvalidInput as error:
            raise CliError(str(error)) from None
        yield job_input


def _set_up(name: str, profile: str | None, *, use_gpu: bool) -> tuple[PipelineEntry, Device, Any, float]:
    entry = known(name)
    model = MODELS[entry.model]
    device = first_device(os.environ) if use_gpu else Device()
    os.environ.update(model.env)
    os.environ["STOKER_PIPELINE"] = entry.name
    if profile is not None:
        os.environ[profiles.ENVIRONMENT] = f"{entry.name}={profile}"
    _check_profile()
    module, _, handler_name = model.handler.partition(":")
    begun = time.perf_counter()
    handler = getattr(importlib.import_module(module), handler_name)()
    handler.setup(device)
    return entry, device, handler, time.perf_counter() - begun


def _check_profile() -> None:
    try:
        profiles.parse(os.environ.get(profiles.ENVIRONMENT, ""))
    except ValueError as error:
        raise CliError(str(error)) from None


def _timed(
    handler: Any, job_input: Mapping[str, Any], device: Device, *, show: bool
) -> tuple[LocalJob, dict[str, float]]:
    """Returns the job and the seconds of its stages. Raises CliError if the job fails."""
    times: list[float] = []

    def on_progress(value: Any) -> None:
        times.append(time.perf_counter())
        if show:
            print("  ".join(f"{field} {number}" for field, number in value.items()), file=sys.stderr)

    job = LocalJob(handler.run, job_input, device=device, network=True, on_progress=on_progress)
    begun = time.perf_counter()
    job.run()
    ended = time.perf_counter()
    if job.error is not None:
        raise CliError(job.error)
    stages = (times[0] - begun, times[-1] - times[0], ended - times[-1])
    return job, dict(zip(STAGES, stages, strict=True))


def _record(
    entry: PipelineEntry, device: Device, handler: Any, stages: Mapping[str, float], steps: int
) -> dict[str, Any]:
    return {
        "pipeline": entry.name,
        "made_up_weights": entry.made_up,
        **profile_of(handler.pipeline),
        "device": device.name,
        "steps": steps,
        "cold_start_s": dict(handler.cold_start_s),
        "stages_s": dict(stages),
        "peak_memory_bytes": handler.memory.most_bytes
        or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _print(record: Mapping[str, Any], console: Console, *, as_json: bool) -> None:
    if as_json:
        tables.print_json(record)
        return
    console.print(f"{record['pipeline']} on {record['device']}, {record['steps']} steps")
    applied = ", ".join(f"{name} ({how})" for name, how in record["speed_ups"].items())
    console.print(f"  profile {record['profile']}: {applied or 'no speed-up runs here'}")
    for stage, seconds in record["stages_s"].items():
        console.print(f"  {stage:<12}{seconds:9.3f} s")
        if stage == "set-up":
            for part, part_s in record["cold_start_s"].items():
                console.print(f"    {part:<14}{part_s:5.3f} s")
    if "job_s" in record:
        runs, median, least, most = (record[name] for name in ("runs", "job_s", "least_s", "most_s"))
        console.print(f"  {'job':<12}{median:9.3f} s, the median of {runs}; {least:.3f} to {most:.3f}")
    console.print(f"  {'peak memory':<12}{record['peak_memory_bytes'] / 2**20:9.0f} MiB")
    if record["made_up_weights"]:
        console.print("  the weights are made up and small: this says nothing about the real model's time")
    if "output" in record:
        tables.print_json(record["output"])
