"""Creates, changes and deletes templates, from which endpoints and pods are made. Names are unique in an
account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import BadRequest, NotFound
from stoker.control.resources.endpoint_fields import TEMPLATE_UNVERSIONED
from stoker.control.resources.endpoints import ManagedEndpoints
from stoker.control.resources.named import Named
from stoker.control.rules.types import Endpoint, Template
from stoker.control.store import Conn
from stoker.wire.ids import short_id


class TemplateFilter(Struct, frozen=True):
    """The templates that a list has besides the account's own that no endpoint is made from: `bound`, those
    that endpoints are made from; `public`, those of other accounts."""

    bound: bool = False
    public: bool = False


class Templates:
    def __init__(self, context: Context, endpoints: ManagedEndpoints, named: Named) -> None:
        self._commits, self._clock, self._rng = context.commits, context.clock, context.rng
        self._endpoints, self._named = endpoints, named

    async def create(self, account: str, fields: Mapping[str, Any]) -> Template:
        fields = _set_fields(fields)
        await self._check(account, fields)
        now = self._clock()
        made = Template(short_id(self._rng), account, fields["name"], fields, now)
        self._endpoints.check_template(made)

        def put(conn: Conn) -> Template:
            _check_name(conn, made)
            self._check_still(conn, made)
            store.put_template(conn, made, now)
            return made

        return await self._commits.commit(put)

    async def list(self, account: str, wanted: TemplateFilter) -> list[Template]:
        def read(conn: Conn) -> tuple[tuple[Template, ...], set[str]]:
            return store.list_templates(conn), {one.template for one in store.list_endpoints(conn)}

        every, bound = await self._commits.read(read)
        own = [one for one in every if one.account == account and (wanted.bound or one.id not in bound)]
        others = [one for one in every if one.account != account and one.fields["isPublic"]]
        return own + (others if wanted.public else [])

    async def get(self, account: str, template: str, *, public: bool = False) -> Template:
        """Returns the account's template, or with `public` also another account's public template. Raises
        NotFound."""
        found = await self._commits.read(lambda conn: store.get_template(conn, template))
        if found is None or not (found.account == account or (public and found.fields["isPublic"])):
            raise no_template(template)
        return found

    async def of(self, endpoint: Endpoint) -> Template | None:
        """Returns the endpoint's template, or None for an endpoint of the configuration file."""
        if not endpoint.template:
            return None
        return await self._commits.read(lambda conn: store.get_template(conn, endpoint.template))

    async def update(self, account: str, template: str, changes: Mapping[str, Any]) -> Template:
        """Changes a template. Its endpoints get a new version, unless only fields in
        endpoint_fields.TEMPLATE_UNVERSIONED change."""
        await self._check(account, changes)
        async with self._endpoints.turn:
            old = await self.get(account, template)
            fields = _set_fields({**old.fields, **changes})
            new = replace(old, name=fields["name"], fields=fields)
            self._endpoints.check_template(new)
            names = fields.keys() | old.fields.keys()
            changed = {name for name in names if fields.get(name) != old.fields.get(name)}
            anew = bool(changed - TEMPLATE_UNVERSIONED)
            bound = await self._endpoints.remade(new) if anew else []
            now = self._clock()

            def change(conn: Conn) -> list[Endpoint]:
                _check_name(conn, new)
                self._check_still(conn, new)
                store.put_template(conn, new, now)
                return [store.put_endpoint(conn, one, now, anew=True) for one in bound]

            self._endpoints.renewed(await self._commits.commit(change))
        return new

    async def _check(self, account: str, fields: Mapping[str, Any]) -> None:
        """Raises BadRequest if something that it refers to does not exist."""
        if registry := fields.get("containerRegistryAuthId"):
            await self._named.registries.login(account, registry)
        self._named.secrets.check(account, fields.get("env") or {})

    def _check_still(self, conn: Conn, template: Template) -> None:
        """Checks in the transaction that what it refers to still exists."""
        account, fields = template.account, template.fields
        self._named.registries.check_still(conn, account, fields.get("containerRegistryAuthId") or "")
        self._named.secrets.check_still(conn, account, fields.get("env") or {})

    async def delete(self, account: str, template: str) -> None:
        """Deletes a template. Raises BadRequest while an endpoint is made from it."""
        now = self._clock()

        def remove(conn: Conn) -> None:
            found = store.get_template(conn, template)
            if found is None or found.account != account:
                raise no_template(template)
            bound = [one.id for one in store.list_endpoints(conn) if one.template == found.id]
            if bound:
                raise BadRequest(
                    f"template {template} is used by endpoint {', '.join(bound)}; delete that, or give it"
                    " another template, first"
                )
            store.remove_template(conn, found.id, now)

        async with self._endpoints.turn:
            await self._commits.commit(remove)


def _set_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Removes the fields that are unset: by null, or, of the registry auth, by an empty text."""
    unset = {name for name, value in fields.items() if value is None}
    if fields.get("containerRegistryAuthId") == "":
        unset.add("containerRegistryAuthId")
    return {name: value for name, value in fields.items() if name not in unset}


def no_template(template: str) -> NotFound:
    return NotFound(f"no template {template!r}: the id is wrong, or it was deleted")


def _check_name(conn: Conn, template: Template) -> None:
    other = store.named_template(conn, template.account, template.name)
    if other is not None and other.id != template.id:
        raise BadRequest(f"name: template {other.id} is called {template.name!r} already; take another name")
