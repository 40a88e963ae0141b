"""What an agent is told of containers: the engine, their limits, and what the host calls its folder.

DOCKER_HOST                     the engine; without it the usual sockets of docker and podman are tried
STOKER_CONTAINER_MEMORY_MB      of each container; without it there is no limit of its own
STOKER_CONTAINER_CPUS           the same, in cores: 1.5
STOKER_CONTAINER_PIDS           processes and threads of each container, 4096 without it
STOKER_HOST_DATA_DIR            what the host calls the data folder of an agent that is in a container
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Mapping

from stoker.agent.container_engine import ContainerEngine, EngineError, addresses, connect
from stoker.agent.container_plan import Limits
from stoker.cli.errors import CliError

log = logging.getLogger(__name__)

HOST_DATA_DIR = "STOKER_HOST_DATA_DIR"
MEMORY_MB, CPUS, PIDS = "STOKER_CONTAINER_MEMORY_MB", "STOKER_CONTAINER_CPUS", "STOKER_CONTAINER_PIDS"
NOFILE_MAX = 65_536


async def container_engine(node: str, environment: Mapping[str, str]) -> ContainerEngine:
    """The engine of this host, rid of what an earlier agent of this data folder left in it; or none, with the
    reason. A host without an engine is asked nothing."""
    engine = await asyncio.to_thread(connect, addresses(environment, os.getuid()))
    log.info("container engine: %s", engine.facts.words)
    if engine.facts.name:
        try:
            left = await engine.remove_all(node)
        except EngineError as error:
            log.warning("containers of an earlier agent may be left: %s", error)
        else:
            if left:
                log.warning("removed %d containers that an earlier agent left", left)
    return engine


def container_limits(given: Mapping[str, str]) -> Limits:
    memory = _number(given, MEMORY_MB, 16, 1 << 24)
    cpus = _number(given, CPUS, 0.01, 4096)
    pids = _number(given, PIDS, 8, 1 << 22)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    nofile = NOFILE_MAX if hard == resource.RLIM_INFINITY else min(hard, NOFILE_MAX)
    return Limits(
        memory=None if memory is None else int(memory) << 20,
        cpus=cpus,
        pids=4096 if pids is None else int(pids),
        nofile=nofile,
    )


def _number(given: Mapping[str, str], name: str, low: float, high: float) -> float | None:
    if name not in given:
        return None
    try:
        value = float(given[name])
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise CliError(f"{name} must be a number from {low} to {high}; got {given[name]!r}")
    return value
