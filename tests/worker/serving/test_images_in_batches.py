"""The image model in a real worker that takes several jobs at once: they are made together, each with an end,
a progress, previews and measures of its own."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoker.models.text_to_image import metadata
from stoker.worker.frames import Frame

INPUT = {"width": 256, "height": 256, "num_inference_steps": 12, "image_format": "png"}


@pytest.fixture(scope="module")
def worker(start_shared_worker: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """flux-tiny, ready, with room for four jobs."""
    env = {
        "STOKER_PIPELINE": "flux-tiny",
        "STOKER_WEIGHTS_DIR": str(tmp_path_factory.mktemp("weights")),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    found = start_shared_worker("slots/images_in_batches.py:Images", env=env)
    ready = found.setup(concurrency=4, device=None)
    assert (ready.kind, ready.fields.get("concurrency")) == ("ready", 4), ready
    return found


def begin(worker: Any, job: str, **more: Any) -> None:
    scratch = worker.scratch / job
    body = json.dumps({"prompt": f"a {job}", **INPUT, **more}).encode()
    worker.send("run", body, job=job, attempt=1, scratch=str(scratch))


def received(worker: Any) -> Frame:
    """The next frame, whose file is read from the disk."""
    frame: Frame = worker.next()
    if frame.fd is not None:
        os.close(frame.fd)
    return frame


def ends(worker: Any, *jobs: str) -> tuple[dict[str, Frame], dict[str, list[Frame]]]:
    """The end of each job, and all its frames before."""
    ended: dict[str, Frame] = {}
    frames: dict[str, list[Frame]] = defaultdict(list)
    while set(jobs) - ended.keys():
        frame = received(worker)
        if frame.kind in ("done", "failed"):
            ended[frame.job] = frame
        elif frame.kind not in ("slots", "retire"):
            frames[frame.job].append(frame)
    return ended, frames


def progress(frames: list[Frame]) -> list[int]:
    return [json.loads(frame.body)["step"] for frame in frames if frame.kind == "progress"]


def pixels(worker: Any, job: str) -> tuple[Any, dict[str, Any]]:
    path = worker.scratch / job / "image.png"
    made = metadata.read(path)
    assert made is not None
    with Image.open(path) as image:
        return np.asarray(image, int), made


@pytest.mark.slow
def test_jobs_are_made_together_and_one_that_is_cancelled_harms_no_other(worker: Any) -> None:
    """Four jobs in a batch, of which one is cancelled in the middle; then each of the others alone."""
    jobs = ("fox", "boat", "lighthouse", "flower")
    for seed, job in enumerate(jobs):
        begin(worker, job, seed=seed)
    before: dict[str, list[Frame]] = defaultdict(list)
    while progress(before["boat"])[-1:] != [2]:
        frame = received(worker)
        before[frame.job if frame.kind != "slots" else ""].append(frame)
    worker.cancel(job="boat")
    ended, frames = ends(worker, *jobs)
    assert {job: end.kind for job, end in ended.items()} == {
        "fox": "done",
        "boat": "failed",
        "lighthouse": "done",
        "flower": "done",
    }
    assert ended["boat"].fields["error"].startswith("cancelled")
    for seed, job in enumerate(jobs):
        if job == "boat":
            continue
        seen = before[job] + frames[job]
        assert progress(seen) == list(range(1, 13))
        previews = [json.loads(frame.body)["preview"]["step"] for frame in seen if frame.kind == "chunk"]
        assert (previews[0], previews[-1]) == (1, 12)
        assert ended[job].fields["metrics"] == {"output_pixels": 256 * 256}
        assert json.loads(ended[job].body)["seed"] == seed
        together, made = pixels(worker, job)
        assert made["batch"] == 4
        begin(worker, f"{job}-alone", prompt=f"a {job}", seed=seed, strict=True)
        again, _ = ends(worker, f"{job}-alone")
        assert again[f"{job}-alone"].kind == "done"
        alone, made = pixels(worker, f"{job}-alone")
        assert "batch" not in made
        assert np.abs(together - alone).max() <= 1


@pytest.mark.slow
def test_strict_jobs_have_the_same_bytes_beside_others(worker: Any) -> None:
    """Two that are the same, one of another size, one that is refused: all at once."""
    begin(worker, "first", prompt="a fox", seed=5, strict=True)
    begin(worker, "second", prompt="a fox", seed=5, strict=True)
    begin(worker, "wide", width=320, seed=5, strict=True)
    begin(worker, "refused", scheduler="lms")
    ended, frames = ends(worker, "first", "second", "wide", "refused")
    assert [ended[job].kind for job in ("first", "second", "wide", "refused")] == ["done"] * 3 + ["failed"]
    assert ended["refused"].fields["error"].startswith('scheduler: "lms" is not allowed; it must be euler or')
    first, second = ((worker.scratch / job / "image.png").read_bytes() for job in ("first", "second"))
    assert first == second
    assert ended["wide"].fields["metrics"] == {"output_pixels": 320 * 256}
    assert all(progress(frames[job]) == list(range(1, 13)) for job in ("first", "second", "wide"))
