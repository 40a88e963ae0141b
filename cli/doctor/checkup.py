"""The probes that apply on this host and to its configuration, run at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from stoker import __version__
from stoker.cli import extras
from stoker.cli.doctor import probes
from stoker.cli.doctor.facts import Certificate, Engine, Facts, Gpus, Service, Tried
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


async def gather_facts(asked: Asked) -> Facts:
    """Runs all probes at once, each in a thread with a time limit."""
    agent, control = extras.has("nvidia-ml-py"), extras.has("sqlalchemy")
    read, config = _configuration(asked) if control else (None, None)
    key, ca = _key(asked), None if asked.ca is None else str(asked.ca)
    found, objects, services, doors = await asyncio.gather(
        _host(asked, agent=agent),
        _objects(config),
        _all(asked.urls, lambda url: probes.service(url, key, ca), Service),
        _all(asked.doors, lambda address: probes.door(address, asked.ca), Tried),
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
        _probe(probes.gpus, lambda why: Gpus(trouble=why)),
        _probe(lambda: probes.engine(os.environ, os.getuid()), lambda why: Engine(trouble=why)),
    )
    return replace(found, gpus=gpus, engine=engine, cgroup=probes.cgroup())


async def _probe(work: Callable[[], T], late: Callable[[str], T]) -> T:
    """Returns what a probe finds, or what `late` makes of the sentence that it found nothing in time."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await run_in_thread("a probe", work)
    except TimeoutError:
        return late(f"it did not answer within {PATIENCE_S:.0f} s")


async def _all(
    addresses: Sequence[str], ask: Callable[[str], T], late: Callable[[str, str], T]
) -> tuple[T, ...]:
    probing = (_probe(partial(ask, one), partial(late, one)) for one in addresses)
    return tuple(await asyncio.gather(*probing))


def _configuration(asked: Asked) -> tuple[Tried | None, Config | None]:
    from stoker.control.config.config import ConfigError, load_config

    if asked.config is None:
        return None, None
    try:
        return Tried(str(asked.config)), load_config(asked.config)
    except ConfigError as error:
        return Tried(str(asked.config), str(error)), None


def _key(asked: Asked) -> str | None:
    """Returns an API key that is at hand; None without one."""
    from stoker.cli.access import find_key
    from stoker.cli.errors import CliError

    with suppress(CliError, OSError):  # others may not read the data folder
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
    if asked.ca is not None:
        found += probes.authority(asked.ca)
    read = {file.path for file in found}
    return *found, *(file for file in probes.certificates_made_here(asked.data_dir) if file.path not in read)


async def _objects(config: Config | None) -> Tried | None:
    if config is None:
        return None
    from stoker.cli.control.s3_settings import from_config, from_environment
    from stoker.cli.errors import CliError

    try:
        store = from_config(config) or from_environment(os.environ)
    except CliError as error:
        return Tried("STOKER_S3_*", str(error))
    if store is None:
        return None
    return await _probe(lambda: probes.objects(store), partial(Tried, store.endpoint_url))
