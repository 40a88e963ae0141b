"""One picture by several processes: which networks can be divided, and that the parts make the whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker.models.speed_ups.several_gpus import check, context_parallel
from stoker.models.speed_ups.speed_up import NotHere
from tests.models.speed_ups.pictures import loaded

CHECKS = Path(__file__).with_name("checks_several_processes.py")


def test_one_process_is_left_as_it_is(flux: Any) -> None:
    with pytest.raises(NotHere, match="there is one process"):
        context_parallel(loaded(flux))


def test_heads_must_be_divisible(flux: Any) -> None:
    assert flux.pipe.transformer.config.num_attention_heads == 2
    check(flux.pipe.transformer, 2)
    with pytest.raises(NotHere, match="2 heads of attention cannot be divided among 3 GPUs"):
        check(flux.pipe.transformer, 3)


def test_networks_that_diffusers_cannot_divide_are_named() -> None:
    import torch

    with pytest.raises(NotHere, match="cannot divide Linear"):
        check(torch.nn.Linear(1, 1), 2)


@pytest.mark.slow
def test_two_processes_draw_what_one_does(tiny_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(CHECKS), str(tiny_folder)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.split() == ["same", "same"], done.stderr[-2000:]
