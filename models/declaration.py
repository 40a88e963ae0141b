"""What a hosted model declares about itself: plain data that the control plane stores with an endpoint.

Declarations import no torch and load nothing, so that a process without any model library can read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ModelDeclaration"]


@dataclass(frozen=True, slots=True)
class ModelDeclaration:
    """One hosted model.

    `schema` is a JSON Schema (draft 2020-12) of a job's `input`. `prices` lists what is paid for: so many
    billionths of a US dollar (`nano_usd`) for each unit of what the handler measures as `metric`.
    `default_pipeline` is the one for a machine without a GPU, `gpu_pipeline` the one for a machine that has
    one and its weights; `registry.choose_pipeline` decides.
    `more_weights` are entries of weights.lock that each pipeline needs beside its own, by the names of the
    environment variables that may name others. `settings` are other variables of the operator's that its
    workers are given, each with what reads it; that raises ValueError for a value that is none.
    `preload` names what a worker may be forked with, already imported. `env` is what its workers are given:
    what libraries read as they are imported must stand there, for the handler comes too late for it.
    """

    id: str
    name: str
    handler: str
    schema: Mapping[str, Any]
    prices: tuple[Mapping[str, Any], ...]
    default_pipeline: str
    gpu_pipeline: str
    more_weights: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
