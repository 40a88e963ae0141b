"""The first step of a hosted model's worker: it chooses the pipeline, begins to read its weights and logs its
name.

Environment: STOKER_PIPELINE names pipelines of `stoker.models.registry`, of which the first for the model
runs, on any device; without it the best pipeline whose weights are on this machine is chosen.
STOKER_WEIGHTS_DIR is the folder that holds a folder of weights for each model (default: the user's cache).
Weights that Stoker makes itself are made there if they are missing; others must have been fetched.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stoker.models import registry, weights
from stoker.models.declaration import ModelDeclaration
from stoker.models.interface import PipelineEntry
from stoker.models.weights import Entry, Reading
from stoker.worker import Device

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Selected:
    """A pipeline, its entry of weights.lock, and their folder, which is verified when the `reading` is
    finished; and those of each of its LoRAs, which are verified."""

    pipeline: PipelineEntry
    weights: Entry
    folder: Path
    reading: Reading
    loras: Mapping[str, tuple[Entry, Path]] = field(default_factory=dict)


def choose(model: ModelDeclaration, device_kind: str) -> PipelineEntry:
    """Returns the pipeline that a worker on this machine runs. Raises registry.NoWeights,
    registry.UnknownPipeline."""
    folder, lock = weights.weights_folder(), weights.read_lock()

    def lacking(name: str) -> str:
        entry = lock.entry(name)
        return weights.lacking(entry, weights.folder_of(entry, folder))

    return registry.choose_pipeline(model, os.environ.get("STOKER_PIPELINE"), device_kind, lacking)


def select(model: ModelDeclaration, device: Device) -> Selected:
    """Raises the same as `choose`, and weights.WeightsError."""
    chosen = choose(model, device.kind)
    if chosen.small:
        log.warning("%s runs %s", model.id, chosen.description)
    elif device.kind == "cpu":
        log.warning(
            "the pipeline %s is made for a GPU, and this worker has none: it runs on the CPU, very slowly,"
            " and takes twice its weights' size of memory",
            chosen.name,
        )
    return ready(chosen)


def ready(chosen: PipelineEntry) -> Selected:
    """Returns the pipeline with its weights. Raises weights.WeightsError."""
    entry, folder, reading = weights.begin(chosen.weights, weights.weights_folder(), chosen.lock)
    loras = {name: weights.ready(name, weights.weights_folder(), chosen.lock) for name in chosen.loras}
    return Selected(chosen, entry, folder, reading, loras)
