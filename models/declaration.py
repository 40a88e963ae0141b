"""Declarations of hosted models: plain data that the control plane stores with an endpoint.

Declarations import no torch and load nothing, so a process without any model library can read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker.models.interface import PipelineEntry


@dataclass(frozen=True, slots=True)
class ModelDeclaration:
    """A single hosted model.

    `schema` is a JSON Schema (draft 2020-12) of a job's `input`. `prices` lists the price of each `metric`
    that the handler measures, in billionths of a US dollar (`nano_usd`) a unit. `aliases` are other names for
    the model, which existing client code may use. `pipelines` can run the model, the best first;
    `registry.choose_pipeline` chooses one. `more_weights` are entries of weights.lock that each pipeline
    needs besides its own, by the environment variable that replaces the entry. `schema_for` gives the schema
    with the inputs of one pipeline, where pipelines have some of their own. `settings` are other
    environment variables that an operator may set for the workers, each with its parser, which raises
    ValueError for an invalid value; `concurrency` names the one that is how many jobs a worker takes at once.
    `preload` names the modules that a worker's zygote imports. `env` is part
    of the workers' environment: variables that libraries read on import belong there, since the handler would
    set them too late.
    """

    id: str
    name: str
    handler: str
    schema: Mapping[str, Any]
    prices: tuple[Mapping[str, Any], ...]
    pipelines: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    more_weights: Mapping[str, str] = field(default_factory=dict)
    schema_for: Callable[[PipelineEntry], Mapping[str, Any]] | None = None
    settings: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    concurrency: str | None = None
    preload: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
