"""The sections of `stoker.toml` as models: their fields, and the values that are allowed.

`control.config.config` checks paths and writes the error messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from stoker.control.auth.identities import Role, is_secured
from stoker.control.config.image_names import LOCAL
from stoker.control.rules.inputs.defaults import check_defaults
from stoker.control.rules.limits import (
    DEFAULT_EXECUTION_TIMEOUT_MS,
    DEFAULT_TTL_MS,
    EXECUTION_TIMEOUT_MS,
    REQUESTS_PER_WORKER,
    RETENTION_S,
    RETENTION_SYNC_MOST_S,
    RETENTION_SYNC_S,
    TTL_MS,
)
from stoker.control.rules.nodes.certificates import LIFE_S
from stoker.control.rules.nodes.ways import WAYS, Way
from stoker.control.rules.submissions import abbreviated, is_http_url
from stoker.control.rules.types import AS_MANY_AS_FIT

_ID = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
MODULE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
_ARGUMENT = r"^[^\x00]+$"
_SECONDS = re.compile(r"[0-9]{1,9}")
HANDLER = r"^[^\x00:]+:[A-Za-z_][A-Za-z0-9_]*$"
_ORIGIN = r"^(\*|https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?)$"
_DOMAIN = r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*)?$"
_ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
_CUDA = r"^([0-9]{1,3}\.[0-9]{1,3})?$"
_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
WEIGHTS = r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}$"
_METRIC = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
INIT_TIMEOUT_S = (1, 86_400)
INIT_TIMEOUT_ENV = ("STOKER_INIT_TIMEOUT", "RUNPOD_INIT_TIMEOUT")
"""The environment variables that may set the start deadline. The first that is set counts."""


_Nano = Annotated[int, Field(ge=0, le=10**15)]


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises ValueError for an input schema that is not a JSON Schema (draft 2020-12), or has a default that
    it does not allow."""
    from jsonschema import Draft202012Validator  # a configuration without schemas does without
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"the input schema is not valid at {error.json_path}: {error.message}") from None
    check_defaults(schema)


def _network(address: str) -> str:
    ip_network(address)  # its error says what is wrong
    return address


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class S3Section(Section):
    """The operator's own S3. Without it the embedded one is used. An empty `region` is read from the host of
    `endpoint_url`, or learnt from the store."""

    model_config = ConfigDict(str_strip_whitespace=True)

    endpoint_url: str
    public_endpoint: str | None = None
    region: str = ""
    bucket: Annotated[str, Field(min_length=3, max_length=63)]
    access_id: Annotated[str, Field(min_length=1)]
    access_secret: SecretStr

    @model_validator(mode="after")
    def _urls(self) -> S3Section:
        for field in ("endpoint_url", "public_endpoint"):
            value = getattr(self, field)
            if value is not None and not is_http_url(value):
                raise ValueError(f"{field} must be an http or https URL; got {abbreviated(value)}")
        return self


class TlsSection(Section):
    """PEM files of the server's certificate. `client_ca` signs the certificates of agents."""

    cert: Annotated[str, Field(min_length=1)]
    key: Annotated[str, Field(min_length=1)]
    client_ca: Annotated[str | None, Field(min_length=1)] = None


class AgentCertificatesSection(Section):
    """The certificates that control signs for nodes with the authority of `stoker ca`. With "issue" nodes get
    theirs, and with "require" none comes in without. `life_s` is that of a new one."""

    mode: Literal["issue", "require"]
    life_s: Annotated[int, Field(ge=60, le=31_536_000)] = int(LIFE_S)


_Audience = Annotated[str, Field(min_length=1, max_length=255)]


class OidcSection(Section):
    """An issuer of OpenID Connect, whose tokens for one of `audience` are accepted in place of keys.
    `rights`: what each group in the claim `claim` may do."""

    issuer: Annotated[str, Field(min_length=8, max_length=2048)]
    audience: _Audience | Annotated[list[_Audience], Field(min_length=1, max_length=20)]
    claim: Annotated[str, Field(min_length=1, max_length=255)] = "groups"
    rights: Annotated[dict[str, Role], Field(min_length=1)]

    @field_validator("issuer")
    @classmethod
    def _secured(cls, issuer: str) -> str:
        if not is_http_url(issuer) or not is_secured(issuer):
            raise ValueError(f"issuer must be an https URL; got {abbreviated(issuer)}")
        return issuer


class Prices(Section):
    """Prices in whole billionths of a dollar. `device_second_nano_usd` is a multiple of 1000, because a job's
    device time is counted in milliseconds."""

    device_second_nano_usd: Annotated[int, Field(ge=0, multiple_of=1_000)] = 0
    gpu_second_nano_usd: dict[Annotated[str, Field(min_length=1, max_length=191)], _Nano] = {}
    cpu_second_nano_usd: _Nano | None = None
    starting_percent: Annotated[int, Field(ge=0, le=100)] = 100
    idle_percent: Annotated[int, Field(ge=0, le=100)] = 100
    pod_disk_gb_hour_nano_usd: _Nano = 0
    volume_gb_hour_nano_usd: _Nano = 0


