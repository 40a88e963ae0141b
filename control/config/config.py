"""Reads and checks `stoker.toml`, and makes endpoints of it. Errors name each wrong field.

    local_roots = ["handlers"]            the folders in which `local:` handlers may be
    allow_private_addresses = false       the outbound guard's switch
    database = "postgresql://..."         instead of a file in the data folder
    behind_proxy = false                  whether a proxy in front ends TLS
    trusted_proxies = ["10.0.0.0/8"]      further proxies, in front of that one
    gateway_domain = "lb.example.org"     load-balancing endpoints are at {id}.lb.example.org, too
    [tls]                                 certificate and key, for callers and agents
    [s3]  [prices]  [aliases]
    [retention]                           how long the record of an ended job is kept
    [rate_limits]                         whether they are enforced, and how workers raise them
    [cors]                                which web pages may call from a browser
    [[registries]]                        id, username and password of a container registry
    [[endpoints]]                         field names of the management API, and an image's `handler`
    [hosted.text-to-image]                workers, needs, limits and prices of a hosted endpoint

`imageName` is `local:` and a path on the node, or an image: then a worker is a container. Its program uses
the worker protocol, unless `handler` names a python handler in the image.

Relative paths start at the file's folder. Links are resolved before a path is compared with the roots, so
that none can lead out of them. Which hosted endpoints there are is said on the command line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pydantic import ValidationError
from pydantic_core import ErrorDetails, to_json

from stoker.control.config.endpoints import RESERVED
from stoker.control.config.image_names import LOCAL, ImageNameError, resolved
from stoker.control.config.sections import (
    Config,
    EndpointSection,
    HostedSection,
    LimitsSection,
    Prices,
    QuotaSection,
    RateLimits,
    RegistrySection,
    Retention,
    S3Section,
    Section,
    TlsSection,
    WorkersSection,
)
from stoker.control.rules.billing import PriceList
from stoker.control.rules.limits import DEFAULT_EXECUTION_TIMEOUT_MS
from stoker.control.rules.needs import Needs
from stoker.control.rules.quotas import Quota
from stoker.control.rules.submissions import abbreviated
from stoker.control.rules.types import LOAD_BALANCER, Endpoint, EndpointVersion
from stoker.wire.messages import Price, RegistryAuth, WorkerLimits

DEVICE_MS = "device_ms"
"""The measure of every job that `[prices]` may put a price on."""


class ConfigError(Exception):
    """The configuration cannot be used. The message names file, field, value and what is allowed."""


def load_config(path: Path | str | None) -> Config:
    """Returns the configuration of this file, or the defaults if `path` is None."""
    if path is None:
        return Config()
    file = Path(path)
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None
    return _resolved(_validated(document, file), file)


def to_endpoints(config: Config, account: str = "default") -> list[Endpoint]:
    """Returns the endpoints that the file declares. The store decides whether a changed one is a new
    version."""
    prices = device_prices(config)
    registries = registry_auths(config)
    return [
        with_workers(
            Endpoint(
                id=declared.id,
                account=account,
                name=declared.name or declared.id,
                version=1,
                run=to_version(declared, prices, registries.get(declared.containerRegistryAuthId or "")),
                type=declared.type,
            ),
            declared,
        )
        for declared in config.endpoints
    ]


def with_workers(endpoint: Endpoint, declared: WorkersSection) -> Endpoint:
    """Returns the endpoint with the workers and the jobs' limits that are declared."""
    return replace(
        endpoint,
        workers_min=declared.workersMin,
        workers_max=declared.workersMax,
        idle_timeout_s=declared.idleTimeout,
        execution_timeout_ms=declared.executionTimeoutMs or DEFAULT_EXECUTION_TIMEOUT_MS,
        ttl_ms=declared.ttlMs,
        max_attempts=declared.maxAttempts,
        handler_retries=declared.retryHandlerErrors,
        keep_cases=declared.keepCases,
        scaler_type=declared.scalerType,
        scaler_value=declared.scalerValue,
        quota=Quota.of(declared.quota.model_dump()),
    )


