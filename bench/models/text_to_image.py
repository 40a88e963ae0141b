"""Compares the hosted image model with the plain pipeline of diffusers, in one run, with each profile.

    python bench/models/text_to_image.py [--side 512] [--steps 28] [--profile exact --profile fast+mag-cache]
                                         [--runs 5] [--cpu] [--json FILE]
    python bench/models/text_to_image.py --gpu [--side 1024]         random weights at FLUX.1's true size

Without --gpu a pipeline with weights is run (STOKER_PIPELINE, STOKER_WEIGHTS_DIR; the default is the best one
with weights on this machine): for each profile the handler, which also does what a caller needs (checks,
progress, previews, the file), takes turns with the plain library. Printed are
the seconds of an image (median, least and most), the ratio of the medians, the peak memory, the stages of the
cold start, and PSNR and SSIM against the plain library's image. With made-up weights the last two mean
nothing. `others` is how many cores other processes used during the run: above 0.3, discard the figures.

With --gpu the steps of FLUX.1's transformer are timed, each profile with a network of its own, and compared
with the time in which the GPU would only multiply: the floor, at 790 TFLOP/s. The weights are random, in
bfloat16: they cost as much as trained ones. `on_a_gpu.py` runs this on a machine without a package registry.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flux_at_true_size import measured_at_true_size
from picture_figures import psnr_db, ssim
from timing import synchronize, timed

sys.path.append(str(Path(__file__).parents[1]))
from measured_on import commit, cpu_name, others

import stoker
from stoker.models import interface, libraries, selection, weights
from stoker.models.interface import ImageParameters
from stoker.models.speed_ups import profiles
from stoker.models.text_to_image import handler as handlers
from stoker.models.text_to_image.declaration import DECLARATION
from stoker.models.text_to_image.handler import TextToImage
from stoker.worker import Device
from stoker.worker.testing import LocalJob

PROMPT = "a lighthouse on a cliff at dawn"
WARM_UPS = 2


def main() -> None:
    arguments = parse()
    begun, before = time.perf_counter(), others()
    wanted = arguments.profile or list(profiles.PROFILES)
    if arguments.gpu:
        found: dict[str, Any] = measured_at_true_size(wanted, arguments.side or [1024], arguments.steps)
    else:
        found = measured(wanted, arguments)
    found["hardware"] = machine()
    found["hardware"]["others"] = round((others() - before) / (time.perf_counter() - begun), 2)
    found |= {
        "versions": versions(),
        "commit": commit("../models", "../worker", "models/text_to_image.py", "models/flux_at_true_size.py"),
    }
    print(f"  {json.dumps(found['hardware'])}")
    if arguments.json:
        kept = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        key = "true size" if arguments.gpu else found["pipeline"]
        arguments.json.write_text(json.dumps(kept | {key: found}, indent=2) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The image model against plain diffusers.")
    parser.add_argument(
        "--side", type=int, action="append", help="side of the image in pixels; may be repeated"
    )
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--profile", action="append", help="as in STOKER_PROFILE; may be repeated")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="even where there is a GPU")
    parser.add_argument("--gpu", action="store_true", help="random weights at FLUX.1's true size")
    parser.add_argument("--json", type=Path, help="add the figures to this file")
    return parser.parse_args()


def measured(wanted: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    device = Device() if arguments.cpu or not torch.cuda.is_available() else gpu()
    sides = arguments.side or [1024]
    handlers.SIZES = tuple((side, side) for side in sides)
    found: dict[str, Any] = {"profiles": {}, "imports_s": round(timed(libraries.prepare), 2)}
    for profile in wanted:
        os.environ[profiles.ENVIRONMENT] = profile
        model = TextToImage()
        model.setup(device)
        stages = {name: round(seconds, 3) for name, seconds in model.cold_start_s.items()}
        begun = time.perf_counter()
        plain = library(device)
        synchronize()
        library_s = time.perf_counter() - begun
        print(f"{model.entry.name} ({profile}): {json.dumps(stages)}; the library loads in {library_s:.3f} s")
        found["pipeline"], found["made_up_weights"] = model.entry.name, model.entry.made_up
        found["profiles"][profile] = {
            "speed_ups": dict(model.pipeline.speed_ups),
            "cold_start_s": stages,
            "library_load_s": round(library_s, 3),
            "images": [of_side(model, plain, side, arguments.steps, arguments.runs) for side in sides],
        }
        del model, plain
        gc.collect()
    if found["made_up_weights"]:
        print("  the weights are made up: PSNR and SSIM say nothing about what is lost with trained ones")
    return found


def library(device: Device) -> Any:
    """The same pipeline without any speed-up, as diffusers loads it: nothing is verified."""
    entry = selection.choose(DECLARATION, device.kind)
    folder = weights.folder_of(weights.read_lock().entry(entry.weights), weights.weights_folder())
    return interface.load(entry, folder, device.torch_device, profiles.EXACT)


def parameters_of(entry: Any, side: int, steps: int) -> ImageParameters:
    return ImageParameters(PROMPT, side, side, steps, seed=1, guidance=entry.defaults.guidance)


def of_side(model: TextToImage, plain: Any, side: int, steps: int, runs: int) -> dict[str, Any]:
    """Of one profile and size: seconds, the ratio to the plain library, memory, and what is lost."""
    job_input = {"prompt": PROMPT, "width": side, "height": side, "seed": 1, "num_inference_steps": steps}
    parameters = parameters_of(model.entry, side, steps)

    def by_handler() -> None:
        LocalJob(model.run, job_input).run().result()

    def bare() -> None:
        plain.generate(parameters, ignore)

    row: dict[str, Any] = {"side": side, "steps": steps, "runs": runs}
    handler_s, bare_s = alternate([by_handler, bare], runs)
    for name, times in (("handler", handler_s), ("bare", bare_s)):
        median, least, most = (round(f(times), 4) for f in (statistics.median, min, max))
        print(
            f"    {side:5} {name:8} {median:8.3f} s ({least:.3f} to {most:.3f}) {steps / median:6.1f} steps/s"
        )
        row[f"{name}_s"] = {"median": median, "least": least, "most": most}
    row["ratio"] = round(statistics.median(handler_s) / statistics.median(bare_s), 3)
    picture, exact = (np.asarray(one.generate(parameters, ignore)) for one in (model.pipeline, plain))
    row["psnr_db"], row["ssim"] = round(psnr_db(picture, exact), 2), round(ssim(picture, exact), 4)
    row["peak_mib"] = (model.memory.most_bytes or process_peak()) >> 20
    print(f"    ratio {row['ratio']}, PSNR {row['psnr_db']} dB, SSIM {row['ssim']}, {row['peak_mib']} MiB")
    return row


def ignore(step: Any) -> None:
    pass


def alternate(works: list[Callable[[], None]], runs: int) -> list[list[float]]:
    """Times the works in turns and in alternating order, so that a slower machine affects all alike."""
    for _ in range(WARM_UPS):
        for work in works:
            work()
    times: list[list[float]] = [[] for _ in works]
    order = list(range(len(works)))
    for _ in range(runs):
        for which in order:
            times[which].append(timed(works[which]))
        order.reverse()
    return times


def process_peak() -> int:
    """The largest resident memory of this process so far, in bytes: with the plain library's weights."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gpu() -> Device:
    found = torch.cuda.get_device_properties(0)
    return Device(uuid=f"GPU-{found.uuid}", kind="gpu", name=found.name)


def machine() -> dict[str, Any]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_name()
    return {
        "device": device,
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def versions() -> dict[str, str]:
    return {"stoker": stoker.__version__, **libraries.versions(), "python": platform.python_version()}


if __name__ == "__main__":
    main()
