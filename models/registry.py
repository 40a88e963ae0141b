"""The pipelines that can run the hosted models, and the choice of one. Imports no torch.

To add a pipeline, add an entry here and one to weights.lock. An installed package adds one by an entry point
of the group `stoker.pipelines`, which leads to a PipelineEntry: it runs where it is requested by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final

from stoker.models.declaration import ModelDeclaration
from stoker.models.interface import ImageDefaults, PipelineEntry, PipelineNeeds
from stoker.models.speed_ups import profiles
from stoker.models.talking_video.portrait.engine import TalkMini
from stoker.models.text_to_image.families.flux import Flux
from stoker.models.text_to_image.families.flux2_klein import Flux2Klein
from stoker.models.text_to_image.families.flux_mini import FluxMini
from stoker.models.text_to_image.families.qwen_image import QwenImage
from stoker.models.text_to_image.families.sd3 import StableDiffusion3
from stoker.models.text_to_image.families.sdxl import StableDiffusionXL
from stoker.models.text_to_image.families.z_image import ZImage

GROUP: Final = "stoker.pipelines"
"""The group of entry points by which packages add pipelines."""


class UnknownPipeline(LookupError):
    """The error that no pipeline of this name is registered."""


class NoWeights(LookupError):
    """The error that no weights of a model are on this host; the message says which are missing and how to
    get them."""


OF_THE_INTERFACE: Final = ImageDefaults(steps=28, guidance=7.5, negative_prompt=True, factor=1.5)
"""The defaults that the interface names for the hosted image model. The pipelines of FLUX.1-dev, which is
that model, keep them; every other pipeline declares what it was made for."""

_IMAGE: Final = (
    PipelineEntry(
        "flux-1-dev",
        model="text-to-image",
        weights="flux-1-dev",
        load=Flux,
        options={"text_tokens": 512},
        defaults=OF_THE_INTERFACE,
        needs=PipelineNeeds(gpu_memory_gb=36, saving_gb=12),
        about="FLUX.1-dev, 12 B parameters; a licence of its own, non-commercial",
    ),
    PipelineEntry(
        "flux-1-schnell",
        model="text-to-image",
        weights="flux-1-schnell",
        load=Flux,
        options={"text_tokens": 256},
        defaults=ImageDefaults(steps=4),
        needs=PipelineNeeds(gpu_memory_gb=36, saving_gb=12),
        about="FLUX.1-schnell, 12 B parameters; made for 4 steps, ignores guidance; Apache-2.0",
    ),
    PipelineEntry(
        "sdxl",
        model="text-to-image",
        weights="sdxl",
        load=StableDiffusionXL,
        defaults=ImageDefaults(steps=50, guidance=5.0, negative_prompt=True),
        needs=PipelineNeeds(gpu_memory_gb=10, saving_gb=8),
        about="Stable Diffusion XL base 1.0, 2.6 B parameters; OpenRAIL++",
    ),
    PipelineEntry(
        "z-image-turbo",
        model="text-to-image",
        weights="z-image-turbo",
        load=ZImage,
        defaults=ImageDefaults(steps=8),
        needs=PipelineNeeds(gpu_memory_gb=24, saving_gb=12),
        about="Z-Image Turbo, 6 B parameters; made for 8 steps, ignores guidance; Apache-2.0",
    ),
    PipelineEntry(
        "flux-2-klein-4b",
        model="text-to-image",
        weights="flux-2-klein-4b",
        load=Flux2Klein,
        defaults=ImageDefaults(steps=4),
        needs=PipelineNeeds(gpu_memory_gb=20, saving_gb=12),
        about="FLUX.2 klein, 4 B parameters; made for 4 steps, ignores guidance; Apache-2.0",
    ),
    PipelineEntry(
        "qwen-image",
        model="text-to-image",
        weights="qwen-image",
        load=QwenImage,
        defaults=ImageDefaults(steps=50, guidance=4.0, negative_prompt=True),
        needs=PipelineNeeds(gpu_memory_gb=64, saving_gb=24),
        about="Qwen-Image, 20 B parameters: 50 steps of two forwards; Apache-2.0",
    ),
    PipelineEntry(
        "sd-3.5-large",
        model="text-to-image",
        weights="sd-3.5-large",
        load=StableDiffusion3,
        defaults=ImageDefaults(steps=28, guidance=3.5, negative_prompt=True),
        needs=PipelineNeeds(gpu_memory_gb=32, saving_gb=16),
        about="Stable Diffusion 3.5 Large, 8 B parameters; Stability AI's community licence",
    ),
    PipelineEntry(
        "flux-mini",
        model="text-to-image",
        weights="flux-mini",
        load=FluxMini,
        defaults=ImageDefaults(steps=28),
        small=True,
        about="FLUX's classes at 13 MB, trained on icons: draws 64 things in a second, on a CPU; Apache-2.0",
    ),
    PipelineEntry(
        "flux-tiny",
        model="text-to-image",
        weights="flux-tiny",
        load=Flux,
        options={"text_tokens": 128},
        defaults=OF_THE_INTERFACE,
        small=True,
        made_up=True,
        about="FLUX's classes with small made-up weights: patterns in under a second, on a CPU",
    ),
)

_VIDEO: Final = (
    PipelineEntry(
        "infinitetalk",
        model="talking-video",
        weights="infinitetalk",
        needs=PipelineNeeds(gpu_memory_gb=24, saving_gb=24),
        about="InfiniteTalk on Wan 2.1, 19 B parameters: 40 steps of three forwards; Apache-2.0",
    ),
    PipelineEntry(
        "infinitetalk-fast",
        model="talking-video",
        weights="infinitetalk-fast",
        options={"sampling": "distilled"},
        needs=PipelineNeeds(gpu_memory_gb=24, saving_gb=24),
        about="the same with a distilled LoRA: 8 steps of two forwards",
    ),
    PipelineEntry(
        "talk-mini",
        model="talking-video",
        weights="talk-mini",
        load=TalkMini,
        small=True,
        about="the image, whose lips follow the voice: on a CPU, faster than real time; ignores the prompt",
    ),
    PipelineEntry(
        "talk-tiny",
        model="talking-video",
        weights="talk-tiny",
        options={"sampling": "tiny"},
        small=True,
        made_up=True,
        about="InfiniteTalk's classes with made-up weights: the image, and a mouth that moves",
    ),
)

PIPELINES: Final[Mapping[str, PipelineEntry]] = MappingProxyType(
    {entry.name: entry for entry in (*_IMAGE, *_VIDEO)}
)
"""Of each model the best first, and those with made-up weights last."""


def pipelines_of(model: str) -> tuple[str, ...]:
    """Returns the names of a model's pipelines, the best first."""
    return tuple(entry.name for entry in PIPELINES.values() if entry.model == model)