def registry_auths(config: Config) -> dict[str, RegistryAuth]:
    """Returns the credentials of the file's registries, by id."""
    return {one.id: RegistryAuth(one.username, one.password.get_secret_value()) for one in config.registries}


def to_version(
    declared: EndpointSection, prices: tuple[Price, ...], registry: RegistryAuth | None
) -> EndpointVersion:
    """Returns what the endpoint's workers run. Its `imageName` must be resolved. Its own prices replace those
    of all endpoints for the same metric."""
    image = declared.imageName
    local = image.startswith(LOCAL)
    return EndpointVersion(
        handler=image.removeprefix(LOCAL) if local else declared.handler or "",
        env=dict(declared.env),
        schema=declared.inputSchema,
        prices=priced(declared, prices),
        concurrency=declared.concurrency,
        preload=declared.preload,
        kind=_kind(declared),
        command=declared.dockerStartCmd,
        image="" if local else image,
        registry=registry,
        volume=declared.networkVolumeId or "",
        limits=worker_limits(declared.limits),
        start_timeout_s=float(declared.start_timeout_s),
        max_jobs=declared.maxJobs,
        max_growth_bytes=_bytes(declared.maxMemoryGrowthMb),
        needs=worker_needs(declared),
    )


def _kind(declared: EndpointSection) -> str:
    if declared.type == LOAD_BALANCER:
        return "http"
    return "protocol" if declared.is_program else "python"


def priced(declared: WorkersSection, prices: Iterable[Price]) -> tuple[Price, ...]:
    """Returns these prices, of which the declared replace those for the same metric."""
    own = (Price(metric, nano_usd) for metric, nano_usd in declared.prices.items())
    return (*own, *(price for price in prices if price.metric not in declared.prices))


def worker_needs(declared: WorkersSection) -> Needs:
    return Needs(
        compute=declared.computeType or "",
        gpu_types=declared.gpuTypeIds,
        gpu_count=declared.gpuCount,
        gpu_memory_bytes=_bytes(declared.gpuMemoryMb),
        share=declared.gpuMemoryShare,
        min_cuda=declared.minCudaVersion,
        cuda_versions=declared.allowedCudaVersions,
        data_centers=declared.dataCenterIds,
        labels=dict(declared.nodeLabels),
        vcpus=declared.vcpuCount,
        memory_bytes=_bytes(declared.limits.memoryMb),
    )


def worker_limits(declared: LimitsSection) -> WorkerLimits | None:
    if declared == LimitsSection():
        return None
    return WorkerLimits(_bytes(declared.memoryMb), declared.cpus, declared.pids, declared.openFiles)


