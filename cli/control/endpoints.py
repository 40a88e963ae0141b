"""The endpoints that control declares: the hosted ones that were named, and those of the configuration.

The models' declarations (`stoker.cli.control.hosted`) are imported only where one is hosted: they are 60
modules. So is the lock of weights where an endpoint names some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from stoker.cli.control.schemas import with_schemas
from stoker.cli.control.weights import locked_weights
from stoker.cli.errors import CliError
from stoker.control.config.config import check_aliases, device_prices, to_endpoints
from stoker.control.config.sections import Config, EndpointSection
from stoker.control.rules.types import Endpoint


def declared_endpoints(config: Config, hosted: Sequence[str], variables: Mapping[str, str]) -> list[Endpoint]:
    """Returns the hosted endpoints and those of the configuration. Raises CliError if two have the same
    id."""
    models = _hosted(config, hosted, variables)
    declared = zip(to_endpoints(config), config.endpoints, strict=True)
    own = with_schemas([_with_weights(endpoint, section) for endpoint, section in declared])
    endpoints = [*models, *own]
    ids = [endpoint.id for endpoint in endpoints]
    for taken in ids:
        if ids.count(taken) > 1:
            raise CliError(f"the endpoint id {taken} is a hosted one's; give yours another")
    check_aliases(config, endpoints)
    return endpoints


def _hosted(config: Config, hosted: Sequence[str], variables: Mapping[str, str]) -> list[Endpoint]:
    if not hosted:
        return []
    from stoker.cli.control.hosted import hosted_endpoints

    return hosted_endpoints(hosted, variables, device_prices(config), config.hosted)


def _with_weights(endpoint: Endpoint, section: EndpointSection) -> Endpoint:
    """Returns the endpoint with its locked weights. The lock is read here: control itself knows no lock
    files."""
    if not section.weights:
        return endpoint
    from stoker.models.weights import WeightsError

    lock = None if section.weightsLock is None else Path(section.weightsLock)
    try:
        weights = locked_weights(section.weights, lock)
    except WeightsError as error:
        raise CliError(f"weights of endpoint {endpoint.id}: {error}") from None
    return replace(endpoint, run=replace(endpoint.run, weights=weights))


def with_hosted_aliases(endpoints: Iterable[Endpoint], configured: Mapping[str, str]) -> dict[str, str]:
    """Returns the configured aliases, and the names by which existing programs call the hosted models. An
    endpoint or an alias of the operator with the same name has priority."""
    endpoints = list(endpoints)
    if not any(endpoint.hosted for endpoint in endpoints):
        return dict(configured)
    from stoker.cli.control.hosted import hosted_aliases

    return hosted_aliases(endpoints) | dict(configured)
