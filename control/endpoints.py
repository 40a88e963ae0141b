"""The endpoints that exist now, by id and by alias. A cache of the store's rows; it decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.control.errors import BadRequest, NotFound
from stoker.control.types import Endpoint


class Endpoints:
    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = dict(aliases)
        self._by_id: dict[str, Endpoint] = {}

    def load(self, endpoints: Iterable[Endpoint]) -> None:
        self._by_id = {endpoint.id: endpoint for endpoint in endpoints}

    def put(self, endpoint: Endpoint) -> None:
        """New, or changed. Whoever walks through `all` meanwhile walks through what was there."""
        self._by_id = {**self._by_id, endpoint.id: endpoint}

    def drop(self, endpoint: str) -> None:
        self._by_id = {name: one for name, one in self._by_id.items() if name != endpoint}

    def all(self) -> Mapping[str, Endpoint]:
        return self._by_id

    def by_id(self, endpoint: str) -> Endpoint | None:
        return self._by_id.get(endpoint)

    def find(self, account: str, endpoint: str) -> Endpoint:
        """The caller's endpoint under this id or alias, which takes jobs. Raises NotFound and BadRequest."""
        found = self._by_id.get(self._aliases.get(endpoint, endpoint))
        if found is None or found.account != account:
            raise NotFound(f"no endpoint {endpoint!r}: the id is wrong, or it belongs to another account")
        if found.type != "QUEUE":
            raise BadRequest(f"endpoint {endpoint} is of type {found.type}: load balancing is not served yet")
        return found
