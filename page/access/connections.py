"""The connections of signed-in browsers to control: one client for each key, made when it is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stoker.client import AsyncClient
from stoker.page.access.sessions import digest

RESULTS_KEPT = 40
"""The results that the gallery of a key keeps, newest first."""

ENDED_S = 60.0
"""How long a connection stays after the end of its key."""


@dataclass(frozen=True, slots=True)
class Result:
    """A finished job in the gallery: its endpoint, its input and its record's output."""

    endpoint: str
    job: str
    job_input: Mapping[str, Any]
    output: Any
    execution_time: int | None


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a key, by what control says of the key itself."""

    scope: str = "all"
    management: str = "none"
    endpoints: Mapping[str, str] = field(default_factory=dict)

    @property
    def manages(self) -> bool:
        """True if the key may change resources."""
        return self.scope == "all" or (self.scope == "restricted" and self.management == "write")

    @property
    def looks(self) -> bool:
        """True if the key may see resources."""
        return self.scope in ("all", "read") or (self.scope == "restricted" and self.management != "none")

    def runs(self, endpoint: str) -> bool:
        """Returns whether the key may submit and change jobs of this endpoint."""
        if self.scope != "restricted":
            return self.scope == "all"
        return self.endpoints.get(endpoint, self.endpoints.get("*", "none")) == "write"


@dataclass(slots=True)
class Connection:
    """The client of one key, with what the page remembers for that key."""

    client: AsyncClient
    url: str
    rights: Rights = Rights()
    results: list[Result] = field(default_factory=list)
    dark: bool | None = None
    """Whether pages are dark; None: as the browser's system is."""
    until: float = math.inf
    """When the key ends, as a provider's token does."""

    async def close(self) -> None:
        await self.client.close()

    async def learn(self) -> None:
        """Reads the rights of the key. Raises Unauthorized where control does not know the key."""
        access = (await self.client.manage.whoami())["access"]
        self.rights = Rights(
            access["scope"], access.get("management") or "none", access.get("endpoints") or {}
        )

    async def endpoints(self) -> list[Mapping[str, Any]]:
        """Returns the endpoints that this key may see, hosted ones first, and of those the quick ones."""
        if self.rights.looks:
            found: list[Mapping[str, Any]] = await self.client.manage.endpoints.list()
            return sorted(found, key=lambda one: (not one.get("hosted"), "video" in one["id"], one["id"]))
        return self._named()

    async def endpoints_with_health(self, limit: int, after: str | None) -> list[Mapping[str, Any]]:
        """Returns a page of the endpoints that this key may see, in the API's order."""
        if self.rights.looks:
            found: list[Mapping[str, Any]] = await self.client.manage.endpoints.list(
                includeHealth=True, limit=limit, after=after
            )
            return found
        shown = [one for one in self._named() if after is None or one["id"] > after][:limit]
        return [{**one, "health": asdict(await self.client.health(one["id"]))} for one in shown]

    async def endpoint(self, name: str) -> Mapping[str, Any] | None:
        """Returns one endpoint that this key may see, or None."""
        if self.rights.looks:
            found: Mapping[str, Any] = await self.client.manage.endpoints.get(name, includeHealth=True)
            return found
        named = next((one for one in self._named() if one["id"] == name), None)
        return named and {**named, "health": asdict(await self.client.health(name))}

    def _named(self) -> list[Mapping[str, Any]]:
        """Returns the endpoints that a restricted key names; such a key may not list endpoints."""
        named = [name for name, right in self.rights.endpoints.items() if name != "*" and right != "none"]
        return [{"id": name, "name": name, "type": "QUEUE"} for name in sorted(named)]

    def keep(self, result: Result) -> None:
        self.results.insert(0, result)
        del self.results[RESULTS_KEPT:]


class Connections:
    """All connections, by the digest of their key."""

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        self.url = url
        self._ca_file = ca_file
        self._by_key: dict[str, Connection] = {}

    def of(self, key: str, until: float = math.inf) -> Connection:
        """Returns the connection with this key, which ends at `until` if it is new here."""
        if digest(key) not in self._by_key:
            client = AsyncClient(self.url, key, ca_file=self._ca_file, resends=1)
            self._by_key[digest(key)] = Connection(client, self.url, until=until)
        return self._by_key[digest(key)]

    def renew(self, key: str, token: str, until: float) -> None:
        """Goes on with another token where `key` was the first. What is open stays open, and is resumed with
        the new token where it breaks."""
        connection = self._by_key[digest(key)]
        connection.client.use_key(token)
        connection.until = until

    async def drop_ended(self, now: float) -> None:
        """Closes the connections whose keys have ended: each sign-in at a provider makes one. Pages that are
        open look for their session's end a little later."""
        for name, connection in list(self._by_key.items()):
            if connection.until + ENDED_S <= now:
                del self._by_key[name]
                await connection.close()

    async def forget(self, key: str) -> None:
        """Closes the connection of a key that control refused."""
        connection = self._by_key.pop(digest(key), None)
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        for connection in self._by_key.values():
            await connection.close()
        self._by_key.clear()
