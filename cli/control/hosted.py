"""Control's hosted endpoints, made from the models' declarations, which need no torch.

STOKER_PIPELINE, a list with commas, chooses their pipelines, whose weights their nodes then fetch; otherwise
a worker takes the best pipeline whose weights are on its machine. Of several pipelines for one model each has
an endpoint. The agent's host decides where weights are stored. The first hosted endpoint always has a worker;
the others get one with their first job. The imports of all models are preloaded for each: workers with equal
environments are forked from one zygote, so a first job waits for weights, not for imports.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from stoker.cli.control.weights import locked_weights
from stoker.cli.errors import CliError
from stoker.control.config.config import (
    priced,
    with_workers,
    worker_limits,
    worker_needs,
)
from stoker.control.config.sections import HostedSection
from stoker.control.rules.needs import Needs
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.models.declaration import ModelDeclaration
from stoker.models.hosted import MODELS
from stoker.models.interface import PipelineEntry
from stoker.models.registry import (
    NoWeights,
    UnknownPipeline,
    requested_for,
    requested_pipelines,
    smallest,
)
from stoker.models.selection import choose
from stoker.models.speed_ups import profiles
from stoker.models.weights import ENTRIES, Lock, dump_lock, read_lock
from stoker.wire.messages import LockedWeights, Price

PIPELINE = "STOKER_PIPELINE"


def hosted_aliases(endpoints: Sequence[Endpoint]) -> dict[str, str]:
    """Returns the names by which existing programs call the hosted models: those of a model, and that of the
    pipeline which runs where the endpoint has the model's name. None of them is an endpoint's own."""
    taken = {endpoint.id for endpoint in endpoints}
    return {
        alias: endpoint.id
        for endpoint in endpoints
        if endpoint.hosted and endpoint.id in MODELS
        for alias in (*MODELS[endpoint.id].aliases, *_first_pipeline(endpoint))
        if alias not in taken
    }


def _first_pipeline(endpoint: Endpoint) -> tuple[str, ...]:
    return tuple(one.name for one in requested_for(endpoint.id, endpoint.run.env.get(PIPELINE))[:1])


def hosted_endpoints(
    ids: Sequence[str],
    variables: Mapping[str, str],
    more_prices: Sequence[Price] = (),
    sections: Mapping[str, HostedSection] = MappingProxyType({}),
) -> list[Endpoint]:
    """Returns the endpoints of these models: one named as the model, which runs the first of its pipelines
    that are requested, and one for each further pipeline, with its name. `sections` are the file's, by
    endpoint; where nothing is hosted they are of another command. The first endpoint always has a worker,
    unless its section says otherwise. Raises CliError."""
    offers = [offer for model in ids for offer in _offers(_declared(model), variables)]
    unknown = sorted(sections.keys() - {offer.endpoint for offer in offers})
    if offers and unknown:
        there = ", ".join(offer.endpoint for offer in offers)
        raise CliError(f"[hosted.{unknown[0]}]: is not served; served are {there}. {PIPELINE} names more")
    preload = tuple(sorted({name for offer in offers for name in offer.model.preload}))
    return [
        _endpoint(
            offer,
            _section(sections.get(offer.endpoint, HostedSection()), is_first=number == 0),
            variables,
            preload,
            more_prices,
        )
        for number, offer in enumerate(offers)
    ]


def _section(given: HostedSection, *, is_first: bool) -> HostedSection:
    if not is_first or "workersMin" in given.model_fields_set:
        return given
    return given.model_copy(update={"workersMin": min(1, given.workersMax)})


@dataclass(frozen=True, slots=True)
class _Offer:
    """A model at an endpoint. `requested` are the pipelines of which its workers run the first that is for
    the model; those of all models, where it may be so, since workers with equal environments are forked from
    one zygote. `chosen` is that one; None: the best on a worker's machine."""

    endpoint: str
    model: ModelDeclaration
    requested: tuple[PipelineEntry, ...]
    chosen: PipelineEntry | None


def _declared(model: str) -> ModelDeclaration:
    try:
        return MODELS[model]
    except KeyError:
        there = ", ".join(sorted(MODELS))
        raise CliError(f"there is no hosted endpoint {model!r}; there are {there}") from None


def _offers(model: ModelDeclaration, variables: Mapping[str, str]) -> Iterator[_Offer]:
    requested = _requested(variables)
    first = {entry.model: entry for entry in reversed(requested)}
    together = tuple(entry for entry in requested if entry is first[entry.model])
    yield _Offer(model.id, model, together, first.get(model.id))
    for entry in requested:
        if entry.model == model.id and entry not in together:
            yield _Offer(entry.name, model, (entry,), entry)