def _bytes(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes << 20


def device_prices(config: Config) -> tuple[Price, ...]:
    """Returns the price of a device's time, if there is one."""
    nano_usd = config.prices.device_second_nano_usd // 1_000
    return (Price(DEVICE_MS, nano_usd),) if nano_usd else ()


def price_list(config: Config) -> PriceList:
    """Returns the prices of time and space."""
    prices = config.prices
    return PriceList(
        device_second=prices.device_second_nano_usd,
        gpu_second=dict(prices.gpu_second_nano_usd),
        cpu_second=prices.cpu_second_nano_usd,
        starting_percent=prices.starting_percent,
        idle_percent=prices.idle_percent,
        disk_gb_hour=prices.pod_disk_gb_hour_nano_usd,
        volume_gb_hour=prices.volume_gb_hour_nano_usd,
    )


def check_aliases(config: Config, endpoints: Iterable[Endpoint]) -> None:
    """Raises ConfigError for a wrong alias. `endpoints` are all, also the hosted ones."""
    known = {endpoint.id for endpoint in endpoints}
    for alias, target in config.aliases.items():
        if alias in RESERVED:
            raise ConfigError(
                f"aliases.{alias} must not be a name of the management API, as in /v2/{alias}; take another"
                " word"
            )
        if alias in known:
            raise ConfigError(f"aliases.{alias} is the id of an endpoint already; take another word for it")
        if target not in known:
            allowed = ", ".join(sorted(known)) or "there are no endpoints"
            raise ConfigError(
                f"aliases.{alias} must be the id of an endpoint; got {abbreviated(target)};"
                f" allowed: {allowed}"
            )


# -- errors


def _validated(document: Mapping[str, Any], file: Path) -> Config:
    try:
        # As JSON: TOML's arrays are lists, which a strict model takes for tuples only from JSON.
        return Config.model_validate_json(_as_json(document, file))
    except ValidationError as invalid:
        messages = [_message(error) for error in invalid.errors(include_url=False)]
        raise ConfigError(f"{file}: " + "; ".join(messages)) from None


def _as_json(document: Mapping[str, Any], file: Path) -> bytes:
    try:
        return to_json(document)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def _message(error: ErrorDetails) -> str:
    where = _where(error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{where} is not a known field; allowed: {', '.join(_fields_at(error['loc'][:-1]))}"
    if error["type"] == "missing":
        return f"{where} is required and missing"
    if error["type"] == "value_error":
        return f"{where + ': ' if where else ''}{error['ctx']['error']}"
    value = "a secret" if error["loc"][-1] in _SECRETS else abbreviated(error["input"])
    return f"{where}: {error['msg']}; got {value}"


_SECRETS = ("access_secret", "database", "password")


def _where(loc: tuple[int | str, ...]) -> str:
    where = ""
    for part in loc:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else part
    return where


_SECTIONS: dict[str, type[Section]] = {
    "s3": S3Section,
    "tls": TlsSection,
    "prices": Prices,
    "retention": Retention,
    "rate_limits": RateLimits,
    "registries": RegistrySection,
    "endpoints": EndpointSection,
    "hosted": HostedSection,
}
_SECTIONS_IN_SECTIONS: dict[str, type[Section]] = {"limits": LimitsSection, "quota": QuotaSection}


def _fields_at(loc: tuple[int | str, ...]) -> list[str]:
    section = _SECTIONS.get(str(loc[0]), Config) if loc else Config
    return list(_SECTIONS_IN_SECTIONS.get(str(loc[-1]) if loc else "", section).model_fields)


# -- paths


def _resolved(config: Config, file: Path) -> Config:
    folder = file.resolve().parent
    roots = tuple(_root(folder, root, file) for root in config.local_roots)
    _check_registries(config, file)
    seen: set[str] = set()
    endpoints = []
    for declared in config.endpoints:
        if declared.id in seen:
            raise ConfigError(f"{file}: two endpoints have the id {declared.id}; ids must differ")
        seen.add(declared.id)
        field, program = f"{file}: imageName of endpoint {declared.id}", bool(declared.dockerStartCmd)
        try:
            image = resolved(
                declared.imageName, field, folder, roots, program=program, functions=config.functions
            )
        except ImageNameError as wrong:
            raise ConfigError(str(wrong)) from None
        lock = declared.weightsLock and str(folder / declared.weightsLock)
        endpoints.append(declared.model_copy(update={"imageName": image, "weightsLock": lock}))
    tls = config.tls and TlsSection(
        cert=str(folder / config.tls.cert),
        key=str(folder / config.tls.key),
        client_ca=config.tls.client_ca and str(folder / config.tls.client_ca),
    )
    return config.model_copy(
        update={
            "local_roots": tuple(str(root) for root in roots),
            "endpoints": tuple(endpoints),
            "tls": tls,
        }
    )


def _check_registries(config: Config, file: Path) -> None:
    known = [registry.id for registry in config.registries]
    for one in known:
        if known.count(one) > 1:
            raise ConfigError(f"{file}: two registries have the id {one}; ids must differ")
    for endpoint in config.endpoints:
        wanted = endpoint.containerRegistryAuthId
        if wanted is not None and wanted not in known:
            raise ConfigError(
                f"{file}: containerRegistryAuthId of endpoint {endpoint.id} must be the id of a registry; got"
                f" {abbreviated(wanted)}; allowed: {', '.join(known) or 'none; add [[registries]]'}"
            )


def _root(folder: Path, name: str, file: Path) -> Path:
    root = (folder / name).resolve()
    if not root.is_dir():
        raise ConfigError(f"{file}: local_roots must name folders; {name} is none ({root})")
    return root
