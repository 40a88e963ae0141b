"""Which models are hosted, and which pipelines can stand behind them. Imports no torch.

Swapping a pipeline is an entry here and one in weights.lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stoker.models.declaration import ModelDeclaration
from stoker.models.talking_video.declaration import DECLARATION as TALKING_VIDEO
from stoker.models.text_to_image.declaration import DECLARATION as TEXT_TO_IMAGE

__all__ = [
    "MODELS",
    "PIPELINES",
    "PipelineEntry",
    "UnknownPipeline",
    "asked_for",
    "choose_pipeline",
    "pipeline",
]


class UnknownPipeline(LookupError):
    """No pipeline of this name is registered."""


@dataclass(frozen=True, slots=True)
class PipelineEntry:
    """A named way to run a model.

    `model` is the hosted model that it may stand behind, `weights` its entry in weights.lock, `profile` the
    set of speed-ups (`exact`: none that changes the output). `text_tokens` is how much of a prompt T5 reads.
    `wants_gpu`: too slow without one to be chosen there unasked.
    """

    name: str
    model: str
    weights: str
    text_tokens: int = 512
    profile: str = "exact"
    wants_gpu: bool = True
    about: str = ""


PIPELINES: Final[Mapping[str, PipelineEntry]] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            PipelineEntry(
                "flux-tiny",
                model=TEXT_TO_IMAGE.id,
                weights="flux-tiny",
                text_tokens=128,
                wants_gpu=False,
                about="FLUX's classes with small made-up weights: patterns in under a second, on a CPU",
            ),
            PipelineEntry(
                "flux-1-dev",
                model=TEXT_TO_IMAGE.id,
                weights="flux-1-dev",
                text_tokens=512,
                about="FLUX.1-dev, 12 B parameters; a licence of its own, non-commercial",
            ),
            PipelineEntry(
                "flux-1-schnell",
                model=TEXT_TO_IMAGE.id,
                weights="flux-1-schnell",
                text_tokens=256,
                about="FLUX.1-schnell, 12 B parameters; made for 4 steps, ignores guidance; Apache-2.0",
            ),
            PipelineEntry(
                "talk-tiny",
                model=TALKING_VIDEO.id,
                weights="talk-tiny",
                profile="tiny",
                wants_gpu=False,
                about="InfiniteTalk's classes with made-up weights: the picture, and a mouth that moves",
            ),
            PipelineEntry(
                "infinitetalk",
                model=TALKING_VIDEO.id,
                weights="infinitetalk",
                about="InfiniteTalk on Wan 2.1, 19 B parameters: 40 steps of three forwards; Apache-2.0",
            ),
            PipelineEntry(
                "infinitetalk-fast",
                model=TALKING_VIDEO.id,
                weights="infinitetalk-fast",
                profile="fast",
                about="the same with a distilled LoRA: 8 steps of two forwards",
            ),
        )
    }
)

MODELS: Final[Mapping[str, ModelDeclaration]] = MappingProxyType(
    {model.id: model for model in (TEXT_TO_IMAGE, TALKING_VIDEO)}
)


def pipeline(name: str) -> PipelineEntry:
    """The pipeline of this name. Raises UnknownPipeline with the names that there are."""
    try:
        return PIPELINES[name]
    except KeyError:
        raise UnknownPipeline(
            f"there is no pipeline {name!r}; registered are {', '.join(sorted(PIPELINES))}"
        ) from None


def asked_for(names: str | None) -> dict[str, PipelineEntry]:
    """The pipelines of a list with commas, by their models. Raises UnknownPipeline; the last
    one of a model counts."""
    given = (name.strip() for name in (names or "").split(","))
    return {entry.model: entry for entry in (pipeline(name) for name in given if name)}


def choose_pipeline(
    model: ModelDeclaration, asked: str | None, device_kind: str, present: Callable[[str], bool]
) -> PipelineEntry:
    """The pipeline to run: the one of this model that is asked for, else the best that this machine has.

    `present` says whether the weights of this name are on the machine.
    """
    if found := asked_for(asked).get(model.id):
        return found
    if device_kind != "cpu" and present(PIPELINES[model.gpu_pipeline].weights):
        return PIPELINES[model.gpu_pipeline]
    return PIPELINES[model.default_pipeline]
