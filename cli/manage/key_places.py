"""The two places where `stoker key ...` reads and changes keys.

    without --url   the store of the control on this host, also while that runs (`StoredKeys`)
    with --url      the management API of a service, with the caller's key (`ServedKeys`)

A running control caches the check of a key for five seconds. Changes write lines to the audit log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from stoker.cli.access import open_client
from stoker.cli.audit_log import audited, in_transaction
from stoker.cli.control.database import open_existing
from stoker.cli.control.endpoints import with_hosted_aliases
from stoker.cli.errors import CliError
from stoker.client.management import Management
from stoker.control import store
from stoker.control.config.config import load_config
from stoker.control.resources.webhook_secret import ONE_ONLY, TWO_ALREADY
from stoker.control.rules.access import ALL, Access
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.quotas import UNBOUNDED, Quota, used
from stoker.control.rules.types import KeyRecord
from stoker.control.store import Store
from stoker.control.store.jobs.quota_uses import use
from stoker.control.store.resources import keys

KINDS: tuple[keys.Kind, ...] = ("key", "join")


@dataclass(frozen=True, slots=True)
class Place:
    """The options that say where keys are."""

    data_dir: Path
    config: Path | None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A new key or join token. `uses` is of a join token, `access`, `quota` and `priority` of a key."""

    kind: keys.Kind
    name: str
    access: Access = ALL
    uses: int | None = None
    expires_at: float | None = None
    quota: Quota = UNBOUNDED
    priority: Priority | None = None


class Keys(Protocol):
    def endpoints(self) -> tuple[set[str], Mapping[str, str]]:
        """Returns the ids of all endpoints, and their aliases as far as they are known."""

    def create(self, wanted: Wanted) -> tuple[KeyRecord, str]:
        """Creates a key, and returns its record with the key itself."""

    def list(self, kind: keys.Kind) -> list[KeyRecord]:
        """Returns the records of a kind; revoked ones too, where they are known."""

    def get(self, key: str) -> tuple[KeyRecord, Mapping[str, float]]:
        """Returns the record of a key, and the use of what its quota bounds, as far as that is known. Raises
        CliError if there is none."""

    def set_priority(self, key: str, priority: Priority | None) -> None:
        """Sets the highest class that the key may submit; None: by its scope. Raises CliError."""

    def set_quota(self, key: str, quota: Quota) -> None:
        """Replaces the quota of an API key. Raises CliError if there is none."""

    def revoke(self, key: str) -> None:
        """Revokes the key with this id. Raises CliError if there is none."""

    def webhook_secret(self) -> str:
        """Returns the secret that webhooks are signed with."""

    def rotate_webhook_secret(self) -> str:
        """Makes a new secret, and returns it; webhooks are signed with the one before as well. Raises
        CliError where there is one before already."""

    def drop_webhook_secret(self) -> None:
        """Ends the signatures with the secret before. Raises CliError where there is none."""


@contextmanager
def keys_at(place: Place) -> Iterator[Keys]:
    """Opens the keys of a place for the block. Raises CliError."""
    if place.url is not None:
        with open_client(place.url, place.data_dir) as stoker:
            yield ServedKeys(stoker.manage)
        return
    config = load_config(place.config)
    opened = open_existing(place.data_dir, config, os.environ)
    try:
        yield StoredKeys(opened, config.aliases)
    finally:
        opened.close()


