"""What jobs may choose: scheduler, LoRAs, an image to start from, and how many images; for each family."""

from __future__ import annotations

import functools
import http.server
import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stoker.models import input_image, weights
from stoker.models.checked_input import InvalidInput
from stoker.models.registry import PIPELINES, pipeline
from stoker.models.text_to_image import metadata, previews, saves, tiny
from stoker.models.text_to_image.declaration import schema_for
from stoker.models.text_to_image.handler import TextToImage
from stoker.models.text_to_image.request import ImageRequest
from stoker.models.weights import Entry, Lock
from stoker.worker import Device
from stoker.worker.testing import LocalJob
from tests.models.in_full import beyond
from tests.models.text_to_image import tiny_families

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Already found a `peft_config`:UserWarning"),
]
"""diffusers' schedulers, with a newer numpy; and a second LoRA."""

SMALL = {"prompt": "a lighthouse", "width": 256, "height": 256, "num_inference_steps": 3, "seed": 1}
SMALL |= {"image_format": "png"}
FAMILIES = ("flux-tiny", *sorted(tiny_families.BUILDERS))
LORAS = ("ink", "pencil")


@dataclass(frozen=True, slots=True)
class Family:
    """A handler whose pipeline has two LoRAs, and the bytes of an image that was made without them."""

    handler: TextToImage
    home: Path
    without: bytes


