"""The program of a worker: what changes it, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stoker.control.rules.needs import Needs
from stoker.control.rules.types import EndpointVersion
from stoker.control.store.jobs.programs import program
from stoker.wire.messages import LockedWeights, Price, WeightsFile, WorkerLimits

RUN = EndpointVersion("h.py:handler", env={"A": "1", "B": "2"}, weights=(LockedWeights("one", "folder"),))
OTHER_FILE = LockedWeights("one", "folder", files=(WeightsFile("a", 1, "ab"),))


@pytest.mark.parametrize(
    "change",
    [
        {"handler": "other.py:handler"},
        {"kind": "protocol"},
        {"command": ("python",)},
        {"entrypoint": ("sh",)},
        {"image": "one@sha256:ab"},
        {"env": {"A": "1", "B": "3"}},
        {"weights": (OTHER_FILE,)},
    ],
)
def test_what_may_change_a_save_changes_the_program(change: dict[str, Any]) -> None:
    assert program(replace(RUN, **change), 1) != program(RUN, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"prices": (Price("frames", 5),)},
        {"limits": WorkerLimits(cpus=2.0)},
        {"needs": Needs(gpu_count=2)},
        {"concurrency": 4},
        {"start_timeout_s": 1.0},
        {"env": {"B": "2", "A": "1"}},
    ],
)
def test_what_cannot_change_a_save_does_not(change: dict[str, Any]) -> None:
    assert program(replace(RUN, **change), 2) == program(RUN, 1)


def test_an_image_without_a_digest_may_be_another_in_each_version() -> None:
    tagged, pinned = replace(RUN, image="one:latest"), replace(RUN, image="one@sha256:ab")
    assert program(tagged, 1) != program(tagged, 2)
    assert program(pinned, 1) == program(pinned, 2)
