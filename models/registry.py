"""Which models are hosted, and which pipelines can stand behind them. Imports no torch.

Swapping a pipeline is an entry here and one in weights.lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stoker.models.declaration import ModelDeclaration
from stoker.models.text_to_image.declaration import DECLARATION as TEXT_TO_IMAGE

__all__ = ["MODELS", "PIPELINES", "PipelineEntry", "UnknownPipeline", "choose_pipeline", "pipeline"]


class UnknownPipeline(LookupError):
    """No pipeline of this name is registered."""


@dataclass(frozen=True, slots=True)
class PipelineEntry:
    """A named way to run a model.

    `family` names the adapter that loads it, `weights` its entry in weights.lock, `profile` the set of
    speed-ups (`exact`: none that changes the output). `text_tokens` is how much of a prompt T5 reads.
    `wants_gpu`: too slow without one to be chosen there unasked.
    """

    name: str
    family: str
    weights: str
    text_tokens: int
    profile: str = "exact"
    wants_gpu: bool = True
    about: str = ""


PIPELINES: Final[Mapping[str, PipelineEntry]] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            PipelineEntry(
                "flux-tiny",
                family="flux",
                weights="flux-tiny",
                text_tokens=128,
                wants_gpu=False,
                about="FLUX's classes with small made-up weights: patterns in under a second, on a CPU",
            ),
            PipelineEntry(
                "flux-1-dev",
                family="flux",
                weights="flux-1-dev",
                text_tokens=512,
                about="FLUX.1-dev, 12 B parameters; a licence of its own, non-commercial",
            ),
            PipelineEntry(
                "flux-1-schnell",
                family="flux",
                weights="flux-1-schnell",
                text_tokens=256,
                about="FLUX.1-schnell, 12 B parameters; made for 4 steps, ignores guidance; Apache-2.0",
            ),
        )
    }
)

MODELS: Final[Mapping[str, ModelDeclaration]] = MappingProxyType({TEXT_TO_IMAGE.id: TEXT_TO_IMAGE})

_ON_A_GPU: Final = "flux-1-dev"


def pipeline(name: str) -> PipelineEntry:
    """The pipeline of this name. Raises UnknownPipeline with the names that there are."""
    try:
        return PIPELINES[name]
    except KeyError:
        raise UnknownPipeline(
            f"there is no pipeline {name!r}; registered are {', '.join(sorted(PIPELINES))}"
        ) from None


def choose_pipeline(asked: str | None, device_kind: str, present: Callable[[str], bool]) -> PipelineEntry:
    """The pipeline to run: the one asked for, else the best that this machine has.

    `present` says whether the weights of this name are on the machine.
    """
    if asked:
        return pipeline(asked)
    if device_kind != "cpu" and present(PIPELINES[_ON_A_GPU].weights):
        return PIPELINES[_ON_A_GPU]
    return PIPELINES[TEXT_TO_IMAGE.default_pipeline]