@pytest.fixture(scope="module", params=beyond("flux-tiny", names=FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    import torch

    torch.set_num_threads(1)
    name, home = request.param, tmp_path_factory.mktemp("choices")
    tiny.build(home / name) if name == "flux-tiny" else tiny_families.build(name, home / name)
    bare = served(name, home, ())
    assert not hasattr(network(bare), "peft_config")
    for rank, lora in enumerate(LORAS, start=2):
        prefix = bare.pipeline.network  # type: ignore[attr-defined]
        tiny_families.build_lora(network(bare), prefix, lora, rank, home / lora)
    return Family(served(name, home, LORAS), home, pixels(painted(bare)))


def served(name: str, home: Path, loras: tuple[str, ...]) -> TextToImage:
    """A handler with one pipeline, set up as in a worker, with a lock of its own."""
    blank = (Entry(one, weights.FOLDER, "Apache-2.0", ()) for one in (name, *loras))
    weights.write_lock(
        Lock(weights.lock_from_folder(entry, home / entry.name) for entry in blank), home / "our.lock"
    )
    found = TextToImage()
    entry = replace(pipeline(name), lock=home / "our.lock", loras=loras)
    found.PIPELINE = entry  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_WEIGHTS_DIR", str(home))
        patch.setattr(previews, "_FIT_SIDE", 256)
        patch.setattr(previews, "_FIT_PROMPTS", ("a red flower",))
        found.setup(Device())
    return found


def network(handler: TextToImage) -> Any:
    return getattr(handler.pipeline.pipe, handler.pipeline.network)  # type: ignore[attr-defined]


def painted(handler: TextToImage, **more: Any) -> LocalJob:
    job = LocalJob(handler.run, SMALL | more, network=True).run()
    assert job.error is None, job.error
    return job


def refusal(handler: TextToImage, **more: Any) -> str:
    job = LocalJob(handler.run, SMALL | more, network=True).run()
    assert (job.retryable, job.files, job.metrics) == (False, [], {})
    return str(job.error)


def opened(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return image


def pixels(job: LocalJob) -> bytes:
    return opened(job.output["image_url"].read_bytes()).tobytes()


def bare(handler: TextToImage, pipe: Any, **more: Any) -> bytes:
    """What the library's own pipeline makes of the same."""
    import torch

    asked = ImageRequest.parse(SMALL, schema_for(handler.entry)).parameters(handler.entry.defaults, seed=1)
    tokens = handler.pipeline.text_tokens  # type: ignore[attr-defined]
    arguments = {} if tokens is None else {"max_sequence_length": tokens}
    arguments |= handler.pipeline.arguments(asked)  # type: ignore[attr-defined]
    found: bytes = (
        pipe(
            prompt="a lighthouse",
            num_inference_steps=3,
            generator=torch.Generator("cpu").manual_seed(1),
            **arguments,
            **more,
        )
        .images[0]
        .tobytes()
    )
    return found


def test_without_a_choice_everything_is_as_it_was(family: Family) -> None:
    job = painted(family.handler)
    assert pixels(job) == family.without
    assert set(job.output) == {"image_url", "seed", *family.handler.entry.output_fields}
    assert job.progress == [{"step": step, "steps": 3} for step in (1, 2, 3)]
    made = metadata.read(job.files[0].path)
    assert made is not None
    assert not {"scheduler", "loras", "strength"} & made.keys()


def test_loras_leave_the_weights_of_the_pipeline_as_they_are(family: Family) -> None:
    """A frozen matrix is multiplied in another order: the last bits of an image would tell which LoRAs
    its worker holds."""
    found = [weight for name, weight in network(family.handler).named_parameters() if "lora_" not in name]
    assert found
    assert all(weight.requires_grad for weight in found)


def test_each_scheduler_makes_what_the_library_makes_with_it(family: Family) -> None:
    handler = family.handler
    pipe, names = handler.pipeline.pipe, handler.entry.choices.schedulers  # type: ignore[attr-defined]
    own, found = pipe.scheduler, {}
    for name in names:
        job = painted(handler, scheduler=name)
        assert pipe.scheduler is own
        found[name] = pixels(job)
        assert pixels(painted(handler, scheduler=name)) == found[name]
        steps = 5 if name == "heun" else 3
        assert job.progress[-1] == {"step": steps, "steps": steps}
        made = metadata.read(job.files[0].path)
        assert made is not None
        assert made["scheduler"] == name
        pipe.scheduler = handler.pipeline._scheduler(name)  # type: ignore[attr-defined]
        try:
            assert bare(handler, pipe, width=256, height=256) == found[name]
        finally:
            pipe.scheduler = own
    assert len(set(found.values())) == len(names)
    assert pixels(painted(handler)) == family.without


def test_another_scheduler_is_refused_with_those_that_there_are(family: Family) -> None:
    names = " or ".join(family.handler.entry.choices.schedulers)
    refused = refusal(family.handler, scheduler="lms")
    assert refused == f'scheduler: "lms" is not allowed; it must be {names}'
    assert refusal(family.handler, scheduler=3) == f"scheduler: 3 is not allowed; it must be {names}"


def lora(name: str, scale: float = 1.0) -> dict[str, Any]:
    return {"name": name, "scale": scale}


def test_loras_are_switched_and_leave_nothing_behind(family: Family) -> None:
    handler = family.handler
    asked = ([lora("ink", 0.7)], [lora("pencil")], [lora("pencil"), lora("ink", 0.7)], [lora("ink", -0.5)])
    jobs = [painted(handler, loras=loras) for loras in asked]
    found = [pixels(job) for job in jobs]
    assert len({*found, family.without}) == 5
    assert [pixels(painted(handler, loras=loras)) for loras in asked] == found
    assert pixels(painted(handler, loras=[{"name": "pencil"}])) == found[1]
    assert pixels(painted(handler, loras=[])) == family.without
    assert pixels(painted(handler)) == family.without
    made = metadata.read(jobs[0].files[0].path)
    assert made is not None
    digest = weights.read_lock(family.home / "our.lock").entry("ink").digest
    assert made["loras"] == [{"name": "ink", "scale": 0.7, "weights": f"sha256:{digest}"}]


def test_a_lora_makes_what_the_library_makes_with_it(family: Family) -> None:
    """By `set_adapters`, which multiplies in another order."""
    ours = pixels(painted(family.handler, loras=[lora("ink", 0.75), lora("pencil", 0.5)]))
    handler = served(family.handler.entry.name, family.home, ())
    pipe = handler.pipeline.pipe  # type: ignore[attr-defined]
    for name in LORAS:
        pipe.load_lora_weights(family.home / name, weight_name="lora.safetensors", adapter_name=name)
    pipe.set_adapters(list(LORAS), [0.75, 0.5])
    plain = bare(handler, pipe, width=256, height=256)
    differ = np.abs(np.frombuffer(ours, np.uint8).astype(int) - np.frombuffer(plain, np.uint8))
    assert differ.max() <= 1


@pytest.mark.slow
def test_switching_loras_compiles_nothing_anew(family: Family) -> None:
    import torch

    handler = family.handler
    counters = torch._dynamo.utils.counters["stats"]
    compiled: list[int] = []

    def make(*loras: dict[str, Any]) -> None:
        painted(handler, loras=list(loras))
        compiled.append(counters["unique_graphs"])

    part = network(handler)
    torch._dynamo.reset()
    counters.clear()
    layers = [layer for layer in part.modules() if hasattr(layer, "lora_A")]
    for layer in layers:
        layer.compile(backend="eager")
    try:
        for loras in ((), (lora("ink"),)):  # the two variants, each with the shapes that there are
            make(*loras)
        make()
        make(lora("ink", 0.3))
        make(lora("pencil", 0.8))
        make(lora("pencil"), lora("ink", 0.1))
        make()
    finally:
        for layer in layers:
            layer._compiled_call_impl = None
        torch._dynamo.reset()
    assert layers
    assert 0 < compiled[0] < compiled[1]
    assert compiled[1:] == [compiled[1]] * 6


@pytest.mark.parametrize(
    ("loras", "message"),
    [
        ([{"name": "oil"}], 'loras[0].name: "oil" is not allowed; it must be ink or pencil'),
        (
            [{"name": "ink", "scale": 3}],
            "loras[0].scale: 3 is not allowed; it must be a number from -2.0 to 2.0",
        ),
        ([{"name": "ink", "scale": "1"}], 'loras[0].scale: "1" is not allowed; it must be a number'),
        ([{"name": "ink"}, {"name": "ink"}], 'loras: "ink" is named twice; each may be named once'),
        ([{"scale": 1}], "loras[0].name: is missing; it must be ink or pencil"),
        ([{"name": "ink", "weight": 1}], "loras[0].weight: there is no such field; allowed are name, scale"),
        (["ink"], 'loras[0] must be an object with a name, not "ink"'),
        ("ink", 'loras: "ink" is not allowed; it must be a list of at most 2 objects with a name'),
        ([{"name": "ink"}] * 3, "must be a list of at most 2 objects with a name"),
    ],
)
def test_loras_that_are_wrong_are_refused(loras: Any, message: str) -> None:
    schema = schema_for(replace(pipeline("flux-tiny"), loras=LORAS))
    with pytest.raises(InvalidInput) as refused:
        ImageRequest.parse(SMALL | {"loras": loras}, schema)
    assert message in str(refused.value)


def test_a_lora_for_another_pipeline_ends_the_set_up(tmp_path: Path) -> None:
    import torch

    tiny.build(tmp_path / "flux-tiny")
    other = torch.nn.ModuleDict({"to_q": torch.nn.Linear(4, 4)})
    tiny_families.build_lora(other, "unet", "ink", 2, tmp_path / "ink")
    with pytest.raises(ValueError, match="the LoRA ink has no weights for FluxPipeline: it is for another"):
        served("flux-tiny", tmp_path, ("ink",))


def test_a_lora_that_was_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    tiny.build(tmp_path / "flux-tiny")
    part = torch.nn.ModuleDict({"to_q": torch.nn.Linear(4, 4)})
    tiny_families.build_lora(part, "transformer", "ink", 2, tmp_path / "ink")
    kept = weights.lock_from_folder(Entry("ink", weights.FOLDER, "Apache-2.0", ()), tmp_path / "ink")
    tiny_families.build_lora(part, "transformer", "other ink", 2, tmp_path / "ink")
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path))
    blank = Entry("flux-tiny", weights.FOLDER, "Apache-2.0", ())
    base = weights.lock_from_folder(blank, tmp_path / "flux-tiny")
    weights.write_lock(Lock([base, kept]), tmp_path / "our.lock")
    handler = TextToImage()
    entry_ = replace(pipeline("flux-tiny"), lock=tmp_path / "our.lock", loras=("ink",))
    handler.PIPELINE = entry_  # type: ignore[misc]
    with pytest.raises(weights.WeightsError, match=r"lora\.safetensors"):
        handler.setup(Device())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, bytes], str]]:
    """Serves files on loopback."""
    folder = tmp_path_factory.mktemp("site")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    def put(name: str, data: bytes) -> str:
        (folder / name).write_bytes(data)
        return f"http://127.0.0.1:{server.server_port}/{name}"

    make = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), make) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield put
        server.shutdown()
        thread.join()


