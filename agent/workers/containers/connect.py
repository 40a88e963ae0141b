"""Finds this host's container engine, connects to it and learns its version. Blocking."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.agent.workers.containers.engine import CALL_S, CALLS, ContainerEngine
from stoker.agent.workers.containers.errors import EngineError, readable_errors
from stoker.agent.workers.containers.plan import DOCKER_WITH_CDI, PODMAN_WITH_CDI, EngineFacts, major

if TYPE_CHECKING:
    from docker import APIClient

OPEN_S = 5
"""The time limit of the first calls: an engine that hangs must not delay the agent's plain processes."""

API = "1.41"
"""The version of the Engine API for the call that returns the engine's own version."""


def addresses(environment: Mapping[str, str], uid: int) -> list[str]:
    """Returns where an engine may listen: at DOCKER_HOST, or else at the usual sockets that exist."""
    if configured := environment.get("DOCKER_HOST"):
        return [configured]
    own = environment.get("XDG_RUNTIME_DIR", f"/run/user/{uid}")
    usual = [
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
        f"{own}/docker.sock",
        f"{own}/podman/podman.sock",
    ]
    return [f"unix://{path}" for path in usual if _is_socket(Path(path))]


def _is_socket(path: Path) -> bool:
    """Returns whether the path is a socket; also False if the folder may not be read: /run/podman is root's
    alone."""
    try:
        return path.is_socket()
    except OSError:
        return False


def connect(candidates: list[str]) -> ContainerEngine:
    """Connects to the first address that answers. If none does, the engine's facts say why."""
    why = "there is no DOCKER_HOST, and no socket of docker or podman"
    for address in candidates:
        try:
            return ContainerEngine(*_open(address))
        except EngineError as error:
            why = f"{address} does not answer: {error}"
    return ContainerEngine(None, EngineFacts(why=why))


def _open(address: str) -> tuple[APIClient, EngineFacts]:
    from docker import APIClient

    with readable_errors():
        headers = _ping(APIClient(address, version=API, timeout=OPEN_S))
        client = APIClient(address, version=headers["Api-Version"], timeout=CALL_S, num_pools=CALLS)
        return client, _facts(client, headers.get("Libpod-Api-Version"))


def _ping(client: Any) -> Mapping[str, str]:
    """Returns the headers of the answer to a ping, which hold the versions. To report its full version,
    podman queries the host's package manager, which takes a second, or many on a host that has just
    started."""
    with contextlib.closing(client), client.get(f"{client.base_url}/_ping", timeout=OPEN_S) as answer:
        client._raise_for_status(answer)
        headers: Mapping[str, str] = answer.headers
        return headers


def _facts(client: APIClient, podman: str | None) -> EngineFacts:
    if podman is not None:
        return EngineFacts("podman", podman, major(podman) >= PODMAN_WITH_CDI)
    version = str(client.version()["Version"])
    cdi = major(version) >= DOCKER_WITH_CDI and bool(client.info().get("CDISpecDirs"))
    return EngineFacts("docker", version, cdi)
