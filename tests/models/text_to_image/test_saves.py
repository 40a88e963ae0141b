"""Saves of image jobs: when a job saves, and that it goes on to the same bytes as without a break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stoker.models.text_to_image import saves
from stoker.models.text_to_image.handler import TextToImage
from stoker.models.text_to_image.saves import EVERY_S, LONG_S, MOMENT_S, SHARE, Begun, due, packed, unpacked
from stoker.worker import Job
from stoker.worker.testing import LocalJob, LocalSave

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
"""diffusers' Euler scheduler, with a newer numpy."""

SMALL = {"prompt": "a lighthouse", "width": 256, "height": 256, "num_inference_steps": 5, "seed": 1}


@pytest.fixture
def at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job is long, and saves after each of its steps but the first and the last."""
    monkeypatch.setattr(saves, "due", lambda **_: True)


def painted(
    model: TextToImage, saved: LocalSave | None = None, *, asked_at: int = 0, **changes: Any
) -> LocalJob:
    """A job; it is asked to yield when it reports the step `asked_at`."""

    def on_progress(value: Any) -> None:
        if value["step"] == asked_at:
            job.ask_to_yield()

    job = LocalJob(model.run, {**SMALL, **changes}, saved=saved, on_progress=on_progress)
    return job.run()


def files(job: LocalJob) -> list[bytes]:
    assert job.error is None
    return [file.path.read_bytes() for file in job.files]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"image_format": "jpeg", "negative_prompt": "rocks"},
        {"scheduler": "euler"},
        {"scheduler": "dpm++2m"},
        {"scheduler": "unipc"},
        {"num_images": 3},
        {"seed": -1},
    ],
    ids=str,
)
@pytest.mark.slow
@pytest.mark.numbers
def test_a_job_goes_on_from_each_of_its_saves_to_the_same_bytes(
    model: TextToImage, at_each_step: None, changes: dict[str, Any]
) -> None:
    whole = painted(model, **changes)
    expected = files(whole)
    assert len(whole.saves) == 3 * len(expected) + (len(expected) - 1)
    for save in whole.saves:
        again = painted(model, save, **changes)
        assert files(again) == expected
        assert again.metrics == whole.metrics
        seeds = [one["seed"] for one in again.output.get("images", [again.output])]
        assert seeds == [one["seed"] for one in whole.output.get("images", [whole.output])]


@pytest.mark.parametrize("masked", [False, True])
def test_a_job_that_starts_from_an_image_goes_on_to_the_same_bytes(
    model: TextToImage, at_each_step: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, masked: bool
) -> None:
    fetch = Job.fetch
    near = lambda job, url, **limits: fetch(job, str(tmp_path / url.rpartition("/")[2]), **limits)  # noqa: E731
    monkeypatch.setattr(Job, "fetch", near)
    pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "start.png")
    Image.fromarray(np.where(pixels[0, :, :1] > 128, 255, 0).astype(np.uint8).repeat(256, 1)).save(
        tmp_path / "mask.png"
    )
    changes: dict[str, Any] = {"image": "http://here/start.png", "strength": 0.8}
    if masked:
        changes["mask_image"] = "http://here/mask.png"
    whole = painted(model, **changes)
    assert whole.error is None
    assert whole.saves
    for save in whole.saves:
        assert files(painted(model, save, **changes)) == files(whole)


def test_what_was_made_is_not_made_again(model: TextToImage, at_each_step: None) -> None:
    whole = painted(model)
    calls: list[int] = []
    transformer = model.pipeline.pipe.transformer  # type: ignore[attr-defined]
    forward = transformer.forward
    transformer.forward = lambda *args, **named: (calls.append(1), forward(*args, **named))[1]
    try:
        again = painted(model, whole.saves[-1])
    finally:
        transformer.forward = forward
        del transformer.forward
    assert [one["step"] for one in again.progress] == [5], "the step after the fourth"
    assert len(calls) == 2, "the first, for the form of its answer, and the last"


def test_a_long_job_that_is_asked_to_yield_saves_at_once_and_goes_on(
    model: TextToImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saves, "MOMENT_S", 0.0)
    expected = files(painted(model))
    first = painted(model, asked_at=2)
    assert (first.yielded, [one["step"] for one in first.progress]) == (True, [1, 2])
    second = painted(model, first.saves[-1])
    assert (files(second), [one["step"] for one in second.progress]) == (expected, [3, 4, 5])


def test_a_short_job_saves_nothing_and_ends_when_it_is_asked(model: TextToImage) -> None:
    job = painted(model, asked_at=1)
    assert (job.error, job.saves) == (None, [])


def test_a_save_of_another_release_is_not_gone_on_from(
    model: TextToImage, at_each_step: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = painted(model)
    monkeypatch.setitem(model.__dict__, "_maker", "another release")
    again = painted(model, whole.saves[-1])
    assert files(again) == files(whole)
    assert [one["step"] for one in again.progress] == [1, 2, 3, 4, 5]


def test_where_a_speed_up_keeps_something_itself_there_is_no_save(
    model: TextToImage, at_each_step: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.pipeline, "speed_ups", {"taylor-seer": "applied"})
    assert painted(model).saves == []


# ---- the rule -----------------------------------------------------------------------------------


SECONDS = st.floats(0.0, 1e4)
STEPS = st.integers(0, 100)


@given(SECONDS, STEPS, STEPS, SECONDS, SECONDS)
def test_saves_take_no_more_than_their_share(
    step_s: float, made: int, left: int, since_s: float, cost_s: float
) -> None:
    if due(step_s=step_s, made=made, left=left, since_s=since_s, cost_s=cost_s, asked=False):
        assert (made + left) * step_s > LONG_S
        assert since_s >= EVERY_S
        assert cost_s <= since_s * SHARE * (1 + 1e-9)
    if due(step_s=step_s, made=made, left=left, since_s=since_s, cost_s=cost_s, asked=True):
        assert left * step_s > MOMENT_S


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"since_s": EVERY_S - 0.1}, False),
        ({"step_s": 0.5}, False),
        ({"cost_s": 1.0}, False),
        ({"step_s": 0.5, "asked": True}, True),
        ({"left": 1, "step_s": 2.0, "asked": True}, False),
    ],
)
def test_when_a_job_of_fifty_steps_saves(change: dict[str, Any], expected: bool) -> None:
    usual = {"step_s": 1.0, "made": 20, "left": 30, "since_s": 20.0, "cost_s": 0.1, "asked": False}
    assert due(**usual | change) is expected  # type: ignore[arg-type]


@given(st.integers(0, 2**63), st.lists(st.binary()), st.binary())
def test_a_save_is_read_as_it_was_written(seed: int, images: list[bytes], state: bytes) -> None:
    begun = Begun(seed, tuple(images), state)
    assert unpacked(packed(begun, "maker"), "maker") == begun
    assert unpacked(packed(begun, "maker"), "another") is None
    assert unpacked(None, "maker") is None
