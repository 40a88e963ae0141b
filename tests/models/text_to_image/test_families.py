"""Each family of image pipelines through the hosted model's handler, with small made-up weights on the CPU.

The weights are fetched, locked and verified as real ones; the pipelines are those of the registry.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from stoker.models import interface, weights
from stoker.models.interface import ImageParameters
from stoker.models.registry import pipeline
from stoker.models.speed_ups import profiles
from stoker.models.text_to_image import metadata, previews
from stoker.models.text_to_image.declaration import schema_for
from stoker.models.text_to_image.families.networks import networks, networks_of
from stoker.models.text_to_image.handler import TextToImage
from stoker.models.text_to_image.request import ImageRequest
from stoker.models.weights import Lock, LockedFile, WeightsRefused, alignment, read_lock
from stoker.worker import Device
from stoker.worker.testing import LocalJob
from tests.models.in_full import beyond
from tests.models.text_to_image import tiny_families

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
"""diffusers' Euler scheduler, with a newer numpy."""

SMALL = {"prompt": "a lighthouse", "width": 256, "height": 256, "num_inference_steps": 2, "seed": 1}
SMALL |= {"image_format": "png"}

PLAIN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "flux-2-klein-4b": ({}, {"guidance_scale": 1.0}),
    "qwen-image": (
        {"guidance": 6.0, "negative_prompt": "rocks"},
        {"true_cfg_scale": 6.0, "negative_prompt": "rocks"},
    ),
    "sd-3.5-large": (
        {"guidance": 6.0, "negative_prompt": "rocks"},
        {"guidance_scale": 6.0, "negative_prompt": "rocks"},
    ),
    "z-image-turbo": ({}, {"guidance_scale": 0.0}),
    "sdxl": (
        {"guidance": 6.0, "negative_prompt": "rocks"},
        {"guidance_scale": 6.0, "negative_prompt": "rocks"},
    ),
}
"""A request, and the arguments of diffusers' pipeline that mean the same."""


