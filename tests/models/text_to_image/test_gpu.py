"""The image model on a GPU, in the number format that it computes in there; and that format without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from stoker.models.interface import ImageParameters, Step
from stoker.models.registry import PIPELINES
from stoker.models.text_to_image import metadata, previews, tiny
from stoker.models.text_to_image.families.flux import Flux
from stoker.models.text_to_image.handler import TextToImage
from stoker.worker import Device
from stoker.worker.testing import LocalJob

INPUT = {"prompt": "a lighthouse", "width": 512, "height": 512, "num_inference_steps": 4, "seed": 1}


@pytest.mark.gpu
def test_an_image_on_a_gpu(gpu: Device, weights_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(weights_dir))
    monkeypatch.setenv("STOKER_PIPELINE", "flux-tiny")
    handler = TextToImage()
    handler.setup(gpu)
    assert_it_is_on_the_gpu(handler)
    first, again, other = (LocalJob(handler.run, INPUT | {"seed": seed}).run() for seed in (1, 1, 2))
    assert (first.error, again.error, other.error) == (None, None, None)
    images = [job.files[0].path.read_bytes() for job in (first, again, other)]
    assert images[0] == images[1] != images[2]
    made = metadata.read(first.files[0].path)
    assert made is not None
    assert made["device"] == "cuda"
    assert colours(first.files[0].path) > 100
    assert [chunk["preview"]["step"] for chunk in first.chunks][-1] == 4
    assert first.metrics == {"output_pixels": 512 * 512}


def assert_it_is_on_the_gpu(handler: TextToImage) -> None:
    """Each part on the GPU, in what the profile computes in."""
    import torch

    for part in (
        handler.pipeline.pipe.transformer,
        handler.pipeline.pipe.vae,
        handler.pipeline.pipe.text_encoder,
    ):
        for parameter in part.parameters():
            assert (parameter.device.type, parameter.dtype) == ("cuda", torch.bfloat16)


def colours(path: Path) -> int:
    """How many different ones there are: an image of NaN or of nothing has one."""
    with Image.open(path) as image:
        found = image.getcolors(maxcolors=image.width * image.height)
    return len(found or ())


@pytest.mark.slow
def test_the_number_format_of_a_gpu_makes_previews_and_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the device: bfloat16 from the fit of the previews to the image. A CPU is slow at it."""
    import torch

    monkeypatch.setattr(previews, "_FIT_SIDE", 256)
    monkeypatch.setattr(previews, "_FIT_PROMPTS", ("a red flower",))
    tiny.build(tmp_path / "tiny")
    flux = Flux(tmp_path / "tiny", "cpu", text_tokens=16)
    flux.pipe.to(torch.bfloat16)
    previewer = previews.fit(flux, PIPELINES["flux-tiny"])
    shown = []

    def on_step(step: Step) -> None:
        shown.append(previewer.chunk(step)["preview"]["step"])

    image = flux.generate(ImageParameters("a lighthouse", 256, 256, 4, seed=1, guidance=3.5), on_step)
    image.save(tmp_path / "image.png")
    assert (image.size, shown) == ((256, 256), [1, 2, 3, 4])
    assert colours(tmp_path / "image.png") > 100
