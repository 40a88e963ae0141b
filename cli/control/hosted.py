"""The hosted endpoints: what the models declare in their torch-free modules, as endpoints of control.

Which pipelines stand behind them STOKER_PIPELINE says, a list with commas; else a worker takes
the best that its machine has. Where weights lie is the affair of the agent's host, which tells its workers.
The first one keeps a worker; the others get theirs with their first job. What any of them imports is
preloaded for all: in equal environments their workers are forked from one template, and a first job waits
for a load, not for imports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stoker.cli.errors import CliError
from stoker.control.config import check_aliases, device_prices, to_endpoints
from stoker.control.config_sections import Config
from stoker.control.types import Endpoint, EndpointVersion
from stoker.models.declaration import ModelDeclaration
from stoker.models.registry import MODELS, PipelineEntry, UnknownPipeline, asked_for, pipeline
from stoker.wire.messages import Price

PIPELINE = "STOKER_PIPELINE"


def declared(config: Config, hosted: Sequence[str], given: Mapping[str, str]) -> list[Endpoint]:
    """The endpoints of the configuration and the hosted ones; an id may be taken once."""
    models = hosted_endpoints(hosted, given, device_prices(config))
    endpoints = [*models, *to_endpoints(config)]
    ids = [endpoint.id for endpoint in endpoints]
    for taken in ids:
        if ids.count(taken) > 1:
            raise CliError(f"the endpoint id {taken} is a hosted one's; give yours another")
    check_aliases(config, endpoints)
    return endpoints


def hosted_endpoints(
    ids: Sequence[str],
    given: Mapping[str, str],
    more_prices: Sequence[Price] = (),
    account: str = "default",
) -> list[Endpoint]:
    """At most one worker each: the weights of a model are in memory once."""
    models = [_declared(model) for model in ids]
    preload = tuple(sorted({name for model in models for name in model.preload}))
    endpoints = [_endpoint(model, given, preload, more_prices, account) for model in models]
    return [replace(endpoint, workers_min=int(first == 0)) for first, endpoint in enumerate(endpoints)]


def _declared(model: str) -> ModelDeclaration:
    try:
        return MODELS[model]
    except KeyError:
        there = ", ".join(sorted(MODELS))
        raise CliError(f"there is no hosted endpoint {model!r}; there are {there}") from None


def _endpoint(
    found: ModelDeclaration,
    given: Mapping[str, str],
    preload: tuple[str, ...],
    more_prices: Sequence[Price],
    account: str,
) -> Endpoint:
    chosen = _chosen(given).get(found.id)
    _check_settings(found, given)
    env = {**found.env, **({PIPELINE: chosen.name} if chosen else {})}
    env |= {name: given[name] for name in (*found.more_weights, *found.settings) if given.get(name)}
    prices = (*(Price(price["metric"], price["nano_usd"]) for price in found.prices), *more_prices)
    return Endpoint(
        id=found.id,
        account=account,
        name=found.name,
        version=1,
        run=EndpointVersion(
            handler=found.handler, env=env, schema=found.schema, prices=prices, preload=preload
        ),
        hosted=True,
        workers_max=1,
        idle_timeout_s=3600,
    )


def _check_settings(found: ModelDeclaration, given: Mapping[str, str]) -> None:
    """Before anything starts: a worker would end at each of its starts, and tell nobody at a terminal."""
    for name, read in found.settings.items():
        try:
            read(given.get(name) or "")
        except ValueError as error:
            raise CliError(str(error)) from None


def _chosen(given: Mapping[str, str]) -> dict[str, PipelineEntry]:
    try:
        return asked_for(given.get(PIPELINE))
    except UnknownPipeline as error:
        raise CliError(f"{PIPELINE}: {error}") from None


def wanted_weights(ids: Sequence[str], given: Mapping[str, str] = os.environ) -> list[str]:
    """The entries of weights.lock that a machine needs to serve these: small, or asked for by name."""
    asked = _chosen(given)
    models = [MODELS[model] for model in ids if model in MODELS]
    here = {(asked.get(model.id) or pipeline(model.default_pipeline)).weights for model in models}
    more = {given.get(name) or entry for model in models for name, entry in model.more_weights.items()}
    return sorted(here | more)
