"""Measures flux-mini at the bounds of its sizes and between: seconds and memory of a picture of 28 steps.

    python bench/models/picture_sizes.py [--runs 3] [--threads 2] [--json bench/results/picture-sizes.json]

Each size runs in a process of its own, and its first picture is not counted. Three sizes have a limit for two
threads of a quiet machine; the ratio says how much of it is used. Beside other work, CPU seconds of one
thread say more.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from measured_on import machine

SIZES = ((256, 256), (512, 512), (768, 512), (256, 1536), (1536, 256), (1024, 1024), (1536, 1536))
LIMITS_S = {(256, 256): 3.0, (1024, 1024): 30.0, (1536, 1536): 90.0}
STEPS = 28
PROMPT = "two red boats in the sea"


def one_size(width: int, height: int, runs: int, threads: int) -> dict[str, Any]:
    """What a process of its own measures of one size."""
    import torch

    from stoker.models.interface import ImageParameters
    from stoker.models.text_to_image.families.flux_mini import FluxMini
    from stoker.models.text_to_image.mini import weights

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as name:
        weights.build(Path(name))
        pipeline = FluxMini(Path(name), "cpu")

        def seconds(seed: int) -> tuple[float, float]:
            wanted = ImageParameters(PROMPT, width, height, STEPS, seed=seed)
            began, cpu = time.perf_counter(), time.process_time()
            pipeline.generate(wanted, lambda step: None)
            return time.perf_counter() - began, time.process_time() - cpu

        seconds(0)
        took, cpu = map(statistics.median, zip(*map(seconds, range(1, runs + 1)), strict=True))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": round(took, 2), "cpu_seconds": round(cpu, 2), "peak_mib": round(memory)}


def in_a_process(width: int, height: int, runs: int, threads: int) -> dict[str, Any]:
    size = ["--one", f"{width}x{height}", "--runs", str(runs), "--threads", str(threads)]
    done = subprocess.run([sys.executable, __file__, *size], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if limit := LIMITS_S.get((width, height)):
        found |= {"limit_s": limit, "of_limit": round(found["seconds"] / limit, 2)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", help="one size, as 512x512, in this process")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.one:
        width, height = map(int, options.one.split("x"))
        print(json.dumps(one_size(width, height, options.runs, options.threads)))
        return
    found: dict[str, Any] = {"machine": machine("../models"), "steps": STEPS, "threads": options.threads}
    for width, height in SIZES:
        one = found[f"{width}x{height}"] = in_a_process(width, height, options.runs, options.threads)
        limit = f"; limit {one['limit_s']:.0f} s, {one['of_limit']:.2f} of it" if "limit_s" in one else ""
        print(
            f"{width}x{height}: {one['seconds']:.2f} s, CPU {one['cpu_seconds']:.2f} s,"
            f" {one['peak_mib']} MiB{limit}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
