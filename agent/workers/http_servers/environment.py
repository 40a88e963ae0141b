"""The environment of an http worker: the ports that it serves, and its names. Pure.

`PORT` is where the worker serves requests, `PORT_HEALTH` where it answers probes: the same, unless the
endpoint declares a `PORT_HEALTH` that differs from its `PORT`. All workers of a node share its network, so
the agent chooses free ports; the numbers that an endpoint declares only decide whether there are one or two.

Any process of the node can connect there. The server of an app's functions, which runs the code that it is
sent, therefore takes only connections that begin with a line which its agent alone knows. Other programs
speak HTTP from the first byte on; `agent.workers.http_servers.port_filter` keeps neighbours from those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stoker.wire.messages import WorkerSpec
from stoker.worker.connection_proof import VARIABLE as PROOF

PORT, PORT_HEALTH, PATH = "PORT", "PORT_HEALTH", "HEALTH_CHECK_PATH"
_FUNCTIONS = re.compile(r"\bstoker\.worker\.functions\.server\b")


def takes_proof(spec: WorkerSpec) -> bool:
    """Returns whether the program is the server of an app's functions."""
    return any(_FUNCTIONS.search(part) for part in (*spec.entrypoint, *spec.command))


def ports_needed(env: Mapping[str, str]) -> int:
    health = env.get(PORT_HEALTH)
    return 1 if health is None or health == env.get(PORT) else 2


def health_path(env: Mapping[str, str]) -> str:
    return "/" + (env.get(PATH) or "/ping").lstrip("/")


def http_environment(spec: WorkerSpec, port: int, health_port: int, proof: str = "") -> Mapping[str, str]:
    """Returns the worker's environment. The endpoint's own variables replace all but the ports, the names and
    the proof."""
    return {
        "PYTHONUNBUFFERED": "1",
        **spec.env,
        PORT: str(port),
        PORT_HEALTH: str(health_port),
        "RUNPOD_POD_ID": spec.worker,
        "RUNPOD_ENDPOINT_ID": spec.endpoint,
        **({PROOF: proof} if proof else {}),
    }
