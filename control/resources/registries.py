"""Registry auths: the credentials with which images are pulled. They are never returned.

Those of the configuration file have the ids that they have there, and only the file can change them.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import BadRequest, NotFound
from stoker.control.store import DEFAULT_ACCOUNT, Conn
from stoker.wire.ids import short_id
from stoker.wire.messages import RegistryAuth


class Registries:
    """The logins at registries of images."""

    def __init__(self, context: Context) -> None:
        self._commits, self._clock, self._rng = context.commits, context.clock, context.rng
        self._settings = context.settings

    @property
    def declared(self) -> Mapping[str, RegistryAuth]:
        """The configuration file's, by id."""
        return self._settings.registries

    async def create(self, account: str, name: str, login: RegistryAuth) -> store.Registry:
        made, now = store.Registry(short_id(self._rng), name), self._clock()

        def add(conn: Conn) -> None:
            if any(other.name == name for other in self._all(conn, account)):
                raise BadRequest(f"name: there is a registry auth of the name {name!r}; names must differ")
            store.add_registry(conn, account, made, login, now)

        await self._commits.commit(add)
        return made

    async def list(self, account: str) -> tuple[store.Registry, ...]:
        return await self._commits.read(lambda conn: self._all(conn, account))

    async def get(self, account: str, registry: str) -> store.Registry:
        for one in await self.list(account):
            if one.id == registry:
                return one
        raise NotFound(f"no registry auth {registry!r}")

    async def login(self, account: str, registry: str) -> RegistryAuth:
        """Returns the credentials for a pull. Raises BadRequest if there is none with this id."""
        if account == DEFAULT_ACCOUNT and registry in self.declared:
            return self.declared[registry]
        found = await self._commits.read(lambda conn: store.registry_login(conn, account, registry))
        if found is None:
            raise BadRequest(
                f"containerRegistryAuthId must be the id of a registry auth; there is none of {registry!r}"
            )
        return found

    def check_still(self, conn: Conn, account: str, registry: str) -> None:
        """Checks, in the transaction that stores a reference to it, that it was not deleted meanwhile. Raises
        BadRequest."""
        if registry and not any(one.id == registry for one in self._all(conn, account)):
            raise BadRequest(f"containerRegistryAuthId: registry auth {registry} has just been deleted")

    async def delete(self, account: str, registry: str) -> None:
        if account == DEFAULT_ACCOUNT and registry in self.declared:
            raise BadRequest(
                f"registry auth {registry} is declared in the configuration file: remove it there"
            )

        def remove(conn: Conn) -> None:
            using = [user.description for user in store.users_of(conn, account) if user.registry == registry]
            if using:
                raise BadRequest(f"registry auth {registry} is in use by {', '.join(using)}")
            if not store.remove_registry(conn, account, registry):
                raise NotFound(f"no registry auth {registry!r}")

        await self._commits.commit(remove)

    def _all(self, conn: Conn, account: str) -> tuple[store.Registry, ...]:
        declared = [store.Registry(one, one) for one in self.declared] if account == DEFAULT_ACCOUNT else []
        return *declared, *store.list_registries(conn, account)