def _endpoint(
    offer: _Offer,
    section: HostedSection,
    variables: Mapping[str, str],
    preload: tuple[str, ...],
    more_prices: Sequence[Price],
) -> Endpoint:
    model, chosen = offer.model, offer.chosen
    schema = model.schema_for(chosen) if model.schema_for is not None and chosen else model.schema
    _check_settings(model, variables)
    names = ",".join(entry.name for entry in offer.requested)
    env = {**model.env, **({PIPELINE: names} if names else {})}
    env |= {name: variables[name] for name in (*model.more_weights, *model.settings) if variables.get(name)}
    if entries := _entries(offer, variables):
        env[ENTRIES] = entries
    at_once = 1
    if model.concurrency is not None:
        at_once = model.settings[model.concurrency](variables.get(model.concurrency) or "")
    prices = (*(Price(price["metric"], price["nano_usd"]) for price in model.prices), *more_prices)
    run = EndpointVersion(
        handler=model.handler,
        env=env,
        schema=schema,
        prices=priced(section, prices),
        preload=preload,
        concurrency=at_once,
        limits=worker_limits(section.limits),
        needs=_needs(section, chosen, variables),
        weights=_weights(model, chosen, variables),
    )
    name = model.name if chosen is None or offer.endpoint == model.id else f"{model.name}: {chosen.name}"
    made = Endpoint(id=offer.endpoint, account="default", name=name, version=1, run=run, hosted=True)
    return with_workers(made, section)


def _needs(section: HostedSection, chosen: PipelineEntry | None, variables: Mapping[str, str]) -> Needs:
    """Returns what the section requests of nodes; of what it leaves out, what the pipeline needs."""
    needs, given = worker_needs(section), section.model_fields_set
    if chosen is None or needs.compute == "CPU":
        return needs
    pipeline, profile = chosen.needs, profiles.chosen(chosen, variables.get(profiles.ENVIRONMENT) or "")
    least = profiles.gpu_memory_bytes(pipeline, profile)
    return replace(
        needs,
        gpu_types=needs.gpu_types if "gpuTypeIds" in given else pipeline.gpu_types,
        gpu_count=needs.gpu_count if "gpuCount" in given else pipeline.gpu_count,
        gpu_memory_bytes=needs.gpu_memory_bytes if "gpuMemoryMb" in given else least or None,
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


def _entries(offer: _Offer, variables: Mapping[str, str]) -> str:
    """Returns the entries of control's lock that the workers need, as the text of a lock: those of a node's
    installation may have no digests, or be of another version."""
    more = [variables.get(name) or entry for name, entry in offer.model.more_weights.items()]
    names = [name for one in offer.requested if one.lock is None for name in (one.weights, *one.loras)]
    lock = read_lock()
    found = [lock.entry(name) for name in dict.fromkeys((*names, *more)) if names]
    fetched = [entry for entry in found if not entry.is_built]
    return dump_lock(Lock(fetched)) if fetched else ""


def _check_settings(found: ModelDeclaration, variables: Mapping[str, str]) -> None:
    """Checks the settings before anything starts: otherwise each start of a worker would fail, without a
    message at the terminal."""
    for name, read in found.settings.items():
        try:
            read(variables.get(name) or "")
        except ValueError as error:
            raise CliError(str(error)) from None


def _requested(variables: Mapping[str, str]) -> tuple[PipelineEntry, ...]:
    try:
        return requested_pipelines(variables.get(PIPELINE))
    except UnknownPipeline as error:
        raise CliError(f"{PIPELINE}: {error}") from None


def serving_rows(ids: Sequence[str], kinds: str) -> list[tuple[str, str]]:
    """Returns each hosted endpoint with the pipeline that it runs on a machine with devices of these kinds,
    or why its jobs wait. Its workers choose by the same rule, and report the choice in `/health`."""
    kind = next((kind for kind in kinds.split() if kind != "cpu"), "cpu")
    offers = [offer for model in ids for offer in _offers(MODELS[model], os.environ)]
    return [(offer.endpoint, _serving(offer, kind)) for offer in offers]


def _serving(offer: _Offer, device_kind: str) -> str:
    try:
        return f"runs {(offer.chosen or choose(offer.model, device_kind)).description}"
    except NoWeights as error:
        return f"its jobs wait: {error}"


def needed_weights(ids: Sequence[str], variables: Mapping[str, str] = os.environ) -> dict[str, Path | None]:
    """Returns the weights that a machine needs to serve these, with their lock file unless it is this
    installation's: of chosen pipelines, or of those that a host without a GPU runs."""
    models = [MODELS[model] for model in ids if model in MODELS]
    more = {variables.get(name) or entry for model in models for name, entry in model.more_weights.items()}
    chosen = {
        model.id: [one for one in _requested(variables) if one.model == model.id] or [smallest(model)]
        for model in models
    }
    return dict.fromkeys(sorted(more)) | {one.weights: one.lock for here in chosen.values() for one in here}