class Retention(Section):
    """Seconds for which the record of an ended job is kept, for jobs of `/run` and of `/runsync`."""

    async_s: Annotated[int, Field(ge=60, le=604_800)] = RETENTION_S
    sync_s: Annotated[int, Field(ge=10, le=RETENTION_SYNC_MOST_S)] = RETENTION_SYNC_S


class RateLimits(Section):
    """An endpoint's limits allow at least this many requests for each of its running workers."""

    enabled: bool = True
    requests_per_worker: Annotated[int, Field(ge=0, le=1_000_000)] = REQUESTS_PER_WORKER


class Cors(Section):
    """The origins whose pages may call from a browser: `https://host[:port]`, or "*" for all."""

    origins: tuple[Annotated[str, Field(pattern=_ORIGIN)], ...] = ()


class RegistrySection(Section):
    """The credentials of a registry. Endpoints refer to them by id."""

    model_config = ConfigDict(str_strip_whitespace=True)

    id: Annotated[str, Field(pattern=_ID)]
    username: Annotated[str, Field(min_length=1, max_length=191)]
    password: SecretStr


class LimitsSection(Section):
    """The limits of one worker with all its processes. The node's limits apply where none is set."""

    memoryMb: Annotated[int | None, Field(ge=16, le=1 << 24)] = None
    cpus: Annotated[float | None, Field(ge=0.01, le=4096)] = None
    pids: Annotated[int | None, Field(ge=8, le=1 << 22)] = None
    openFiles: Annotated[int | None, Field(ge=64, le=1 << 20)] = None


class QuotaSection(Section):
    """The bounds of a key or an endpoint. Without a number there is no bound."""

    jobsWaiting: Annotated[int | None, Field(ge=1, le=1 << 31)] = None
    gpuSecondsPerDay: Annotated[int | None, Field(ge=1, le=1 << 31)] = None
    fileBytes: Annotated[int | None, Field(ge=1, le=1 << 50)] = None


class WorkersSection(Section):
    """The fields of every endpoint: how many workers it has, what each needs of its node, and its jobs'
    limits and prices."""

    workersMin: Annotated[int, Field(ge=0)] = 0
    workersMax: Annotated[int, Field(ge=0)] = 3
    idleTimeout: Annotated[int, Field(ge=1, le=3600)] = 5
    executionTimeoutMs: int = DEFAULT_EXECUTION_TIMEOUT_MS
    ttlMs: Annotated[int, Field(ge=TTL_MS[0], le=TTL_MS[1])] = DEFAULT_TTL_MS
    maxAttempts: Annotated[int, Field(ge=1, le=10)] = 3
    retryHandlerErrors: Annotated[int, Field(ge=0, le=10)] = 0
    keepCases: bool = False
    computeType: Literal["GPU", "CPU"] | None = None
    gpuTypeIds: tuple[Annotated[str, Field(min_length=1, max_length=191)], ...] = ()
    gpuCount: Annotated[int, Field(ge=1, le=64)] = 1
    gpuMemoryMb: Annotated[int | None, Field(ge=1, le=1 << 24)] = None
    gpuMemoryShare: Annotated[float, Field(gt=0, le=1)] = 1.0
    minCudaVersion: Annotated[str, Field(pattern=_CUDA)] = ""
    allowedCudaVersions: tuple[Annotated[str, Field(pattern=_CUDA)], ...] = ()
    dataCenterIds: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] = ()
    nodeLabels: dict[Annotated[str, Field(pattern=_LABEL)], str] = {}
    vcpuCount: Annotated[int | None, Field(ge=1, le=1024)] = None
    scalerType: Literal["QUEUE_DELAY", "REQUEST_COUNT"] = "REQUEST_COUNT"
    scalerValue: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    prices: dict[Annotated[str, Field(pattern=_METRIC)], _Nano] = {}
    limits: LimitsSection = LimitsSection()
    quota: QuotaSection = QuotaSection()

    @model_validator(mode="after")
    def _bounds(self) -> WorkersSection:
        if self.workersMin > self.workersMax:
            raise ValueError(
                f"workersMin must be at most workersMax; got {self.workersMin} and {self.workersMax}"
            )
        low, high = EXECUTION_TIMEOUT_MS
        if self.executionTimeoutMs != 0 and not low <= self.executionTimeoutMs <= high:
            raise ValueError(
                f"executionTimeoutMs must be an integer from {low} to {high}, or 0 for the default of"
                f" {DEFAULT_EXECUTION_TIMEOUT_MS}; got {self.executionTimeoutMs}"
            )
        return self


