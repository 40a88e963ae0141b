"""Users of a registry auth, a network volume or a named secret: templates, endpoints and pods that are there.

To be called in the transaction that would delete it, so that nothing begins to use it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import field

from stoker.control.store.database.opening import Conn
from stoker.control.store.resources.endpoints import list_endpoints
from stoker.control.store.resources.pods import list_pods
from stoker.control.store.resources.templates import list_templates
from stoker.wire.records import Hiding


class User(Hiding, frozen=True):
    """An endpoint, pod or template that may use a registry auth, a volume or secrets. `description` names it
    in a message; `registry` and `volume` are ids, "" for none."""

    HIDDEN = ("env",)

    description: str
    registry: str = ""
    volume: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


def users_of(conn: Conn, account: str) -> Iterator[User]:
    for template in list_templates(conn):
        if template.account == account:
            fields = template.fields
            registry, env = fields.get("containerRegistryAuthId") or "", fields.get("env") or {}
            yield User(f"template {template.id} ({template.name})", registry, "", env)
    for endpoint in list_endpoints(conn):
        if endpoint.account == account:
            registry = endpoint.requested.get("containerRegistryAuthId") or ""
            run = endpoint.run
            yield User(f"endpoint {endpoint.id} ({endpoint.name})", registry, run.volume, run.env)
    for pod in list_pods(conn, account):
        if pod.wish != "TERMINATED":
            body = pod.body
            yield User(f"pod {pod.id} ({pod.name})", body.registry, body.network_volume, body.env)
