"""What a client manages: the resources below /v1, each with what can be done to it.

    with Client("http://127.0.0.1:8000", key) as stoker:
        made = stoker.manage.endpoints.create({"templateId": "30zmvf89kd", "workersMax": 3})
        stoker.manage.endpoints.update(made["id"], {"workersMax": 5})
        stoker.manage.pods.stop("xedezhzb9la3ye")

Fields are dicts under the interface's own names, and so are answers: `/v1/openapi.json` describes them.
Reads, changes of fields and stored secrets are sent again where that helps; what creates, deletes, starts or
stops is sent once. With an `AsyncClient` each call is to be awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from stoker.client.calls import Call

Ask: TypeAlias = Callable[[Call[Any]], Any]
"""Carries a call out: its answer, or what is awaited for it."""

Fields: TypeAlias = Mapping[str, Any]


class Resource:
    """One kind: its list, its members, and their end."""

    def __init__(self, ask: Ask, path: str) -> None:
        self._ask = ask
        self._path = path

    def list(self, **query: Any) -> Any:
        """All of them, as a list of dicts; `query` as the interface names it: `includeWorkers=True`."""
        return self._ask(self._call("GET", params=_query(query)))

    def get(self, member: str, **query: Any) -> Any:
        """One of them, by its id."""
        return self._ask(self._call("GET", member, params=_query(query)))

    def delete(self, member: str) -> Any:
        """None, once it is gone."""
        return self._ask(self._call("DELETE", member))

    def _do(self, member: str, action: str) -> Any:
        return self._ask(self._call("POST", member, action))

    def _call(self, method: str, *parts: str, body: Fields | None = None, **more: Any) -> Call[Any]:
        path = "/".join([self._path, *(quote(part, safe="") for part in parts)])
        again = method in ("GET", "PATCH", "PUT")
        return Call(method, path, _as_it_is, body=body, again=again, under="v1", **more)


class Made(Resource):
    """One that is created."""

    def create(self, fields: Fields) -> Any:
        """What was made, with its id."""
        return self._ask(self._call("POST", body=fields))


class Changed(Made):
    """One that is changed, too."""

    def update(self, member: str, fields: Fields) -> Any:
        """What it is now; fields that are left out stay."""
        return self._ask(self._call("PATCH", member, body=fields))


class Pods(Changed):
    def start(self, member: str) -> Any:
        return self._do(member, "start")

    def stop(self, member: str) -> Any:
        return self._do(member, "stop")

    def restart(self, member: str) -> Any:
        return self._do(member, "restart")

    def reset(self, member: str) -> Any:
        """Makes its container anew."""
        return self._do(member, "reset")


class Nodes(Resource):
    def drain(self, member: str) -> Any:
        """Nothing new goes there."""
        return self._do(member, "drain")

    def resume(self, member: str) -> Any:
        return self._do(member, "resume")


class Secrets(Resource):
    """Values that never come back; `get` finds none."""

    def put(self, name: str, value: str) -> Any:
        """Stores it, or changes it."""
        return self._ask(self._call("PUT", name, body={"value": value}))


class Management:
    def __init__(self, ask: Ask) -> None:
        self.endpoints = Changed(ask, "endpoints")
        self.templates = Changed(ask, "templates")
        self.pods = Pods(ask, "pods")
        self.volumes = Changed(ask, "networkvolumes")
        self.registries = Made(ask, "containerregistryauth")
        self.nodes = Nodes(ask, "nodes")
        self.keys = Changed(ask, "keys")
        self.secrets = Secrets(ask, "secrets")
        self._bills = Resource(ask, "billing")
        self._audit = Resource(ask, "audit")

    def bills(self, kind: str, **query: Any) -> Any:
        """What `endpoints`, `pods` or `networkvolumes` have cost, bucket by bucket."""
        return self._bills.get(kind, **query)

    def audit(self, **query: Any) -> Any:
        """Who changed what, and who was refused: the newest first."""
        return self._audit.list(**query)


def _as_it_is(body: Any) -> Any:
    return body


def _query(given: Mapping[str, Any]) -> dict[str, Any]:
    """httpx writes a list as one parameter for each of its values."""
    return {name: value for name, value in given.items() if value is not None}
