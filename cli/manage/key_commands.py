"""`stoker key ...`: creates, lists and revokes keys and join tokens, where `key_places` finds them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace
from rich.console import Console

from stoker.cli import tables
from stoker.cli.consoles import plain_console
from stoker.cli.errors import CliError
from stoker.cli.manage.key_places import KINDS, Keys, Place, Wanted, keys_at
from stoker.cli.manage.spans import seconds
from stoker.cli.short_ids import resolve_id
from stoker.control.rules.access import ALL, Access, Right
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.quotas import UNBOUNDED, Quota
from stoker.control.rules.types import KeyRecord
from stoker.control.store.resources.keys import Kind

RIGHTS: tuple[Right, ...] = ("none", "read", "write")
BY_SCOPE = "default"
"""In place of a class: the one that the key's scope has."""
_TIMES = ("created", "expires", "used last", "revoked")


@dataclass(frozen=True, slots=True)
class NewKey:
    """The options of a new key. `rights` for endpoints: NAME=none, NAME=read or NAME=write."""

    name: str
    join: bool = False
    uses: int | None = None
    expires: str | None = None
    read_only: bool = False
    management: str | None = None
    rights: Sequence[str] = ()
    quota: Quota = UNBOUNDED
    priority: str | None = None
    cases: bool = False


def create(place: Place, options: NewKey, console: Console, *, as_json: bool = False) -> None:
    access = _access(options)
    expires_at = None if options.expires is None else time.time() + seconds("--expires", options.expires)
    kind: Kind = "join" if options.join else "key"
    with keys_at(place) as found:
        if access.endpoints:
            access = _named(access, *found.endpoints(), all_known=place.url is None)
        record, token = found.create(
            Wanted(
                kind,
                options.name,
                access,
                options.uses,
                expires_at,
                options.quota,
                None if options.priority is None else _class(options.priority),
            )
        )
    if as_json:
        tables.print_json({**_api_record(record), "key": token})
        return
    console.print(token, soft_wrap=True)
    plain_console(stderr=True).print(f"{record.id} ({options.name}); it is shown this once")


def _access(options: NewKey) -> Access:
    restricted = options.management is not None or bool(options.rights) or options.cases
    if options.uses is not None and not options.join:
        raise CliError("--uses is for join tokens: --join")
    bounded = options.quota != UNBOUNDED or options.priority is not None
    if options.join and (restricted or options.read_only or bounded):
        raise CliError(
            "a join token lets nodes join and nothing else: no --read-only, --management, --endpoint,"
            " --priority, --cases or quota"
        )
    if options.read_only and restricted:
        raise CliError(
            "--read-only cannot be combined with --management, --endpoint or --cases, which restrict a key"
            " otherwise"
        )
    if not restricted:
        return Access("read") if options.read_only else ALL
    rights = {}
    for text in options.rights:
        name, _, right = text.partition("=")
        rights[name] = _right("--endpoint NAME=RIGHT", right)
    management = _right("--management", options.management or "none")
    if options.cases and not set(rights.values()) & {"read", "write"}:
        raise CliError("--cases is for endpoints that the key may read: give --endpoint NAME=read, too")
    return Access("restricted", management, rights, cases=options.cases)


def _right(option: str, text: str) -> Right:
    for right in RIGHTS:
        if text == right:
            return right
    raise CliError(f"{option}: a right is one of {', '.join(RIGHTS)}; got {text!r}")


def _named(access: Access, known: set[str], aliases: Mapping[str, str], *, all_known: bool) -> Access:
    """Returns the access with ids of endpoints instead of aliases and beginnings of ids. A service, which
    knows its aliases itself, decides about names that are not known here."""
    ids = [(id_, "") for id_ in known]
    rights = {
        aliases.get(name) or resolve_id(name, ids, "endpoints") or name: right
        for name, right in access.endpoints.items()
    }
    for name in rights:
        if all_known and name != "*" and name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise CliError(f'--endpoint: there is no endpoint {name}; there are: {there}; "*" is all others')
    return replace(access, endpoints=rights)


