"""The endpoints that exist now, by id and by alias. A cache of the store's rows; it decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.control.errors import BadRequest, NotFound
from stoker.control.rules.types import LOAD_BALANCER, Endpoint

RESERVED = frozenset(
    {
        "account",
        "billing",
        "catalog",
        "clusters",
        "flash",
        "global-volumes",
        "network-volumes",
        "openapi.json",
        "pods",
        "queued-pods",
        "registries",
        "sandboxes",
        "serverless",
        "tags",
        "templates",
    }
)
"""The first segments below /v2 that belong to its management API, and to no endpoint."""


def called(endpoint: str) -> str:
    """Returns the name by which an endpoint is called below /v2: another one for an id that is reserved."""
    return f"{endpoint}-endpoint" if endpoint in RESERVED else endpoint


class Endpoints:
    """The endpoints, by id and by alias. `by_id` is replaced by each change, so that an iteration over it
    sees one state."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self.by_id: Mapping[str, Endpoint] = {}
        self.alias(aliases)

    def alias(self, aliases: Mapping[str, str]) -> None:
        """Uses these aliases from now on."""
        self._aliases = {called(name): name for name in RESERVED} | dict(aliases)

    def load(self, endpoints: Iterable[Endpoint]) -> None:
        self.by_id = {endpoint.id: endpoint for endpoint in endpoints}

    def put(self, endpoint: Endpoint) -> None:
        """Adds a new endpoint, or replaces the endpoint that has the same id."""
        self.by_id = {**self.by_id, endpoint.id: endpoint}

    def drop(self, endpoint: str) -> None:
        self.by_id = {name: one for name, one in self.by_id.items() if name != endpoint}

    def named(self, endpoint: str) -> Endpoint | None:
        """Returns the endpoint under this id or alias, whoever's it is."""
        return self.by_id.get(self._aliases.get(endpoint, endpoint))

    def find(self, account: str, endpoint: str, *, of_queue: bool = True) -> Endpoint:
        """Returns the caller's endpoint under this id or alias. With `of_queue`, the endpoint must take jobs.
        Raises NotFound and BadRequest."""
        found = self.by_id.get(self._aliases.get(endpoint, endpoint))
        if found is None or found.account != account:
            raise NotFound(f"no endpoint {endpoint!r}: the id is wrong, or it belongs to another account")
        if of_queue and found.type == LOAD_BALANCER:
            raise BadRequest(
                f"not allowed for QB API: endpoint {endpoint} is load-balancing and takes no jobs; its"
                f" workers serve the other paths below /v2/{endpoint}/"
            )
        return found