@pytest.fixture(scope="module", params=beyond("sdxl", names=sorted(tiny_families.BUILDERS)))
def handler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The handler with one family, set up as in a worker; previews are fitted to one image."""
    import torch

    torch.set_num_threads(1)
    name, home = request.param, tmp_path_factory.mktemp("families")
    tiny_families.build(name, home / name)
    entry = weights.lock_from_folder(replace(read_lock().entry(name), files=()), home / name)
    weights.write_lock(Lock([entry]), home / "weights.lock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_WEIGHTS_DIR", str(home))
        patch.setenv("STOKER_PIPELINE", name)
        patch.setattr("stoker.models.weights.lock.lock_path", lambda: home / "weights.lock")
        patch.setattr(previews, "_FIT_SIDE", 256)
        patch.setattr(previews, "_FIT_PROMPTS", ("a red flower",))
        found = TextToImage()
        found.setup(Device())
    found.folder = home / name  # type: ignore[attr-defined]
    return found


@pytest.mark.slow
@pytest.mark.numbers
def test_an_image_goes_on_from_any_step_with_each_scheduler(handler: TextToImage) -> None:
    """To the same pixels as without a break, also one that starts from an image."""
    plain = ImageParameters("a lighthouse", 256, 256, 4, seed=7, guidance=handler.entry.defaults.guidance)
    start = Image.linear_gradient("L").convert("RGB")
    choices = handler.entry.choices
    wanted = [plain, *(replace(plain, scheduler=name) for name in choices.schedulers)]
    wanted += [replace(plain, image=start, strength=0.75, scheduler=name) for name in choices.from_image]
    for parameters in wanted:
        states: dict[int, bytes] = {}

        def keep(step: interface.Step, states: dict[int, bytes] = states) -> None:
            assert step.state is not None
            states[step.number] = step.state()

        whole = handler.pipeline.generate(parameters, keep)
        numbers = sorted(states)[:-1]
        for number in numbers[:1] + numbers[-1:]:
            reported: list[int] = []
            again = handler.pipeline.generate(
                replace(parameters, state=states[number]),
                lambda step, reported=reported: reported.append(step.number),
            )
            assert again.tobytes() == whole.tobytes(), (parameters.scheduler, parameters.image, number)
            assert reported == sorted(states)[number:]


def test_every_weight_lies_at_a_boundary(handler: TextToImage) -> None:
    """Else the last bits of an image would depend on the length of a header."""
    for network in networks_of(handler.pipeline.pipe):  # type: ignore[attr-defined]
        for weight in (*network.parameters(), *network.buffers()):
            assert alignment.is_aligned(weight)


@pytest.mark.parametrize("profile", ["fast", "low-memory"])
def test_every_profile_runs_without_a_gpu(handler: TextToImage, profile: str, plain: LocalJob) -> None:
    """It draws much the same picture, says in the file what it is, and the same seed gives the same bytes."""
    import numpy as np

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_PROFILE", f"{handler.entry.name}={profile}")
        other = interface.load(handler.entry, handler.folder, "cpu", profiles.chosen(handler.entry))
        other.warm([(256, 256)], handler.entry.defaults)
    asked = ImageParameters("a lighthouse", 256, 256, 2, seed=1, guidance=handler.entry.defaults.guidance)
    first, again = (np.asarray(other.generate(asked, lambda step: None)).astype(int) for _ in range(2))
    with Image.open(io.BytesIO(image_bytes(plain))) as image:
        exact = np.asarray(image).astype(int)
    assert (first == again).all()
    assert abs(first - exact).mean() < 0.5 * exact.std()
    assert interface.profile_of(other) == {"profile": profile, "speed_ups": dict(other.speed_ups)}
    assert set(other.speed_ups) >= ({"planned-placement"} if profile == "low-memory" else {"prompt-cache"})


def test_networks_that_are_read_straight_to_a_device_are_those_of_the_library(
    handler: TextToImage, plain: LocalJob
) -> None:
    """All of them, with the same numbers, in the same formats; and they draw the same bytes."""
    import torch

    entry = read_lock(handler.folder.parent / "weights.lock").entry(handler.entry.name)
    for dtype in (torch.bfloat16, torch.float32):
        reading = weights.Reading(entry, handler.folder)
        found = networks(handler.folder, reading, "cpu", dtype)
        reading.finish()
        library = type(handler.pipeline.pipe).from_pretrained(
            handler.folder, dtype=dtype, local_files_only=True, use_safetensors=True
        )
        modules = {name for name, one in library.components.items() if isinstance(one, torch.nn.Module)}
        assert found.keys() == modules
        for name, module in found.items():
            same(module, library.components[name])
    pipeline = handler.pipeline
    kept = {name: getattr(pipeline.pipe, name) for name in found}
    try:
        pipeline.pipe.register_modules(**found)
        assert image_bytes(painted(handler)) == image_bytes(plain)
    finally:
        pipeline.pipe.register_modules(**kept)


def same(found: Any, expected: Any) -> None:
    import torch

    assert (type(found), found.training) == (type(expected), False)
    for ours, theirs in (
        (dict(found.named_parameters()), dict(expected.named_parameters())),
        (dict(found.named_buffers()), dict(expected.named_buffers())),
    ):
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert (name, ours[name].dtype) == (name, tensor.dtype)
            assert torch.equal(ours[name], tensor), name


@pytest.fixture(scope="module")
def plain(handler: TextToImage) -> LocalJob:
    """A job that only names what is small and cheap."""
    return painted(handler)


def painted(handler: TextToImage, **more: Any) -> LocalJob:
    job = LocalJob(handler.run, SMALL | more).run()
    assert job.error is None, job.error
    return job


def image_bytes(job: LocalJob) -> bytes:
    data: bytes = job.output["image_url"].read_bytes()
    return data


def pixels(job: LocalJob) -> bytes:
    with Image.open(io.BytesIO(image_bytes(job))) as image:
        return image.tobytes()


def test_it_is_reported_and_measured(handler: TextToImage, plain: LocalJob) -> None:
    job = plain
    made = metadata.read(job.files[0].path)
    assert made is not None
    assert (job.output["pipeline"], made["pipeline"]) == (handler.entry.name, handler.entry.name)
    assert job.metrics == {"output_pixels": 256 * 256}
    assert job.progress == [{"step": 1, "steps": 2}, {"step": 2, "steps": 2}]
    previews = [chunk["preview"] for chunk in job.chunks]
    assert (previews[0]["step"], previews[-1]["step"]) == (1, 2)
    assert all((preview["width"], preview["height"]) == (128, 128) for preview in previews)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(
    handler: TextToImage, plain: LocalJob
) -> None:
    again, other = (image_bytes(painted(handler, seed=seed)) for seed in (1, 2))
    assert image_bytes(plain) == again != other


def test_the_pixels_are_those_of_the_plain_pipeline(handler: TextToImage) -> None:
    import torch

    asked, arguments = PLAIN[handler.entry.name]
    bare = handler.pipeline.pipe(
        prompt="a lighthouse",
        width=320,
        height=256,
        num_inference_steps=2,
        generator=torch.Generator("cpu").manual_seed(1),
        **arguments,
    ).images[0]
    assert pixels(painted(handler, width=320, **asked)) == bare.tobytes()
    assert len(bare.getcolors(320 * 256)) > 100


def test_in_a_batch_an_image_is_the_same_within_one_level(handler: TextToImage) -> None:
    """As made alone, with prompts of any length; and each job of the batch sees its own previews."""
    import numpy as np
    import torch

    defaults, pipeline_ = handler.entry.defaults, handler.pipeline
    images = [
        ImageRequest.parse(SMALL | {"prompt": prompt}, schema_for(handler.entry)).parameters(defaults, seed)
        for seed, prompt in enumerate(("a fox", "a lighthouse on a cliff at dawn, seen from a boat", "x"))
    ]
    seen: list[list[torch.Tensor]] = [[], [], []]
    made = pipeline_.generate_batch(  # type: ignore[attr-defined]
        images, lambda place, step: seen[place].append(step.estimate())
    )
    for image, together, estimates in zip(images, made, seen, strict=True):
        steps: list[torch.Tensor] = []
        alone = pipeline_.generate(image, lambda step, to=steps: to.append(step.estimate()))
        levels = np.abs(np.asarray(alone, int) - np.asarray(together, int))
        assert levels.max() <= 1
        assert len(steps) == len(estimates) == 2
        assert all(torch.allclose(one, two, atol=1e-3) for one, two in zip(steps, estimates, strict=True))


def test_guidance_and_negative_prompt_do_what_the_defaults_say(handler: TextToImage, plain: LocalJob) -> None:
    defaults = handler.entry.defaults
    guided, without = (
        pixels(painted(handler, **one)) for one in ({"guidance": 2.0}, {"negative_prompt": "x"})
    )
    assert (guided != pixels(plain)) == (defaults.guidance is not None)
    assert (without != pixels(plain)) == defaults.negative_prompt


def test_a_cancel_ends_it_between_two_steps(handler: TextToImage, plain: LocalJob) -> None:
    decodes: list[int] = []
    hook = handler.pipeline.pipe.vae.decoder.register_forward_hook(lambda *_: decodes.append(1))  # type: ignore[attr-defined]
    job = LocalJob(
        handler.run,
        SMALL | {"num_inference_steps": 50},
        on_progress=lambda value: job.cancel() if value["step"] == 2 else None,
    )
    job.run()
    hook.remove()
    assert (job.error, job.files, decodes) == ("cancelled: cancelled by the test", [], [])
    assert job.progress[-1]["step"] == 2
    assert image_bytes(painted(handler)) == image_bytes(plain)


@pytest.mark.parametrize("change", [{"width": 1600}, {"num_inference_steps": 51}, {"guidance": 11}])
def test_the_bounds_are_the_interfaces(handler: TextToImage, change: dict[str, Any]) -> None:
    job = LocalJob(handler.run, SMALL | change).run()
    assert str(job.error).startswith(f"{next(iter(change))}: ")


@pytest.mark.parametrize("name", sorted(tiny_families.BUILDERS))
def test_unknown_digests_refuse_to_load_and_name_the_command(name: str, tmp_path: Path) -> None:
    entry = read_lock().entry(pipeline(name).weights)
    unknown = replace(entry, files=tuple(LockedFile(file.path) for file in entry.files))
    for file in entry.files:
        (tmp_path / name / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / file.path).write_bytes(b"")
    with pytest.raises(WeightsRefused, match=f"Fill the lock with: stoker weights lock {name}"):
        weights.verify(unknown, tmp_path / name)