def picture(width: int = 256, height: int = 256) -> Image.Image:
    """Red on the left, green on the right, with blue strips outside of the square in the middle."""
    found = np.zeros((height, width, 3), np.uint8)
    found[:] = (0, 0, 255)
    left, top = (width - 256) // 2, (height - 256) // 2
    found[top : top + 256, left : left + 128] = (255, 0, 0)
    found[top : top + 256, left + 128 : left + 256] = (0, 255, 0)
    return Image.fromarray(found)


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def test_it_starts_from_an_image_where_the_family_can(
    family: Family, site: Callable[[str, bytes], str]
) -> None:
    handler = family.handler
    url = site("picture.png", png(picture()))
    if not handler.entry.choices.from_image:
        assert handler.entry.name == "flux-2-klein-4b"
        assert refusal(handler, image=url).startswith("image: there is no such field; allowed are prompt, ")
        return
    five = {"num_inference_steps": 5, "image": url}
    found = {strength: painted(handler, strength=strength, **five) for strength in (0.01, 0.6, 1.0)}
    assert len({pixels(job) for job in found.values()} | {family.without}) == 4
    assert pixels(painted(handler, **five)) == pixels(found[0.6])
    for strength, job in found.items():
        steps = len(job.progress)
        assert job.progress == [{"step": step, "steps": steps} for step in range(1, steps + 1)]
        made = metadata.read(job.files[0].path)
        assert made is not None
        assert made["strength"] == strength
    assert [len(job.progress) for job in found.values()] == [1, 3, 5]
    assert pixels(painted(handler)) == family.without


