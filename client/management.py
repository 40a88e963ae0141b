"""The management API (`/v1`): its resources and their operations.

    with Client("http://127.0.0.1:8000", key) as stoker:
        made = stoker.manage.endpoints.create({"templateId": "30zmvf89kd", "workersMax": 3})
        stoker.manage.endpoints.update(made["id"], {"workersMax": 5})
        stoker.manage.pods.stop("xedezhzb9la3ye")

Requests and responses are dicts with the field names of the API: `/v1/openapi.json` describes them. Reads,
updates and stored secrets are sent again after a failure where that is safe; calls that create, delete, start
or stop are sent once. With an `AsyncClient`, await each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from stoker.client.calls import Call

Send: TypeAlias = Callable[[Call[Any]], Any]
"""Carries out a call and returns its result, or an awaitable of it."""

Fields: TypeAlias = Mapping[str, Any]

STRICT = {"Prefer": "handling=strict"}
"""Makes the service refuse unknown field names, which it ignores otherwise."""


class Resource:
    """A kind of resource, with the operations that every kind has: list, get, delete."""

    def __init__(self, send: Send, path: str) -> None:
        self._send = send
        self._path = path

    def list(self, **query: Any) -> Any:
        """Returns all resources, as a list of dicts. `query`: the API's query parameters, such as
        `includeWorkers=True`; `limit` and `after` get long lists page by page."""
        return self._send(self._call("GET", params=_query(query)))

    def get(self, member: str, **query: Any) -> Any:
        """Returns the resource with this id."""
        return self._send(self._call("GET", member, params=_query(query)))

    def delete(self, member: str) -> Any:
        """Deletes the resource and returns None."""
        return self._send(self._call("DELETE", member))

    def _do(self, *parts: str) -> Any:
        return self._send(self._call("POST", *parts))

    def _call(self, method: str, *parts: str, body: Fields | None = None, **more: Any) -> Call[Any]:
        path = "/".join([self._path, *(quote(part, safe="") for part in parts)])
        idempotent = method in ("GET", "PATCH", "PUT")
        return Call(
            method, path, _as_it_is, body=body, headers=STRICT, idempotent=idempotent, under="v1", **more
        )


class Creatable(Resource):
    """A kind whose resources can be created."""

    def create(self, fields: Fields) -> Any:
        """Creates a resource and returns it, with its id."""
        return self._send(self._call("POST", body=fields))


class Updatable(Creatable):
    """A kind whose resources can be created and updated."""

    def update(self, member: str, fields: Fields) -> Any:
        """Updates the resource and returns it; fields that are left out do not change."""
        return self._send(self._call("PATCH", member, body=fields))


class EndpointResources(Updatable):
    def workers(self, member: str, **query: Any) -> Any:
        """Returns the endpoint's workers, as a list of dicts: `status`, `machineId`, `limit`, `after`."""
        return self._send(self._call("GET", member, "workers", params=_query(query)))

    def statistics(self, member: str) -> Any:
        """Returns how long the endpoint's jobs waited and ran lately, the age of its queue, and its cost."""
        return self._send(self._call("GET", member, "statistics"))


class Pods(Updatable):
    def start(self, member: str) -> Any:
        return self._do(member, "start")

    def stop(self, member: str) -> Any:
        return self._do(member, "stop")

    def restart(self, member: str) -> Any:
        return self._do(member, "restart")

    def reset(self, member: str) -> Any:
        """Creates the pod's container again; its volume stays."""
        return self._do(member, "reset")


class Nodes(Resource):
    def drain(self, member: str, *, jobs_yield: bool = False) -> Any:
        """Places nothing new on the node until it is resumed. `jobs_yield`: jobs that run there and save give
        up their places at their next save, and go on elsewhere."""
        query = {"jobsYield": True} if jobs_yield else {}
        return self._send(self._call("POST", member, "drain", params=_query(query)))

    def resume(self, member: str) -> Any:
        return self._do(member, "resume")

    def revoke(self, member: str) -> Any:
        """Ends the node's session; the node can join again only with a newer join token."""
        return self._do(member, "revoke")


class SecretValues(Resource):
    """Secrets. The API never returns their values, and has no `get` for them."""

    def put(self, name: str, value: str) -> Any:
        """Stores the secret, or replaces its value."""
        return self._send(self._call("PUT", name, body={"value": value}))


class WebhookSecret:
    """The secret that webhooks are signed with. Only a key of scope `all` may see or change it."""

    def __init__(self, send: Send) -> None:
        self._all = Resource(send, "webhooksecret")

    def show(self) -> Any:
        """Returns it as `secret` of a dict; while it is rotated, the newer one."""
        return self._all.list()

    def rotate(self) -> Any:
        """Makes a new one and returns it; webhooks are signed with the one before as well."""
        return self._all._do("rotate")

    def drop_old(self) -> Any:
        """Ends the signatures with the one before."""
        return self._all._do("drop-old")


class Management:
    def __init__(self, send: Send) -> None:
        self.endpoints = EndpointResources(send, "endpoints")
        self.templates = Updatable(send, "templates")
        self.pods = Pods(send, "pods")
        self.volumes = Updatable(send, "networkvolumes")
        self.registries = Creatable(send, "containerregistryauth")
        self.nodes = Nodes(send, "nodes")
        self.keys = Updatable(send, "keys")
        self.secrets = SecretValues(send, "secrets")
        self.webhook_secret = WebhookSecret(send)
        self._bills = Resource(send, "billing")
        self._audit = Resource(send, "audit")
        self._self = Resource(send, "self")

    def bills(self, kind: str, **query: Any) -> Any:
        """Returns the cost of `endpoints`, `pods` or `networkvolumes`, by period."""
        return self._bills.get(kind, **query)

    def whoami(self) -> Any:
        """Returns the id and the rights of the client's own key."""
        return self._self.list()

    def audit(self, **query: Any) -> Any:
        """Returns the audit log: who changed what, and who was refused, newest first."""
        return self._audit.list(**query)


def _as_it_is(body: Any) -> Any:
    return body


def _query(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters without those that are None. httpx2 sends a list as one parameter for each of
    its values."""
    return {name: value for name, value in parameters.items() if value is not None}
