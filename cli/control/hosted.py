"""Control's hosted endpoints, made from the models' declarations, which need no torch.

STOKER_PIPELINE, a list with commas, chooses their pipelines, whose weights their nodes then fetch; otherwise
a worker takes the best pipeline whose weights are on its machine. The agent's host decides where weights are
stored. The first hosted endpoint always has a worker; the others get one with their first job. The imports of
all models are preloaded for each: workers with equal environments are forked from one zygote, so a first job
waits for weights, not for imports.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stoker.cli.control.weights import locked_weights
from stoker.cli.errors import CliError
from stoker.control.config.config import check_aliases, device_prices, to_endpoints
from stoker.control.config.sections import Config, EndpointSection
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.models.declaration import ModelDeclaration
from stoker.models.hosted import MODELS
from stoker.models.interface import PipelineEntry
from stoker.models.registry import NoWeights, UnknownPipeline, requested_pipelines, smallest
from stoker.models.selection import choose
from stoker.models.weights import WeightsError
from stoker.wire.messages import LockedWeights, Price

PIPELINE = "STOKER_PIPELINE"


def declared_endpoints(config: Config, hosted: Sequence[str], variables: Mapping[str, str]) -> list[Endpoint]:
    """Returns the hosted endpoints and those of the configuration. Raises CliError if two have the same
    id."""
    models = hosted_endpoints(hosted, variables, device_prices(config))
    declared = zip(to_endpoints(config), config.endpoints, strict=True)
    endpoints = [*models, *(_with_weights(endpoint, section) for endpoint, section in declared)]
    ids = [endpoint.id for endpoint in endpoints]
    for taken in ids:
        if ids.count(taken) > 1:
            raise CliError(f"the endpoint id {taken} is a hosted one's; give yours another")
    check_aliases(config, endpoints)
    return endpoints


def _with_weights(endpoint: Endpoint, section: EndpointSection) -> Endpoint:
    """Returns the endpoint with its locked weights. The lock is read here: control itself knows no lock
    files."""
    lock = None if section.weightsLock is None else Path(section.weightsLock)
    try:
        weights = locked_weights(section.weights, lock) if section.weights else ()
    except WeightsError as error:
        raise CliError(f"weights of endpoint {endpoint.id}: {error}") from None
    return replace(endpoint, run=replace(endpoint.run, weights=weights))


def with_hosted_aliases(endpoints: Iterable[Endpoint], configured: Mapping[str, str]) -> dict[str, str]:
    """Returns the configured aliases, and the names by which existing programs call the hosted models. An
    endpoint or an alias of the operator with the same name has priority."""
    endpoints = list(endpoints)
    taken = {endpoint.id for endpoint in endpoints}
    hosted = [endpoint.id for endpoint in endpoints if endpoint.hosted and endpoint.id in MODELS]
    known = {alias: model for model in hosted for alias in MODELS[model].aliases if alias not in taken}
    return known | dict(configured)


def hosted_endpoints(
    ids: Sequence[str],
    variables: Mapping[str, str],
    more_prices: Sequence[Price] = (),
) -> list[Endpoint]:
    """Returns the endpoints of these models. Each has at most one worker, so that a model's weights are in
    memory once."""
    models = [_declared(model) for model in ids]
    preload = tuple(sorted({name for model in models for name in model.preload}))
    endpoints = [_endpoint(model, variables, preload, more_prices) for model in models]
    return [replace(endpoint, workers_min=int(first == 0)) for first, endpoint in enumerate(endpoints)]


def _declared(model: str) -> ModelDeclaration:
    try:
        return MODELS[model]
    except KeyError:
        there = ", ".join(sorted(MODELS))
        raise CliError(f"there is no hosted endpoint {model!r}; there are {there}") from None


def _endpoint(
    found: ModelDeclaration,
    variables: Mapping[str, str],
    preload: tuple[str, ...],
    more_prices: Sequence[Price],
) -> Endpoint:
    chosen = _chosen(variables)
    names = ",".join(entry.name for entry in chosen.values())
    schema = found.schema
    if found.schema_for is not None and found.id in chosen:
        schema = found.schema_for(chosen[found.id])
    _check_settings(found, variables)
    env = {**found.env, **({PIPELINE: names} if names else {})}
    env |= {name: variables[name] for name in (*found.more_weights, *found.settings) if variables.get(name)}
    at_once = 1
    if found.concurrency is not None:
        at_once = found.settings[found.concurrency](variables.get(found.concurrency) or "")
    prices = (*(Price(price["metric"], price["nano_usd"]) for price in found.prices), *more_prices)
    return Endpoint(
        id=found.id,
        account="default",
        name=found.name,
        version=1,
        run=EndpointVersion(
            handler=found.handler,
            env=env,
            schema=schema,
            prices=prices,
            preload=preload,
            concurrency=at_once,
            weights=_weights(found, chosen.get(found.id), variables),
        ),
        hosted=True,
        workers_max=1,
        idle_timeout_s=3600,
    )


def _weights(
    found: ModelDeclaration, chosen: PipelineEntry | None, variables: Mapping[str, str]
) -> tuple[LockedWeights, ...]:
    """Returns the weights of the chosen pipeline, which its node fetches if it lacks them. Without a choice,
    a worker takes the weights that are there."""
    if chosen is None:
        return ()
    more = [variables.get(name) or entry for name, entry in found.more_weights.items()]
    own = locked_weights((chosen.weights, *chosen.loras), chosen.lock)
    return (*own, *(one for one in locked_weights(more) if one not in own))


def _check_settings(found: ModelDeclaration, variables: Mapping[str, str]) -> None:
    """Checks the settings before anything starts: otherwise each start of a worker would fail, without a
    message at the terminal."""
    for name, read in found.settings.items():
        try:
            read(variables.get(name) or "")
        except ValueError as error:
            raise CliError(str(error)) from None


def _chosen(variables: Mapping[str, str]) -> dict[str, PipelineEntry]:
    try:
        return requested_pipelines(variables.get(PIPELINE))
    except UnknownPipeline as error:
        raise CliError(f"{PIPELINE}: {error}") from None


def serving_rows(ids: Sequence[str], kinds: str) -> list[tuple[str, str]]:
    """Returns each hosted endpoint with the pipeline that it runs on a machine with devices of these kinds,
    or why its jobs wait. Its workers choose by the same rule, and report the choice in `/health`."""
    kind = next((kind for kind in kinds.split() if kind != "cpu"), "cpu")
    return [(model, _serving(MODELS[model], kind)) for model in ids]


def _serving(model: ModelDeclaration, device_kind: str) -> str:
    try:
        return f"runs {choose(model, device_kind).description}"
    except NoWeights as error:
        return f"its jobs wait: {error}"


def needed_weights(ids: Sequence[str], variables: Mapping[str, str] = os.environ) -> dict[str, Path | None]:
    """Returns the weights that a machine needs to serve these, with their lock file unless it is this
    installation's: of chosen pipelines, or of those that a host without a GPU runs."""
    chosen = _chosen(variables)
    models = [MODELS[model] for model in ids if model in MODELS]
    more = {variables.get(name) or entry for model in models for name, entry in model.more_weights.items()}
    here = [chosen.get(model.id) or smallest(model) for model in models]
    return dict.fromkeys(sorted(more)) | {entry.weights: entry.lock for entry in here}
