"""Draws with two processes that share the work, and compares with one: prints `same` for each.

python checks_several_processes.py FOLDER
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
import torch.distributed
import torch.multiprocessing

from stoker.models.speed_ups.several_gpus import context_parallel
from tests.models.speed_ups.pictures import flux, loaded, most, picture

RANKS = 2


def draw(rank: int, folder: str, meeting: str) -> None:
    torch.set_num_threads(1)
    torch.accelerator.device_count = lambda: RANKS  # type: ignore[assignment]  # each CPU process is a GPU
    torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=RANKS)
    try:
        whole = picture(flux(Path(folder)))
        divided = flux(Path(folder))
        assert context_parallel(loaded(divided)) == f"{RANKS} GPUs"
        different = most(picture(divided), whole)
        print("same" if different <= 2 else f"different by {different}", flush=True)
    finally:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.spawn(draw, (sys.argv[1], f"{place}/meeting"), nprocs=RANKS)
