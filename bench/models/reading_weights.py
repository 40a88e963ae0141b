"""Measures how long a pipeline takes from its files to its first use, by stage: as served, and with the plain
library, in one run.

    python bench/models/reading_weights.py [--mib 600] [--rounds 3] [--cuda]
                                             [--json bench/results/reading-weights.json]

The files are flux-tiny's with a transformer of so many MiB of random weights. Each case is a process of its
own, which has imported the libraries before; the cases take turns. It ends when each weight was read once:

    library            diffusers' `from_pretrained`; nothing is verified
    verified before    all files are hashed, then the same
    as served          the files are hashed while the pipeline is built
    served again       the digests are known, as at each later start

Each runs with the files in memory (the page cache) and not in it. `disk_mib` is what the process read
from the disk. `others` is how many cores other processes used: above 0.3, the seconds say little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from timing import synchronize

sys.path.append(str(Path(__file__).parents[1]))
from measured_on import machine, others

from stoker.models import interface, libraries
from stoker.models.cold_start import ColdStart, stage
from stoker.models.interface import PipelineEntry
from stoker.models.text_to_image import tiny
from stoker.models.text_to_image.families.flux import Flux
from stoker.models.weights import Entry, LockedFile, Reading, lock_from_folder, verify
from stoker.models.weights.verification import cache_path

CASES = ("library", "verified before", "as served", "served again")
PIPELINE = PipelineEntry("wide", "text-to-image", "wide", load=Flux)


def make(folder: Path, mib: int) -> Entry:
    """The files, and the entry that locks them."""
    import diffusers

    tiny.build(folder / "tiny")
    pipe = Flux(folder / "tiny", "cpu").pipe
    torch.manual_seed(0)
    narrow = sum(weight.numel() * 4 for weight in pipe.transformer.parameters()) / 2**20
    heads = max(2, round(2 * (mib / narrow) ** 0.5))
    config = {**pipe.transformer.config, "num_attention_heads": heads}
    pipe.transformer = diffusers.FluxTransformer2DModel.from_config(config)
    pipe.save_pretrained(folder / "wide")
    return lock_from_folder(Entry("wide", "folder", "Apache-2.0", ()), folder / "wide")


def run(case: str, folder: Path, device: str) -> dict[str, float]:
    """The seconds of each stage of one case; for a process of its own."""
    entry = _entry(json.loads((folder / "lock.json").read_text()))
    libraries.prepare()
    import diffusers

    Flux(folder / "tiny", device)  # imports, and what the first load keeps
    synchronize()
    weights = folder / "wide"
    before = disk_bytes()
    with ColdStart() as start:
        if case == "verified before":
            with stage("verify"):
                verify(entry, weights, cache=False)
        if case in ("library", "verified before"):
            dtype = torch.float32 if device == "cpu" else torch.bfloat16
            with stage("build"):
                pipe = diffusers.FluxPipeline.from_pretrained(str(weights), dtype=dtype, use_safetensors=True)
            with stage("to device"):
                pipe.to(device)
        else:
            with stage("verify"):
                reading = Reading(entry, weights)
            pipe = interface.load(PIPELINE, weights, device, reading=reading).pipe
        with stage("first use"), torch.inference_mode():
            sum(float(weight.sum()) for weight in pipe.transformer.parameters())
            synchronize()
    return {**start.stages_s, "total": start.total_s, "disk_mib": (disk_bytes() - before) / 2**20}


def _entry(row: dict[str, Any]) -> Entry:
    files = [LockedFile(one["path"], one["size"], one["sha256"]) for one in row["files"]]
    return Entry(row["name"], row["source"], row["licence"], tuple(files))


def disk_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def measure(mib: int, rounds: int, device: str) -> dict[str, Any]:
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"there is no NVIDIA GPU that torch {torch.__version__} can use; leave out --cuda")
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).resolve()
        entry = make(folder, mib)
        (folder / "lock.json").write_text(json.dumps(asdict(entry), default=str))
        size = sum(file.size or 0 for file in entry.files)
        found: dict[str, Any] = {"device": device, "mib": round(size / 2**20), "rounds": rounds, "cases": {}}
        rows: dict[str, list[dict[str, float]]] = {}
        for _ in range(rounds):
            for cached in (True, False):
                for case in CASES:
                    key = f"{case}, {'in memory' if cached else 'on disk'}"
                    rows.setdefault(key, []).append(one(case, folder, entry, device, cached=cached))
    for key, several in rows.items():
        names = several[0].keys()
        found["cases"][key] = {
            name: round(statistics.median(row[name] for row in several), 3) for name in names
        }
    return found


def one(case: str, folder: Path, entry: Entry, device: str, *, cached: bool) -> dict[str, float]:
    if case == "served again":
        verify(entry, folder / "wide")
    else:
        cache_path(folder / "wide").unlink(missing_ok=True)
    for file in (folder / "wide").rglob("*.safetensors"):
        number = os.open(file, os.O_RDONLY)
        os.fsync(number)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        while cached and os.read(number, 1 << 24):
            pass
        os.close(number)
    command = [sys.executable, __file__, "--case", case, "--folder", str(folder), "--device", device]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


def show(found: dict[str, Any]) -> None:
    print(f"{found['mib']} MiB on {found['device']}, medians of {found['rounds']}")
    for key, row in found["cases"].items():
        stages = ", ".join(
            f"{name} {seconds:.2f}"
            for name, seconds in row.items()
            if name not in ("total", "disk_mib", "other")
        )
        print(f"  {key:28}{row['total']:7.2f} s, {row['disk_mib']:6.0f} MiB from disk: {stages}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=600, help="of the transformer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cuda", action="store_true", help="on a GPU")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run(options.case, options.folder, options.device)))
        return
    about = machine("../models", "models/reading_weights.py")
    begun, before = time.perf_counter(), others()
    found = measure(options.mib, options.rounds, "cuda" if options.cuda else "cpu")
    about["others"] = round((others() - before) / (time.perf_counter() - begun), 2)
    show(found)
    print(f"  {json.dumps(about)}")
    if options.json:
        options.json.write_text(json.dumps({"machine": about, **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