class EndpointSection(WorkersSection):
    id: Annotated[str, Field(pattern=_ID)]
    name: Annotated[str | None, Field(max_length=191)] = None
    type: Literal["QUEUE", "LOAD_BALANCER"] = "QUEUE"
    imageName: str
    handler: Annotated[str | None, Field(pattern=HANDLER, max_length=1024)] = None
    env: dict[Annotated[str, Field(pattern=_ENV_NAME)], str] = {}
    preload: tuple[Annotated[str, Field(pattern=MODULE, max_length=200)], ...] = ()
    dockerStartCmd: tuple[Annotated[str, Field(pattern=_ARGUMENT, max_length=4096)], ...] = ()
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 1
    initTimeout: Annotated[int, Field(ge=INIT_TIMEOUT_S[0], le=INIT_TIMEOUT_S[1])] = 420
    maxJobs: Annotated[int | None, Field(ge=1, le=1_000_000_000)] = None
    maxMemoryGrowthMb: Annotated[int | None, Field(ge=1, le=1 << 24)] = None
    inputSchema: dict[str, Any] | None = None
    networkVolumeId: Annotated[str | None, Field(pattern=_ID)] = None
    containerRegistryAuthId: Annotated[str | None, Field(pattern=_ID)] = None
    weights: tuple[Annotated[str, Field(pattern=WEIGHTS)], ...] = ()
    weightsLock: Annotated[str | None, Field(min_length=1, max_length=4096)] = None

    @field_validator("inputSchema")
    @classmethod
    def _schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        check_schema(schema or {})
        return schema

    @model_validator(mode="after")
    def _kind(self) -> EndpointSection:
        """Checks that the fields fit a program of the worker protocol, or a handler."""
        contained = not self.imageName.startswith(LOCAL)
        if self.handler is not None and not contained:
            raise ValueError(
                'handler is for images; beside "local:" the handler stands in imageName;'
                f" got {abbreviated(self.handler)}"
            )
        if self.preload and (self.dockerStartCmd or contained):
            raise ValueError(
                "preload is for handlers of this host; a program (dockerStartCmd) or an image imports"
                " what it needs itself"
            )
        if self.containerRegistryAuthId is not None and not contained:
            raise ValueError(
                "containerRegistryAuthId is for images, which are pulled; got"
                f" {abbreviated(self.containerRegistryAuthId)}"
            )
        return self

    @model_validator(mode="after")
    def _load_balancing(self) -> EndpointSection:
        """Checks that a load-balancing endpoint names an HTTP server, and nothing that only jobs have."""
        if self.type == "QUEUE":
            return self
        if self.handler is not None or not self.is_program:
            raise ValueError(
                "a load-balancing endpoint runs an HTTP server and no handler: give its command as"
                " dockerStartCmd, and its folder or image as imageName"
            )
        if self.scalerType != "REQUEST_COUNT":
            raise ValueError("scalerType of a load-balancing endpoint must be REQUEST_COUNT: it has no queue")
        return self

    @model_validator(mode="after")
    def _weights(self) -> EndpointSection:
        if self.weightsLock is not None and not self.weights:
            raise ValueError(
                f"weightsLock is the lock of weights, and none are named; got {self.weightsLock}"
            )
        return self

    @property
    def is_program(self) -> bool:
        if self.imageName.startswith(LOCAL):
            return bool(self.dockerStartCmd)
        return self.handler is None

    @property
    def start_timeout_s(self) -> int:
        """The environment variable takes precedence over `initTimeout`."""
        variable = next((self.env[name] for name in INIT_TIMEOUT_ENV if name in self.env), None)
        return self.initTimeout if variable is None else int(variable)

    @model_validator(mode="after")
    def _init_timeouts(self) -> EndpointSection:
        low, high = INIT_TIMEOUT_S
        for name in INIT_TIMEOUT_ENV:
            value = self.env.get(name)
            if value is not None and not (_SECONDS.fullmatch(value) and low <= int(value) <= high):
                raise ValueError(
                    f"env.{name} must be whole seconds from {low} to {high}; got {abbreviated(value)}"
                )
        return self


class HostedSection(WorkersSection):
    """A hosted endpoint, named by its id. Its other fields are its model's."""

    workersMax: Annotated[int, Field(ge=0)] = AS_MANY_AS_FIT
    idleTimeout: Annotated[int, Field(ge=1, le=3600)] = 300
    scalerType: Literal["QUEUE_DELAY", "REQUEST_COUNT"] = "QUEUE_DELAY"
    scalerValue: Annotated[int, Field(ge=1, le=1_000_000)] = 4


class Config(Section):
    """The whole file."""

    local_roots: tuple[str, ...] = ()
    functions: bool = False
    allow_private_addresses: bool = False
    behind_proxy: bool = False
    trusted_proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    gateway_domain: Annotated[str, Field(pattern=_DOMAIN)] = ""
    gateway_ways: Annotated[tuple[Way, ...], Field(min_length=1)] = WAYS
    tls: TlsSection | None = None
    agent_certificates: AgentCertificatesSection | None = None
    oidc: OidcSection | None = None
    s3: S3Section | None = None
    database: SecretStr | None = None
    prices: Prices = Prices()
    retention: Retention = Retention()
    rate_limits: RateLimits = RateLimits()
    cors: Cors = Cors()
    aliases: dict[str, str] = {}
    hosted: dict[Annotated[str, Field(pattern=_ID)], HostedSection] = {}
    registries: tuple[RegistrySection, ...] = ()
    endpoints: tuple[EndpointSection, ...] = ()
