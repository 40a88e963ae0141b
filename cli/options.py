"""Options of more than one command, and the fixed choices that some options offer."""

from __future__ import annotations

import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from stoker.cli.errors import CliError
from stoker.cli.log_lines import Format, Level


class Billed(StrEnum):
    endpoint = "endpoint"
    pod = "pod"
    volume = "volume"


class Size(StrEnum):
    small = "480p"
    large = "720p"


class BillBucket(StrEnum):
    hour = "hour"
    day = "day"
    week = "week"
    month = "month"
    year = "year"


DATA_DIR = Path(".stoker")
URL = "http://127.0.0.1:8000"


def _service(context: typer.Context, parameter: typer.CallbackParam, url: str) -> str:
    """Returns the address; the default may come from `.env`. Prints once per command the warning that the
    client would print with a line of its source."""
    from stoker.client import dotenv, pasted
    from stoker.client.httpx2_adapter import KeyInTheClear, in_the_clear

    source = context.get_parameter_source(parameter.name or "")
    if source is not None and source.name == "DEFAULT":
        url = dotenv.lookup("STOKER_URL", {}, Path.cwd()) or url
    addresses = pasted.addresses("the service's address", url)
    for address in filter(in_the_clear, addresses):
        text = f"stoker: warning: the API key goes to {address} in the clear; give an https address"
        print(text, file=sys.stderr)
        warnings.simplefilter("ignore", KeyInTheClear)
    return ",".join(addresses)


def _service_or_none(context: typer.Context, parameter: typer.CallbackParam, url: str | None) -> str | None:
    return None if url is None else _service(context, parameter, url)


def _pem(flag: str, content: str) -> Any:
    """Returns the option for a PEM file; for --tls-cert the variable is STOKER_TLS_CERT."""
    variable = f"STOKER_{flag[2:].upper().replace('-', '_')}"
    return typer.Option(flag, envvar=variable, exists=True, dir_okay=False, help=f"PEM file: {content}")


DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir", envvar="STOKER_DATA_DIR", help="Folder for the database, keys, logs and objects."
    ),
]
Url = Annotated[
    str,
    typer.Option(
        envvar="STOKER_URL",
        help="Address of the service; several with commas, of control and its standbys.",
        callback=_service,
    ),
]
KeyUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="STOKER_URL",
        help="Address of a service, whose management API is called; without it, the store on this host.",
        callback=_service_or_none,
    ),
]
ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="STOKER_URL",
        help=f"Address of the service; {URL} where --control is not given either.",
        callback=_service_or_none,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file; stoker.toml in the current folder by default."),
]
TlsCert = Annotated[
    Path | None,
    _pem("--tls-cert", "the certificate for callers and agents."),
]
TlsKey = Annotated[
    Path | None,
    _pem("--tls-key", "the private key of --tls-cert."),
]
TlsClientCa = Annotated[
    Path | None,
    _pem("--tls-client-ca", "agents must have a certificate of this authority. Callers use API keys."),
]
BehindProxy = Annotated[
    bool,
    typer.Option(
        "--behind-proxy",
        envvar="STOKER_BEHIND_PROXY",
        help="A proxy terminates TLS for callers: serve plain HTTP, also beyond loopback, and trust"
        " X-Forwarded-For and X-Forwarded-Proto. Only the proxy may reach this port.",
    ),
]
AgentTlsCa = Annotated[
    Path | None,
    _pem("--tls-ca", "the authority of control's certificate; the system's bundle for a public one."),
]
AgentTlsCert = Annotated[
    Path | None,
    _pem("--tls-cert", "the agent's own certificate, if control requires one."),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="STOKER_INSECURE",
        help="Allow a remote control without --tls-ca: the join token and all jobs are not encrypted.",
    ),
]
WorkerUsers = Annotated[
    str | None,
    typer.Option(
        "--worker-users",
        envvar="STOKER_WORKER_USERS",
        metavar="RANGE",
        help="As root: run each worker as its own user, from a range such as 100000-100999; auto finds one.",
    ),
]
Host = Annotated[str, typer.Option(help="Address that the HTTP server binds to.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port of the HTTP server; 0 takes a free one.")]
GrpcPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port that agents connect to; 0 takes a free one.")
]
Hosted = Annotated[
    list[str] | None, typer.Option("--hosted", help="A hosted endpoint to serve; may be repeated.")
]
OtherEndpoint = Annotated[
    str,
    typer.Option(
        help="Another endpoint with the same input and output: its id, the beginning of it, or its name."
    ),
]
VolumeRoot = Annotated[
    Path | None,
    typer.Option(help="Folder of this host's network volumes; or STOKER_VOLUME_ROOT."),
]
LogFormat = Annotated[
    Format,
    typer.Option("--log-format", envvar="STOKER_LOG_FORMAT", help="Lines as text, or as JSON objects."),
]
LogLevel = Annotated[
    Level, typer.Option("--log-level", envvar="STOKER_LOG_LEVEL", help="The least that is logged.")
]
ReadyFd = Annotated[int | None, typer.Option(hidden=True)]
HttpFd = Annotated[int | None, typer.Option(hidden=True)]
Database = Annotated[
    str | None,
    typer.Option(
        help="postgresql://...; a file in the data folder by default. "
        "Prefer STOKER_DATABASE_URL: every user of this machine can read arguments."
    ),
]


def config_file(path: Path | None) -> Path | None:
    """Returns `path`, else stoker.toml if that file exists. Raises CliError if `path` does not exist."""
    found = path or Path("stoker.toml")
    if found.exists():
        return found.absolute()
    if path is not None:
        raise CliError(f"there is no configuration file {path}")
    return None


def examples(*lines: str) -> str:
    """Returns the examples below a command's options in `--help`; each line can be typed as it is."""
    return "\n\n".join(("Example:" if len(lines) == 1 else "Examples:", *lines))
