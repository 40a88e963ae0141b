"""The hosted endpoints: what the models declare in their torch-free modules, as endpoints of control.

Which pipelines stand behind them STOKER_PIPELINE says, a list with commas; else a worker takes
the best that its machine has. Where weights lie is the affair of the agent's host, which tells its workers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from stoker.cli.errors import CliError
from stoker.control.config import check_aliases, device_prices, to_endpoints
from stoker.control.config_sections import Config
from stoker.control.types import Endpoint, EndpointVersion
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
    """One worker each: the weights of a model are in memory once."""
    return [_endpoint(model, given, more_prices, account) for model in ids]


def _endpoint(model: str, given: Mapping[str, str], more_prices: Sequence[Price], account: str) -> Endpoint:
    found = MODELS.get(model)
    if found is None:
        raise CliError(f"there is no hosted endpoint {model!r}; there are {', '.join(sorted(MODELS))}")
    chosen = _chosen(given).get(model)
    env = {**found.env, **({PIPELINE: chosen.name} if chosen else {})}
    prices = (*(Price(price["metric"], price["nano_usd"]) for price in found.prices), *more_prices)
    return Endpoint(
        id=found.id,
        account=account,
        name=found.name,
        version=1,
        run=EndpointVersion(
            handler=found.handler, env=env, schema=found.schema, prices=prices, preload=found.preload
        ),
        hosted=True,
        workers_min=1,
        workers_max=1,
        idle_timeout_s=3600,
    )


def _chosen(given: Mapping[str, str]) -> dict[str, PipelineEntry]:
    try:
        return asked_for(given.get(PIPELINE))
    except UnknownPipeline as error:
        raise CliError(f"{PIPELINE}: {error}") from None


def wanted_weights(ids: Sequence[str], given: Mapping[str, str] = os.environ) -> list[str]:
    """The entries of weights.lock that a machine needs to serve these: small, or asked for by name."""
    asked = _chosen(given)
    here = [asked.get(model) or pipeline(MODELS[model].default_pipeline) for model in ids if model in MODELS]
    return sorted({entry.weights for entry in here})
