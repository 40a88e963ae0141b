"""The hosted image model, run with no platform on flux-tiny."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from stoker.models.interface import ImageParameters, Step
from stoker.models.text_to_image import handler, metadata, previews
from stoker.models.text_to_image.handler import TextToImage
from stoker.models.weights import read_lock
from stoker.worker import Device
from stoker.worker.testing import LocalJob

Paint = Callable[..., LocalJob]


def image_bytes(job: LocalJob) -> bytes:
    assert job.error is None
    data: bytes = job.output["image_url"].read_bytes()
    return data


def opened(path: Path) -> Image.Image:
    """The image in a file, read to its end, so that nothing stays open."""
    with Image.open(path) as image:
        image.load()
        return image


def decoded(chunk: dict[str, Any]) -> Image.Image:
    preview = chunk["preview"]
    image = Image.open(io.BytesIO(base64.b64decode(preview["data"])))
    image.load()
    assert (image.format, image.size) == (preview["format"].upper(), (preview["width"], preview["height"]))
    return image


@pytest.mark.parametrize("image_format", ["png", "jpeg"])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(paint: Paint, image_format: str) -> None:
    first, again, other = (paint(seed=seed, image_format=image_format) for seed in (1, 1, 2))
    assert image_bytes(first) == image_bytes(again)
    assert image_bytes(first) != image_bytes(other)


@pytest.mark.parametrize(
    "change",
    [{"prompt": "a fox"}, {"guidance": 2.0}, {"num_inference_steps": 3}, {"negative_prompt": "rocks"}],
)
def test_every_parameter_reaches_the_image(paint: Paint, change: dict[str, Any]) -> None:
    plain, changed = paint(image_format="png"), paint(image_format="png", **change)
    assert opened(plain.files[0].path).tobytes() != opened(changed.files[0].path).tobytes()


def test_what_a_pipeline_notes_of_an_image_stands_in_the_output(
    paint: Paint, model: TextToImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def notes(parameters: ImageParameters) -> dict[str, Any]:
        return {"not_drawn": parameters.prompt.split()}

    assert "not_drawn" not in paint(prompt="a quiet sea").output
    monkeypatch.setattr(model.pipeline, "notes", notes, raising=False)
    assert paint(prompt="a quiet sea").output["not_drawn"] == ["a", "quiet", "sea"]


def test_an_empty_negative_prompt_is_none(paint: Paint) -> None:
    assert image_bytes(paint()) == image_bytes(paint(negative_prompt="  "))


def test_a_negative_prompt_doubles_the_forwards(paint: Paint, model: TextToImage) -> None:
    calls = []
    hook = model.pipeline.pipe.transformer.register_forward_hook(lambda *_: calls.append(1))
    paint()
    plain = len(calls)
    paint(negative_prompt="rocks")
    hook.remove()
    assert (plain, len(calls)) == (2, 2 + 4)


def test_a_prompt_of_any_length_is_read_as_far_as_the_model_reads(paint: Paint) -> None:
    assert image_bytes(paint(prompt="a fox " * 6_000)) == image_bytes(paint(prompt="a fox " * 1_000_000))


@pytest.mark.parametrize(
    ("part", "what"), [("transformer", "latents"), ("vae.decoder", "pixels")], ids=["latents", "pixels"]
)
def test_what_is_not_a_number_fails_the_job_and_the_second_in_a_row_the_worker(
    paint: Paint, model: TextToImage, part: str, what: str
) -> None:
    """The library would make a black picture of it."""

    def broken(module: object, given: object, output: object) -> object:
        if isinstance(output, tuple):
            return (output[0] * float("nan"), *output[1:])
        assert isinstance(output, torch.Tensor)
        return output * float("inf")

    handle = _module(model, part).register_forward_hook(broken)
    try:
        first, second = paint(), paint()
    finally:
        handle.remove()
    for job in (first, second):
        assert job.error is not None
        assert f"the model computed {what} that are not finite numbers" in job.error
        assert job.retryable
        assert job.metrics == {}
    assert (first.retired, second.retired) == (None, "the handler asked for a fresh worker (refresh_worker)")
    assert paint().error is None


def _module(model: TextToImage, part: str) -> torch.nn.Module:
    name, _, rest = part.partition(".")
    found: torch.nn.Module = getattr(model.pipeline.pipe, name)
    return found.get_submodule(rest) if rest else found


def test_minus_one_draws_a_seed_and_reports_it(paint: Paint) -> None:
    first, second = paint(seed=-1), paint(seed=-1)
    assert first.output["seed"] != second.output["seed"]
    assert 0 <= first.output["seed"] < 2**32
    assert image_bytes(first) == image_bytes(paint(seed=first.output["seed"]))


def test_the_largest_seed_works(paint: Paint) -> None:
    assert paint(seed=2**63 - 1).output["seed"] == 2**63 - 1


@pytest.mark.parametrize(("width", "height"), [(256, 256), (320, 256), (256, 448)])
def test_size_format_and_what_is_measured(paint: Paint, width: int, height: int) -> None:
    for image_format, media_type in (("png", "image/png"), ("jpeg", "image/jpeg")):
        job = paint(width=width, height=height, image_format=image_format)
        image = opened(job.files[0].path)
        assert (image.size, image.format, image.mode) == ((width, height), image_format.upper(), "RGB")
        assert job.files[0].media_type == media_type
        assert job.metrics == {"output_pixels": width * height}


def test_the_default_is_1024_squared_in_jpeg(model: TextToImage) -> None:
    job = LocalJob(model.run, {"prompt": "a lighthouse", "num_inference_steps": 1}).run()
    assert job.metrics == {"output_pixels": 1024 * 1024}
    assert job.files[0].name == "image.jpeg"


@pytest.mark.parametrize("image_format", ["png", "jpeg"])
def test_the_file_has_metadata_about_its_making(paint: Paint, image_format: str) -> None:
    job = paint(image_format=image_format, seed=7, guidance=2.5, negative_prompt="rocks")
    made = metadata.read(job.files[0].path)
    assert made is not None
    versions = made.pop("versions")
    assert set(versions) == {"stoker", "torch", "diffusers", "transformers"}
    assert made == {
        "seed": 7,
        "steps": 2,
        "guidance": 2.5,
        "negative_prompt_factor": 1.5,
        "width": 256,
        "height": 256,
        "pipeline": "flux-tiny",
        "made_up_weights": True,
        "profile": "exact",
        "speed_ups": {"prompt-cache": "up to 256 MiB"},
        "weights": f"sha256:{read_lock().entry('flux-tiny').digest}",
        "device": "cpu",
    }


def test_a_file_from_another_program_has_no_metadata(tmp_path: Path) -> None:
    for name in ("plain.png", "plain.jpeg"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
        assert metadata.read(tmp_path / name) is None


def test_progress_after_each_step(paint: Paint) -> None:
    assert paint(num_inference_steps=3).progress == [{"step": step, "steps": 3} for step in (1, 2, 3)]


def test_previews_open_and_end_with_the_last_step(paint: Paint) -> None:
    job = paint(num_inference_steps=4)
    steps = [chunk["preview"]["step"] for chunk in job.chunks]
    assert (steps[0], steps[-1]) == (1, 4)
    assert [decoded(chunk).size for chunk in job.chunks] == [(128, 128)] * len(steps)


def test_previews_are_at_most_every_fifth_of_a_second(
    model: TextToImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(step * 0.07 for step in range(100))
    monkeypatch.setattr(handler, "time", SimpleNamespace(monotonic=lambda: next(now)))
    job = LocalJob(model.run, {"prompt": "x", "width": 256, "height": 256, "num_inference_steps": 8}).run()
    assert [chunk["preview"]["step"] for chunk in job.chunks] == [1, 4, 7, 8]


def test_one_step_has_one_preview(paint: Paint) -> None:
    assert [chunk["preview"]["step"] for chunk in paint(num_inference_steps=1).chunks] == [1]


def test_the_last_preview_looks_like_the_image(model: TextToImage) -> None:
    """Rough: fitted to other images, yet far nearer to its own image than a plain grey is."""
    job = LocalJob(
        model.run, {"prompt": "a red flower on a table", "width": 512, "height": 512, "seed": 0}
    ).run()
    shown = decoded(job.chunks[-1]).resize((16, 16), Image.Resampling.BOX)
    true = opened(job.files[0].path).resize((16, 16), Image.Resampling.BOX)
    pairs = list(zip(shown.tobytes(), true.tobytes(), strict=True))
    mean = sum(b for _, b in pairs) / len(pairs)
    assert sum((a - b) ** 2 for a, b in pairs) < 0.8 * sum((mean - b) ** 2 for _, b in pairs)


def test_cancel_between_steps_ends_it_without_an_image(model: TextToImage) -> None:
    decodes = []
    hook = model.pipeline.pipe.vae.decoder.register_forward_hook(lambda *_: decodes.append(1))
    job = LocalJob(
        model.run,
        {"prompt": "x", "width": 256, "height": 256, "num_inference_steps": 50},
        on_progress=lambda value: job.cancel() if value["step"] == 3 else None,
    )
    job.run()
    hook.remove()
    assert job.progress[-1] == {"step": 3, "steps": 50}
    assert (job.error, job.files, decodes) == ("cancelled: cancelled by the test", [], [])


def test_after_a_cancel_the_next_job_is_as_if_nothing_had_been(paint: Paint, model: TextToImage) -> None:
    before = image_bytes(paint())
    job = LocalJob(model.run, {"prompt": "x", "num_inference_steps": 50}, on_progress=lambda _: job.cancel())
    job.run()
    assert image_bytes(paint()) == before


def test_the_image_is_the_one_that_diffusers_makes(model: TextToImage, paint: Paint) -> None:
    """The noise drawn here and the latents decoded here change nothing against the bare pipeline."""
    import torch

    bare = model.pipeline.pipe(
        "a lighthouse",
        width=256,
        height=256,
        num_inference_steps=2,
        guidance_scale=7.5,
        max_sequence_length=128,
        generator=torch.Generator("cpu").manual_seed(1),
    ).images[0]
    assert opened(paint(image_format="png").files[0].path).tobytes() == bare.tobytes()


def test_the_estimate_is_exact_at_the_last_step(model: TextToImage) -> None:
    import torch

    seen_steps: list[Step] = []
    image = model.pipeline.generate(
        ImageParameters("x", 256, 256, 2, seed=0, guidance=3.5), seen_steps.append
    )
    pipe = model.pipeline.pipe
    latents = seen_steps[-1].estimate() / pipe.vae.config.scaling_factor + pipe.vae.config.shift_factor
    with torch.inference_mode():
        raw = pipe.vae.decode(latents, return_dict=False)[0]
    assert pipe.image_processor.postprocess(raw)[0].tobytes() == image.tobytes()


def test_the_throttle_shows_the_first_and_the_last() -> None:
    throttle = previews.Throttle(interval_s=1.0)
    steps = [Step(number, 4, lambda: pytest.fail("not asked for")) for number in (1, 2, 3, 4)]
    assert [throttle.due(step, 0.0) for step in steps] == [True, False, False, True]


@pytest.mark.parametrize(
    ("job_input", "message"),
    [
        (
            {"width": 1000},
            "width: 1000 is not allowed; it must be an integer from 256 to 1536, divisible by 64",
        ),
        (
            {"height": 64},
            "height: 64 is not allowed; it must be an integer from 256 to 1536, divisible by 64",
        ),
        ({"num_inference_steps": 51}, "num_inference_steps: 51 is not allowed"),
        ({"image_format": "gif"}, 'image_format: "gif" is not allowed; it must be png or jpeg'),
        ({"prompt": ""}, 'prompt: "" is not allowed; it must be text with at least one character that is'),
        (
            {"prompt": "   "},
            'prompt: "   " is not allowed; it must be text with at least one character that is not',
        ),
    ],
)
def test_bad_input_fails_the_job_with_one_message(
    paint: Paint, job_input: dict[str, Any], message: str
) -> None:
    job = paint(**job_input)
    assert job.error is not None
    assert job.error.startswith(message)
    assert (job.retryable, job.progress, "Traceback" in job.error) == (False, [], False)


def test_weights_nobody_fetched_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STOKER_PIPELINE", "flux-1-dev")
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path))
    with pytest.raises(Exception, match=r"no such folder.*stoker weights fetch flux-1-dev"):
        TextToImage().setup(Device("GPU-1", "gpu", "a GPU"))


def test_weights_that_were_changed_are_made_anew(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """flux-tiny is Stoker's own product: after an update its old files make way for the new ones."""
    victim = folder / "vae" / "config.json"
    right = victim.read_bytes()
    victim.write_bytes(right.replace(b"1024", b"2048"))
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(folder.parent))
    monkeypatch.setenv("STOKER_PIPELINE", "flux-tiny")
    TextToImage().setup(Device())
    assert victim.read_bytes() == right