def pipeline(name: str) -> PipelineEntry:
    """Returns the pipeline of this name. Raises UnknownPipeline, which lists the registered names, or says
    why that of an installed package cannot be loaded."""
    if name in PIPELINES:
        return PIPELINES[name]
    installed = entry_points(group=GROUP)
    for point in installed.select(name=name):
        return _installed(point)
    known = sorted({*PIPELINES, *installed.names})
    raise UnknownPipeline(f"there is no pipeline {name!r}; registered are {', '.join(known)}")


def _installed(point: EntryPoint) -> PipelineEntry:
    where = f"the pipeline {point.name} of {point.dist.name if point.dist else 'a package'} ({point.value})"
    try:
        found = point.load()
    except Exception as error:  # the package's own code may raise anything
        raise UnknownPipeline(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, PipelineEntry) or found.name != point.name:
        raise UnknownPipeline(f"{where} must be a PipelineEntry named {point.name!r}; it is {found!r}")
    if found.model not in {entry.model for entry in PIPELINES.values()}:
        raise UnknownPipeline(f"{where} is for {found.model!r}, which is not a hosted model")
    try:
        profiles.check(found.profile, where)
    except ValueError as why:
        raise UnknownPipeline(str(why)) from None
    return found


def known_pipelines() -> list[PipelineEntry]:
    """Returns all pipelines that can be requested. Those of installed packages that cannot be loaded are left
    out."""
    found = list(PIPELINES.values())
    for name in sorted(entry_points(group=GROUP).names - PIPELINES.keys()):
        with contextlib.suppress(UnknownPipeline):
            found.append(pipeline(name))
    return found


def requested_pipelines(names: str | None) -> tuple[PipelineEntry, ...]:
    """Returns the pipelines of a comma-separated list, each once. Raises UnknownPipeline."""
    listed = (name.strip() for name in (names or "").split(","))
    return tuple(pipeline(name) for name in dict.fromkeys(name for name in listed if name))


def requested_for(model: str, names: str | None) -> tuple[PipelineEntry, ...]:
    """Returns those pipelines of a comma-separated list that run this model. Raises UnknownPipeline."""
    return tuple(entry for entry in requested_pipelines(names) if entry.model == model)


def smallest(model: ModelDeclaration) -> PipelineEntry:
    """Returns the pipeline for a host without a GPU and without weights: the best of the small ones."""
    return next(entry for name in model.pipelines if (entry := PIPELINES[name]).small)


def choose_pipeline(
    model: ModelDeclaration, requested: str | None, device_kind: str, lacking: Callable[[str], str]
) -> PipelineEntry:
    """Returns the pipeline to run: the first that is requested for this model, else the best whose weights
    are on this host.

    `lacking` returns why the weights of a name cannot be used on this host and how to get them; an empty text
    if they can. Unless they are requested, small pipelines are chosen only on a host without a GPU; a host
    with a GPU raises NoWeights instead, since customers pay for its output.
    """
    if found := requested_for(model.id, requested):
        return found[0]
    real = [PIPELINES[name] for name in model.pipelines if not PIPELINES[name].small]
    small = smallest(model)
    why = {entry.name: lacking(entry.weights) for entry in real}
    for entry in real:
        if not why[entry.name]:
            return entry
    if device_kind == "cpu":
        return small
    missing = "; ".join(f"{name}: {reason}" for name, reason in why.items())
    raise NoWeights(
        f"this host has a GPU and no weights for {model.id}, and serves a small pipeline only where"
        f" STOKER_PIPELINE={small.name} asks for it. {missing}"
    )