class StoredKeys:
    """The keys of a store. Each change has a line in the audit log, with the user of this command."""

    def __init__(self, opened: Store, aliases: Mapping[str, str]) -> None:
        self._opened, self._aliases = opened, aliases

    def endpoints(self) -> tuple[set[str], Mapping[str, str]]:
        found = in_transaction(self._opened, store.list_endpoints)
        return {one.id for one in found}, with_hosted_aliases(found, self._aliases)

    def create(self, wanted: Wanted) -> tuple[KeyRecord, str]:
        now, name, end = time.time(), wanted.name, wanted.expires_at
        return audited(
            self._opened,
            ("POST", "/v1/keys"),
            lambda conn: (
                keys.create_join_token(conn, name=name, now=now, uses=wanted.uses, expires_at=end)
                if wanted.kind == "join"
                else keys.create_key(
                    conn,
                    name=name,
                    now=now,
                    access=wanted.access,
                    expires_at=end,
                    quota=wanted.quota,
                    priority=wanted.priority,
                )
            ),
        )

    def list(self, kind: keys.Kind) -> list[KeyRecord]:
        return list(in_transaction(self._opened, lambda conn: keys.list_keys(conn, kind)))

    def get(self, key: str) -> tuple[KeyRecord, Mapping[str, float]]:
        def read(conn: store.Conn) -> tuple[KeyRecord, Mapping[str, float]]:
            record = keys.get_key(conn, store.DEFAULT_ACCOUNT, key)
            if record is None:
                raise _no_key(key)
            made = (one for one in store.list_endpoints(conn) if one.api_key == key)
            workers = sum(one.workers_max for one in made)
            return record, used(
                record.quota, use(conn, "key", key, record.quota, time.time()), workers=workers
            )

        return in_transaction(self._opened, read)

    def set_quota(self, key: str, quota: Quota) -> None:
        self._change(key, {"quota": quota.stored()})

    def set_priority(self, key: str, priority: Priority | None) -> None:
        self._change(key, {"priority": priority})

    def _change(self, key: str, columns: Mapping[str, Any]) -> None:
        def change(conn: store.Conn) -> None:
            record = keys.get_key(conn, store.DEFAULT_ACCOUNT, key)
            if record is None or record.kind != "key":
                raise _no_key(key)
            keys.change_key(conn, store.DEFAULT_ACCOUNT, key, columns)

        audited(self._opened, ("PATCH", f"/v1/keys/{key}"), change)

    def revoke(self, key: str) -> None:
        def end(conn: store.Conn) -> None:
            if not keys.revoke_key(conn, key, time.time()):
                raise _no_key(key)

        audited(self._opened, ("DELETE", f"/v1/keys/{key}"), end, status=204)

    def webhook_secret(self) -> str:
        """Returns the secret, with an audit line: any holder of the secret can sign as this service."""
        return audited(self._opened, ("GET", "stoker key webhook-secret"), store.webhook_secret)

    def rotate_webhook_secret(self) -> str:
        def rotate(conn: store.Conn) -> str:
            made = store.rotate_webhook_secret(conn)
            if made is None:
                raise CliError(TWO_ALREADY)
            return made

        return audited(self._opened, ("POST", "stoker key webhook-secret"), rotate)

    def drop_webhook_secret(self) -> None:
        def drop(conn: store.Conn) -> None:
            if not store.drop_webhook_secret(conn):
                raise CliError(ONE_ONLY)

        audited(self._opened, ("DELETE", "stoker key webhook-secret"), drop)


def _no_key(key: str) -> CliError:
    return CliError(f"there is no key {key} that was not revoked; `stoker key list` shows them")


class ServedKeys:
    """The keys of a service, as its API shows them to a key that may manage keys."""

    def __init__(self, manage: Management) -> None:
        self._manage = manage

    def endpoints(self) -> tuple[set[str], Mapping[str, str]]:
        return {one["id"] for one in self._manage.endpoints.list()}, {}

    def create(self, wanted: Wanted) -> tuple[KeyRecord, str]:
        fields: dict[str, Any] = {"name": wanted.name, "kind": wanted.kind}
        if wanted.access != ALL:
            fields["access"] = _access_fields(wanted.access)
        if wanted.uses is not None:
            fields["maxUses"] = wanted.uses
        if wanted.expires_at is not None:
            fields["expiresAt"] = datetime.fromtimestamp(wanted.expires_at, UTC).isoformat()
        if wanted.quota != UNBOUNDED:
            fields["quota"] = wanted.quota.fields()
        if wanted.priority is not None:
            fields["priority"] = str(wanted.priority)
        made = self._manage.keys.create(fields)
        return _record(made), str(made["key"])

    def list(self, kind: keys.Kind) -> list[KeyRecord]:
        return [_record(one) for one in self._manage.keys.list(kind=kind)]

    def get(self, key: str) -> tuple[KeyRecord, Mapping[str, float]]:
        fields = self._manage.keys.get(key)
        return _record(fields), fields.get("used", {})

    def set_quota(self, key: str, quota: Quota) -> None:
        self._manage.keys.update(key, {"quota": quota.fields() or None})

    def set_priority(self, key: str, priority: Priority | None) -> None:
        self._manage.keys.update(key, {"priority": priority and str(priority)})

    def revoke(self, key: str) -> None:
        self._manage.keys.delete(key)

    def webhook_secret(self) -> str:
        return str(self._manage.webhook_secret.show()["secret"])

    def rotate_webhook_secret(self) -> str:
        return str(self._manage.webhook_secret.rotate()["secret"])

    def drop_webhook_secret(self) -> None:
        self._manage.webhook_secret.drop_old()


def _access_fields(access: Access) -> dict[str, Any]:
    if access.scope != "restricted":
        return {"scope": access.scope}
    fields = {"scope": access.scope, "management": access.management, "endpoints": dict(access.endpoints)}
    return fields | ({"cases": True} if access.cases else {})


def _record(fields: Mapping[str, Any]) -> KeyRecord:
    """Returns the record of a key from the API's JSON."""
    at = {name: fields.get(name) for name in ("createdAt", "expiresAt", "lastUsedAt")}
    times = {
        name: None if text is None else datetime.fromisoformat(text).timestamp() for name, text in at.items()
    }
    access = fields.get("access")
    return KeyRecord(
        id=fields["id"],
        account="",
        name=fields["name"],
        created_at=times["createdAt"] or 0.0,
        kind=fields["kind"],
        access=ALL if access is None else Access(**access),
        expires_at=times["expiresAt"],
        last_used_at=times["lastUsedAt"],
        uses_left=fields.get("usesLeft"),
        quota=Quota.of(fields.get("quota", {})),
        priority=Priority(fields["priority"]) if "priority" in fields else None,
    )
