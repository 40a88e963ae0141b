"""Templates of one endpoint each, as management v2 makes them: there an endpoint has an image itself.

    created or changed with `own` fields ──> a template of this endpoint alone, stored in the same transaction
    deleted, or given another template   ──> the template is removed with that

Pure. `OWN` in what the endpoint requested names the template, so a template that a caller made is never
taken for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from stoker.control.resources.endpoint_fields import TEMPLATE_UNVERSIONED
from stoker.control.rules.types import Endpoint, Template

OWN = "ownTemplate"


def of_endpoint(endpoint: Endpoint) -> str:
    """Returns the id of the endpoint's own template, or "" if it has none."""
    own: str = endpoint.requested.get(OWN, "")
    return own


def made(template: str, account: str, name: str, fields: Mapping[str, Any], now: float) -> Template:
    """Returns the template of an endpoint of this name. Its own name has its id, so that it is the only
    one."""
    named = f"{name} {template}"
    return Template(template, account, named, {**fields, "name": named, "isServerless": True}, now)


def changed(before: Template, fields: Mapping[str, Any]) -> Template:
    """Returns the template with these fields, under its name."""
    return replace(before, fields={**fields, "name": before.name, "isServerless": True})


def is_new_version(before: Template, after: Template) -> bool:
    """Returns whether the change of a template makes a new version of its endpoint."""
    names = (before.fields.keys() | after.fields.keys()) - TEMPLATE_UNVERSIONED
    return any(before.fields.get(name) != after.fields.get(name) for name in names)


def left_over(before: Endpoint, after: Endpoint | None, others: Iterable[Endpoint]) -> str:
    """Returns the own template that nothing uses any more after a change or a deletion, or ""."""
    own = of_endpoint(before)
    used = {one.template for one in others if one.id != before.id}
    if after is not None:
        used.add(after.template)
    return "" if own in used else own