def show(place: Place, *, join: bool, as_json: bool = False) -> None:
    with keys_at(place) as found:
        records = found.list("join" if join else "key")
    as_in_api = [_api_record(record) for record in records if record.revoked_at is None]
    columns = ("id", "name", "account", "uses left" if join else "may", *_TIMES)
    tables.show(columns, [_row(record, join=join) for record in records], as_in_api, as_json=as_json)


def _row(record: KeyRecord, *, join: bool) -> tuple[str, ...]:
    times = (record.created_at, record.expires_at, record.last_used_at, record.revoked_at)
    days = ("" if at is None else _day(at) for at in times)
    may = _uses(record) if join else _may(record.access)
    return (record.id, " ".join(record.name.split()), record.account, may, *days)


def _api_record(record: KeyRecord) -> dict[str, Any]:
    """Returns the key as in the API."""
    from stoker.control.http.management.operations.keys import KeyResponse, fields_of

    return KeyResponse(**fields_of(record)).model_dump(mode="json", exclude_none=True)


def _uses(record: KeyRecord) -> str:
    return "any number" if record.uses_left is None else str(record.uses_left)


def _may(access: Access) -> str:
    if access.scope != "restricted":
        return access.scope
    rights = {"management": access.management, **access.endpoints}
    if access.cases:
        rights["cases"] = "read"
    return " ".join(f"{name}={right}" for name, right in rights.items())


def get(place: Place, key: str, *, as_json: bool) -> None:
    with keys_at(place) as found:
        record, used = found.get(_full_id(found, key))
    fields = {**_api_record(record), **({"used": dict(used)} if used else {})}
    if as_json:
        tables.print_json(fields)
        return
    rows = [("id", record.id), ("name", record.name), ("may", _may(record.access))]
    if record.kind == "key":
        rows.append(("highest priority", fields["priority"]))
    rows += [(f"most {name}", str(bound)) for name, bound in record.quota.fields().items()]
    rows += [(f"used {name}", f"{value:g}") for name, value in used.items()]
    tables.show((), rows, fields, as_json=False)


def set_quota(place: Place, key: str, quota: Quota, console: Console) -> None:
    with keys_at(place) as found:
        full = _full_id(found, key)
        found.set_quota(full, quota)
    bounds = ", ".join(f"{name} {bound}" for name, bound in quota.fields().items()) or "unbounded"
    console.print(f"{full}: {bounds}")


def set_priority(place: Place, key: str, name: str, console: Console) -> None:
    wanted = None if name == BY_SCOPE else _class(name)
    with keys_at(place) as found:
        full = _full_id(found, key)
        found.set_priority(full, wanted)
    console.print(f"{full}: highest priority {wanted or 'by its scope'}")


def _class(name: str) -> Priority:
    if name not in list(Priority):
        raise CliError(f"--priority: a class is one of {', '.join(Priority)}; got {name!r}")
    return Priority(name)


def _full_id(found: Keys, key: str) -> str:
    valid = [one for kind in KINDS for one in found.list(kind) if one.revoked_at is None]
    return resolve_id(key, [(one.id, "") for one in valid], "keys") or key


def revoke(place: Place, key: str, console: Console) -> None:
    with keys_at(place) as found:
        full = _full_id(found, key)
        found.revoke(full)
    console.print(f"{full} is revoked")


def webhook_secret(place: Place, *, rotate: bool, drop_old: bool) -> None:
    if rotate and drop_old:
        raise CliError("--rotate and --drop-old are two steps, with the change of all receivers between them")
    says = plain_console(stderr=True).print
    with keys_at(place) as found:
        if drop_old:
            found.drop_webhook_secret()
            says("webhooks are signed with the newer secret only from now on")
        elif rotate:
            print(found.rotate_webhook_secret())
            says("webhooks are signed with this secret and the one before, which --drop-old ends")
        else:
            print(found.webhook_secret())


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