def test_from_an_image_is_what_the_library_makes_on_the_same_weights(
    family: Family, site: Callable[[str, bytes], str]
) -> None:
    import inspect

    handler = family.handler
    if not handler.entry.choices.from_image:
        return
    for name in handler.entry.choices.from_image:
        url = site("picture.png", png(picture()))
        found = pixels(painted(handler, image=url, strength=0.8, scheduler=name))
        pipe = handler.pipeline._from_image  # type: ignore[attr-defined]
        own = handler.pipeline.pipe  # type: ignore[attr-defined]
        assert all(part is getattr(own, part_name) for part_name, part in pipe.components.items())
        sides = (
            {"width": 256, "height": 256} if "width" in inspect.signature(pipe.__call__).parameters else {}
        )
        pipe.scheduler = handler.pipeline._scheduler(name)  # type: ignore[attr-defined]
        try:
            assert bare(handler, pipe, image=picture(), strength=0.8, **sides) == found
        finally:
            pipe.scheduler = own.scheduler


def mask(width: int = 256, height: int = 256) -> Image.Image:
    """White in the right half of the square in the middle, and to the right of the square."""
    found = np.zeros((height, width), np.uint8)
    found[:, width // 2 :] = 255
    return Image.fromarray(found)


def test_a_part_of_an_image_is_what_the_library_makes_on_the_same_weights(
    family: Family, site: Callable[[str, bytes], str]
) -> None:
    import inspect

    handler = family.handler
    image, part = site("picture.png", png(picture())), site("mask.png", png(mask()))
    if not handler.entry.choices.masks:
        assert handler.entry.name == "flux-2-klein-4b"
        assert refusal(handler, mask_image=part).startswith(
            "mask_image: there is no such field; allowed are "
        )
        return
    own = handler.pipeline.pipe  # type: ignore[attr-defined]
    for name in handler.entry.choices.from_image:
        job = painted(handler, image=image, mask_image=part, strength=0.8, scheduler=name)
        pipe = handler.pipeline._from_mask  # type: ignore[attr-defined]
        assert all(one is getattr(own, part_name) for part_name, one in pipe.components.items())
        assert {"width", "height", "mask_image"} <= inspect.signature(pipe.__call__).parameters.keys()
        pipe.scheduler = handler.pipeline._scheduler(name)  # type: ignore[attr-defined]
        sides = {"width": 256, "height": 256}
        try:
            plain = bare(handler, pipe, image=picture(), mask_image=mask(), strength=0.8, **sides)
        finally:
            pipe.scheduler = own.scheduler
        assert plain == pixels(job) != pixels(painted(handler, image=image, strength=0.8, scheduler=name))
    made = metadata.read(job.files[0].path)
    assert made is not None
    assert (made["masked"], made["strength"]) == (True, 0.8)


def test_a_mask_is_white_or_transparent_and_goes_with_its_image(
    family: Family, site: Callable[[str, bytes], str]
) -> None:
    handler = family.handler
    if not handler.entry.choices.masks:
        return
    image = site("picture.png", png(picture()))
    clear = picture().convert("RGBA")
    clear.putalpha(Image.eval(mask(), lambda value: 255 - value))  # as programs erase a part of the picture
    small, wide = mask().resize((64, 64)), mask(320, 256)
    found = {
        pixels(painted(handler, image=given, mask_image=site(f"{name}.png", png(one))))
        for name, one, given in (
            ("grey", mask(), image),
            ("colour", mask().convert("RGB"), image),
            ("clear", clear, image),
            ("small", small, image),
            ("wide", wide, site("wide-picture.png", png(picture(320, 256)))),
        )
    }
    whole = pixels(painted(handler, image=image, mask_image=site("mask.png", png(mask())), strength=1.0))
    assert found == {whole}


def test_a_mask_that_does_not_fit_is_refused(family: Family, site: Callable[[str, bytes], str]) -> None:
    handler = family.handler
    if not handler.entry.choices.masks:
        return
    image, black = site("picture.png", png(picture())), site("black.png", png(Image.new("L", (256, 256))))
    assert (
        refusal(handler, mask_image=black)
        == "mask_image: a mask is not allowed without an image to start from"
    )
    assert refusal(handler, image=image, mask_image=black) == (
        "mask_image: nothing of it is transparent or white, so nothing would be made anew"
    )
    assert refusal(handler, image=image, mask_image="m.png").endswith("it must be an http or https URL")
    tiny_mask = site("tiny.png", png(Image.new("L", (32, 32), 255)))
    assert refusal(handler, image=image, mask_image=tiny_mask).startswith(
        "Invalid mask_image: it has 32 x 32"
    )


def test_an_image_is_cropped_and_turned_upright(family: Family, site: Callable[[str, bytes], str]) -> None:
    handler = family.handler
    if not handler.entry.choices.from_image:
        return
    plain, wide, high = (
        pixels(painted(handler, image=site(f"{width}.png", png(picture(width, height)))))
        for width, height in ((256, 256), (300, 256), (256, 290))
    )
    assert plain == wide == high


def test_what_does_not_fit_an_image_is_refused(family: Family, site: Callable[[str, bytes], str]) -> None:
    handler = family.handler
    can = handler.entry.choices.from_image
    if not can:
        return
    url = site("picture.png", png(picture()))
    assert refusal(handler, strength=0.5) == "strength: 0.5 is not allowed without an image to start from"
    assert refusal(handler, image=url, strength=0).startswith(
        "strength: 0 is not allowed; it must be a number"
    )
    assert refusal(handler, image="picture.png").endswith("it must be an http or https URL")
    small = site("small.png", png(picture().resize((32, 32))))
    assert "Invalid image: it has 32 x 32 pixels" in refusal(handler, image=small)
    assert "Invalid image: it is text/plain; it must be a png" in refusal(
        handler, image=site("text", b"not an image")
    )
    assert "Invalid image URL: " in refusal(handler, image=f"{url}.gone")
    for name in set(handler.entry.choices.schedulers) - set(can):
        message = f'scheduler: "{name}" cannot start from an image; it must be {" or ".join(can)}'
        assert refusal(handler, image=url, scheduler=name) == message


LOOKED_AT = (picture(), picture(320, 256), picture(1100, 1000))


@pytest.mark.parametrize("count", [1, 3])
def test_it_looks_at_images_as_the_library_does_on_the_same_weights(
    family: Family, site: Callable[[str, bytes], str], count: int
) -> None:
    handler = family.handler
    urls = [site(f"{number}.png", png(image)) for number, image in enumerate(LOOKED_AT[:count])]
    if handler.entry.name != "flux-2-klein-4b":
        assert refusal(handler, images=urls).startswith("images: there is no such field; allowed are prompt,")
        return
    pipe = handler.pipeline.pipe  # type: ignore[attr-defined]
    job = painted(handler, images=urls)
    assert bare(handler, pipe, image=list(LOOKED_AT[:count]), width=256, height=256) == pixels(job)
    assert pixels(job) not in (family.without, pixels(painted(handler, images=[*urls, urls[0]])))
    assert job.progress == [{"step": step, "steps": 3} for step in (1, 2, 3)]
    made = metadata.read(job.files[0].path)
    assert made is not None
    assert made["references"] == count
    assert pixels(painted(handler, images=[])) == family.without


@pytest.mark.parametrize("family", ["flux-2-klein-4b"], indirect=True)
def test_a_job_that_looks_at_images_goes_on_to_the_same_bytes(
    family: Family, site: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = family.handler
    monkeypatch.setattr(saves, "due", lambda **_: True)
    urls = [site(f"{number}.png", png(image)) for number, image in enumerate(LOOKED_AT[:2])]
    whole = painted(handler, images=urls)
    assert whole.saves
    for save in whole.saves:
        again = LocalJob(handler.run, SMALL | {"images": urls}, saved=save, network=True).run()
        assert (again.error, pixels(again)) == (None, pixels(whole))


@pytest.mark.parametrize("family", ["flux-2-klein-4b"], indirect=True)
def test_images_that_cannot_be_looked_at_are_refused(
    family: Family, site: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = family.handler
    url = site("picture.png", png(picture()))
    assert refusal(handler, images=[url] * 5).endswith("it must be a list of at most 4 values")
    assert refusal(handler, images=[url, "b.png"]) == (
        'images[1]: "b.png" is not allowed; it must be an http or https URL'
    )
    assert "Invalid images[1]: it has 32 x 32 pixels" in refusal(
        handler, images=[url, site("small.png", png(picture().resize((32, 32))))]
    )
    assert refusal(handler, images=[site("long.png", png(picture(2600, 320)))]) == (
        "Invalid images[0]: it has 2600 x 320 pixels; its longer side may be 8 times the shorter one"
    )
    assert "Invalid images[0] URL: " in refusal(handler, images=[f"{url}.gone"])
    monkeypatch.setattr(input_image, "MOST", 2 * 256 * 256 - 1)
    assert refusal(handler, images=[url, url]) == (
        "Invalid images: the first 2 have 131,072 pixels; there may be 131,071 in all"
    )


def test_several_images_are_each_as_alone(family: Family) -> None:
    handler = family.handler
    job = painted(handler, num_images=3)
    alone = [painted(handler, seed=seed) for seed in (1, 2, 3)]
    images = job.output["images"]
    assert [image["image_url"].read_bytes() for image in images] == [
        one.output["image_url"].read_bytes() for one in alone
    ]
    assert [image["seed"] for image in images] == [1, 2, 3]
    assert job.output["image_url"] == images[0]["image_url"]
    assert job.output["seed"] == 1
    assert job.metrics == {"output_pixels": 3 * 256 * 256}
    assert [file.name for file in job.files] == ["image-1.png", "image-2.png", "image-3.png"]
    assert job.progress == [
        {"step": step, "steps": 3, "image": image} for image in (1, 2, 3) for step in (1, 2, 3)
    ]
    assert {chunk["image"] for chunk in job.chunks} == {1, 2, 3}


def test_a_cancel_within_the_second_image_ends_all(family: Family) -> None:
    job = LocalJob(
        family.handler.run,
        SMALL | {"num_images": 3},
        on_progress=lambda value: job.cancel() if value["image"] == 2 else None,
    )
    job.run()
    assert job.error == "cancelled: cancelled by the test"
    assert (job.files, job.metrics, job.progress[-1]["image"]) == ([], {}, 2)


@pytest.mark.parametrize("count", [0, 11, 1.5, "2", True, None])
def test_how_many_images_is_bounded(count: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^num_images: .* it must be an integer from 1 to 10"):
        ImageRequest.parse(SMALL | {"num_images": count})


def test_the_seed_after_the_last_is_zero(tmp_path: Path, model: TextToImage) -> None:
    job = LocalJob(model.run, SMALL | {"num_images": 2, "seed": 2**63 - 1}).run()
    assert [image["seed"] for image in job.output["images"]] == [2**63 - 1, 0]


ENTRIES = [entry for entry in PIPELINES.values() if entry.model == "text-to-image"]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "scheduler": st.sampled_from(["euler", "heun", "unipc", "lms", "", 1]),
    "loras": st.lists(
        st.one_of(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["ink", "pencil", "oil", ""])},
                optional={"scale": st.sampled_from([-2.0, 0, 2, 2.1, None])},
            ),
            st.sampled_from([{}, "ink", None, {"scale": 1}, {"name": "ink", "more": 1}]),
        ),
        max_size=5,
        unique_by=repr,
    ),
    "image": st.sampled_from(["http://a/b", "https://a", "ftp://a", "a", None]),
    "images": st.lists(st.sampled_from(["http://a/b", "https://a", "a", 1]), max_size=5) | st.none(),
    "num_images": st.sampled_from([0, 1, 10, 11, 2.0, None]),
}


@given(
    entry=st.sampled_from(ENTRIES),
    loras=st.sampled_from([(), ("ink",), LORAS]),
    value=st.fixed_dictionaries({}, optional=VALUES),
)
def test_handler_and_schema_agree(entry: Any, loras: tuple[str, ...], value: dict[str, Any]) -> None:
    schema = schema_for(replace(entry, loras=loras))
    jsonschema.Draft202012Validator.check_schema(schema)
    try:
        ImageRequest.parse({"prompt": "x", **value}, schema)
        accepted = True
    except InvalidInput as error:
        if "named twice" in str(error):
            return
        accepted = False
    checker = jsonschema.FormatChecker()
    checker.checks("uri")(lambda text: not isinstance(text, str) or text.startswith(("http://", "https://")))
    assert accepted == jsonschema.Draft202012Validator(schema, format_checker=checker).is_valid(
        {"prompt": "x", **value}
    )
