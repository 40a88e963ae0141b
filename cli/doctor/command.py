"""The options of `stoker doctor`, the probes that apply on this host, and the output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from stoker import __version__
from stoker.cli import extras
from stoker.cli.doctor import probes
from stoker.cli.doctor.facts import Certificate, Configuration, Facts, Objects
from stoker.cli.doctor.findings import Finding, Level, failed, findings
from stoker.cli.options import (
    DATA_DIR,
    URL,
    AgentTlsCa,
    ConfigFile,
    DataDir,
    ServiceUrl,
    TlsCert,
    TlsKey,
    config_file,
    examples,
)
from stoker.client import dotenv
from stoker.outbound.run_in_thread import run_in_thread

if TYPE_CHECKING:
    from stoker.control.config.sections import Config

T = TypeVar("T")

PATIENCE_S = 45.0
"""How long one probe may take: a driver takes up to 30 s."""

CONTROL_FREE, AGENT_FREE = 256 << 20, 1 << 30
"""Bytes of free disk below which `/ready` of control, and that of an agent, fail."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options. `urls`: addresses of control over HTTP; `doors`: those of its gRPC server."""

    urls: tuple[str, ...]
    doors: tuple[str, ...]
    data_dir: Path
    config: Path | None
    ca: Path | None
    cert: Path | None
    key: Path | None


def doctor(
    url: ServiceUrl = None,
    control: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of control's gRPC server, as an agent here has it; several with commas."
        ),
    ] = None,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
    tls_ca: AgentTlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Checks this host and the service, and says what to do. Ends with 1 if something needed fails."""
    from stoker.cli.tables import show

    doors = tuple(filter(None, (control or "").split(",")))
    named = url or dotenv.lookup("STOKER_URL", {}, Path.cwd())
    urls = (named,) if named else () if doors else (URL,)
    asked = Asked(urls, doors, data_dir.absolute(), config_file(config), tls_ca, tls_cert, tls_key)
    found = findings(asyncio.run(_facts(asked)))
    records = [
        {"check": one.check, "level": one.level.value, "found": one.found, "do": one.do} for one in found
    ]
    show(("CHECK", "", "FOUND", "DO"), [_row(one) for one in found], records, as_json=as_json)
    raise typer.Exit(failed(found))


def _row(one: Finding) -> tuple[str, str, str, str]:
    level = one.level.value.upper() if one.level is Level.failed else one.level.value
    return one.check, level, one.found, one.do


async def _facts(asked: Asked) -> Facts:
    """Runs all probes at once, each in a thread with a time limit."""
    agent, control = extras.has("nvidia-ml-py"), extras.has("sqlalchemy")
    read, config = _configuration(asked) if control else (None, None)
    key, ca = _key(asked), None if asked.ca is None else str(asked.ca)
    found, objects, services, doors = await asyncio.gather(
        _host(asked, agent=agent),
        _objects(config),
        _all(asked.urls, lambda url: probes.service(url, key, ca)),
        _all(asked.doors, lambda address: probes.door(address, asked.ca)),
    )
    return replace(
        found,
        configuration=read,
        certificates=_certificates(asked, config),
        objects=objects,
        services=services,
        doors=doors,
    )


async def _host(asked: Asked, *, agent: bool) -> Facts:
    disk = probes.disk(asked.data_dir, AGENT_FREE if agent else CONTROL_FREE)
    found = Facts(__version__, torch=probes.torch(), disk=disk)
    if not agent:
        return found
    gpus, engine = await asyncio.gather(
        _probe(probes.gpus), _probe(lambda: probes.engine(os.environ, os.getuid()))
    )
    return replace(found, gpus=gpus, engine=engine, cgroup=probes.cgroup())


async def _probe(work: Callable[[], T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await run_in_thread("a probe", work)


async def _all(addresses: Sequence[str], ask: Callable[[str], T]) -> tuple[T, ...]:
    return tuple(await asyncio.gather(*(_probe(partial(ask, one)) for one in addresses)))


def _configuration(asked: Asked) -> tuple[Configuration | None, Config | None]:
    from stoker.control.config.config import ConfigError, load_config

    if asked.config is None:
        return None, None
    try:
        return Configuration(str(asked.config)), load_config(asked.config)
    except ConfigError as error:
        return Configuration(str(asked.config), str(error)), None


def _key(asked: Asked) -> str | None:
    """Returns an API key that is at hand; None without one."""
    from stoker.cli.access import find_key
    from stoker.cli.errors import CliError

    with suppress(CliError):
        return find_key(asked.data_dir)
    return None


def _certificates(asked: Asked, config: Config | None) -> tuple[Certificate, ...]:
    """Reads the files of the options, else those that control's configuration names."""
    section = None if config is None else config.tls
    found: tuple[Certificate, ...] = ()
    if asked.cert is not None:
        found += probes.certificate(asked.cert, asked.key)
    elif section is not None:
        found += probes.certificate(Path(section.cert), Path(section.key))
    if section is not None and section.client_ca:
        found += probes.authority(Path(section.client_ca))
    return found if asked.ca is None else (*found, *probes.authority(asked.ca))


async def _objects(config: Config | None) -> Objects | None:
    if config is None:
        return None
    from stoker.cli.control.s3_settings import from_config, from_environment

    store = from_config(config) or from_environment(os.environ)
    return None if store is None else await _probe(lambda: probes.objects(store))


def add_to(main: typer.Typer) -> None:
    main.command(
        "doctor",
        epilog=examples(
            "stoker doctor",
            "stoker doctor --control control.example.com:8001 --tls-ca ca.pem",
            "stoker doctor --url https://control.example.com --json",
        ),
    )(doctor)
