"""Measures how long a first image takes: from `stoker up` in an empty folder to the image of the hosted
model.

    python bench/first_image.py [--rounds 3] [--json bench/results/first-image.json]

`stoker up` makes the weights of flux-mini, starts control and an agent, whose zygote imports torch and
diffusers, and a worker that loads the weights and fits its previews. The job waits in the queue meanwhile. Of
several rounds the figures are the least.

    up ──> submitted ──> waited (the job's delayTime) ──> drawn     submitted to drawn: "from submission"

The limit is 6 s, of the time in the queue and of that from submission.

The peer is a script that does the same without a service, in the same round and with the same weights: it
imports diffusers, loads the pipeline, draws the picture and writes it. The ratio says what the service adds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
from dispatch_services import ROOT
from measured_on import machine

from stoker.client import Client

LIMIT_S = 6.0
LIMITED = ("waited", "from submission")
KEY = "sk_bench"
JOB = {"prompt": "a red lighthouse in the snow", "width": 512, "height": 512, "seed": 7}
PEER = """
import sys
import torch
from diffusers import FluxPipeline
pipe = FluxPipeline.from_pretrained(sys.argv[1], dtype=torch.float32, local_files_only=True)
pipe.set_progress_bar_config(disable=True)
noise = torch.Generator("cpu").manual_seed(7)
image = pipe("a red lighthouse in the snow", width=512, height=512, num_inference_steps=28, generator=noise,
             guidance_scale=3.5, max_sequence_length=20).images[0]
image.save(sys.argv[2])
"""


def environment(folder: Path) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    ours = {
        "STOKER_API_KEY": KEY,
        "STOKER_PIPELINE": "flux-mini",
        "STOKER_WEIGHTS_DIR": str(folder / "weights"),
    }
    return {**plain, **ours, "PYTHONPATH": str(ROOT / "src")}


def first_image(folder: Path) -> dict[str, float]:
    """Starts `stoker up`, sends a job as soon as control answers, and another one after it. Returns the
    seconds from the start to the first image, its parts, and those of the second."""
    command = [sys.executable, "-P", "-m", "stoker.cli", "up", "--port", "0", "--no-page"]
    read, write = os.pipe()
    with (folder / "said").open("wb") as said:
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, "--hosted", "text-to-image", "--ready-fd", str(write)],
            env=environment(folder),
            cwd=folder,
            pass_fds=[write],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    os.close(write)
    try:
        with open(read) as pipe:
            facts = json.loads(pipe.readline() or "{}")
        if "http" not in facts:
            raise SystemExit((folder / "said").read_text())
        found = {"up": time.monotonic() - began}
        with Client(facts["http"], KEY) as stoker:
            found |= one_image(stoker)
            found["first"] = time.monotonic() - began
            found["an image"] = one_image(stoker)["from submission"]
        return found
    finally:
        process.terminate()
        process.wait(60)


def one_image(stoker: Client) -> dict[str, float]:
    """Returns the seconds that a job waited, and those from its submission to its end."""
    began = time.monotonic()
    record = stoker.wait("text-to-image", stoker.run("text-to-image", JOB).id)
    if record.delay_time is None or not record.succeeded:
        raise SystemExit(f"the job ended as {record.status}: {record.error}")
    return {"waited": record.delay_time / 1000, "from submission": time.monotonic() - began}


def by_a_script(folder: Path) -> float:
    began = time.monotonic()
    weights = folder / "weights" / "flux-mini"
    subprocess.run([sys.executable, "-c", PEER, weights, folder / "image.png"], check=True)
    return time.monotonic() - began


def measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        found = first_image(Path(name))
        return {**found, "script": by_a_script(Path(name))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds = [measure() for _ in range(options.rounds)]
    seconds = {name: round(min(one[name] for one in rounds), 2) for name in rounds[0]}
    found: dict[str, Any] = {"seconds": seconds, "ratio": round(seconds["first"] / seconds["script"], 2)}
    for name, value in seconds.items():
        print(f"{name:15} {value:6.2f} s")
    late = [name for name in LIMITED if seconds[name] > LIMIT_S]
    found |= {"limit_s": LIMIT_S, "beyond_limit": late}
    print(f"{found['ratio']} times the script's; beyond {LIMIT_S:.0f} s: {', '.join(late) or 'nothing'}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine("first_image.py"), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
