"""Options of control and of the agent, and their text in the arguments of a process. Standard library only.

`stoker up` and the command line make them; `stoker.cli.daemons` reads them in the process that they are for.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

GRACE_S = 30.0
"""How long running jobs may take to end after SIGTERM."""


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """The options of `stoker control`."""

    NAME: ClassVar[str] = "control"

    data_dir: Path
    config: Path | None
    host: str
    port: int
    grpc_host: str
    grpc_port: int
    hosted: tuple[str, ...] = ()
    database: str | None = field(default=None, repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    behind_proxy: bool = False
    grpc_plain: bool = False
    """Serve gRPC without TLS, for the agent of `stoker up` on loopback."""
    standby: bool = False
    reload: bool = False
    log_format: str = "text"
    log_level: str = "info"
    ready_fd: int | None = None
    http_fd: int | None = None
    """A listener that was handed over, in the place of `host` and `port`."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of `stoker agent`."""

    NAME: ClassVar[str] = "agent"

    control: str
    join_token: str | None = field(repr=False)
    data_dir: Path
    name: str | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    ca_fingerprint: str | None = None
    insecure: bool = False
    ready_fd: int | None = None
    worker_user: str | None = None
    worker_users: str | None = None
    volume_root: Path | None = None
    data_center: str | None = None
    public_ip: str | None = None
    labels: tuple[str, ...] = ()
    gateway_listen: str | None = None
    gateway_advertise: str | None = None
    grace_s: float = GRACE_S
    reclaim_notices: str | None = None
    probes: str | None = None
    log_format: str = "text"
    log_level: str = "info"


Options = ControlOptions | AgentOptions

_KINDS: dict[str, type[Options]] = {kind.NAME: kind for kind in (ControlOptions, AgentOptions)}


def arguments_of(options: Options) -> tuple[str, str]:
    """Returns the arguments of a process from which `options_of` reads the options."""
    return options.NAME, json.dumps(asdict(options), default=str)


def options_of(name: str, text: str) -> Options:
    """Returns the options from the arguments of this process."""
    kind, values = _KINDS[name], json.loads(text)
    return kind(**{one.name: _read(str(one.type), values[one.name]) for one in fields(kind)})


def _read(kind: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return Path(value) if isinstance(value, str) and kind.startswith("Path") else value
