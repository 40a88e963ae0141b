"""Creates, changes and revokes API keys and join tokens.

A change takes effect at once in this process. A revoked key is not listed any more; its id stays in the audit
log.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from stoker.control.auth.callers import Callers
from stoker.control.config.endpoints import Endpoints
from stoker.control.context import Context
from stoker.control.errors import BadRequest, NotFound
from stoker.control.rules.access import Access
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.quotas import UNBOUNDED, Quota, Use
from stoker.control.rules.types import KeyRecord
from stoker.control.store import Conn
from stoker.control.store.jobs.quota_uses import use
from stoker.control.store.resources import keys


class Keys:
    def __init__(self, context: Context, callers: Callers, endpoints: Endpoints) -> None:
        self._commits, self._clock = context.commits, context.clock
        self._callers, self._endpoints = callers, endpoints

    async def create(
        self,
        account: str,
        *,
        name: str,
        access: Access,
        expires_at: float | None,
        quota: Quota = UNBOUNDED,
        priority: Priority | None = None,
    ) -> tuple[KeyRecord, str]:
        """Returns its record and the key itself, which is not stored."""
        now = self._clock()
        self._check_expiry(expires_at, now)
        known = self._known(account, access)
        return await self._commits.commit(
            lambda conn: keys.create_key(
                conn,
                name=name,
                now=now,
                account=account,
                access=known,
                expires_at=expires_at,
                quota=quota,
                priority=priority,
            )
        )

    async def create_join_token(
        self, account: str, *, name: str, uses: int | None, expires_at: float | None
    ) -> tuple[KeyRecord, str]:
        now = self._clock()
        self._check_expiry(expires_at, now)
        return await self._commits.commit(
            lambda conn: keys.create_join_token(
                conn, name=name, now=now, account=account, uses=uses, expires_at=expires_at
            )
        )

    async def list(self, account: str, kind: keys.Kind) -> tuple[KeyRecord, ...]:
        """Returns the keys that were not revoked, the oldest first."""
        return await self._commits.read(
            lambda conn: keys.list_keys(conn, kind, account=account, revoked=False)
        )

    async def get(self, account: str, key: str) -> KeyRecord:
        found = await self._commits.read(lambda conn: keys.get_key(conn, account, key))
        if found is None:
            raise _no_key(key)
        return found

    async def use(self, record: KeyRecord) -> Use:
        """Returns the jobs and the GPU time that the key's quota bounds."""
        now = self._clock()
        return await self._commits.read(lambda conn: use(conn, "key", record.id, record.quota, now))

    async def update(self, account: str, key: str, changes: Mapping[str, Any]) -> KeyRecord:
        """Changes a key. `changes`: name, expires_at (None: never) and, of an API key, access, quota and
        priority (None: as its scope has it)."""
        found = await self.get(account, key)
        if "expires_at" in changes:
            self._check_expiry(changes["expires_at"], self._clock())
        for field in ("access", "quota", "priority"):
            if field in changes and found.kind == "join":
                raise BadRequest(f"{field} is for API keys; {key} is a join token")
        columns = dict(changes)
        if "access" in changes:
            columns["access"] = self._known(account, changes["access"]).stored()
        if "quota" in changes:
            columns["quota"] = changes["quota"].stored()

        def change(conn: Conn) -> KeyRecord:
            if columns and not keys.change_key(conn, account, key, columns):
                raise _no_key(key)
            changed = keys.get_key(conn, account, key)
            if changed is None:
                raise _no_key(key)
            return changed

        changed = await self._commits.commit(change)
        self._callers.forget()
        return changed

    async def revoke(self, account: str, key: str) -> None:
        now = self._clock()

        def revoke(conn: Conn) -> None:
            if keys.get_key(conn, account, key) is None or not keys.revoke_key(conn, key, now):
                raise _no_key(key)

        await self._commits.commit(revoke)
        self._callers.forget()

    def _check_expiry(self, expires_at: float | None, now: float) -> None:
        if expires_at is not None and expires_at <= now:
            end, allowed = (datetime.fromtimestamp(at, UTC).isoformat() for at in (expires_at, now))
            raise BadRequest(f"expiresAt must lie in the future, after {allowed}; got {end}")

    def _known(self, account: str, access: Access) -> Access:
        """Returns the access with the ids of endpoints instead of their aliases."""
        rights = {}
        for name, right in access.endpoints.items():
            try:
                named = name if name == "*" else self._endpoints.find(account, name, of_queue=False).id
            except NotFound:
                raise BadRequest(
                    f'access.endpoints must name endpoints, or "*" for all others; there is no {name}'
                ) from None
            rights[named] = right
        return replace(access, endpoints=rights)


def _no_key(key: str) -> NotFound:
    return NotFound(f"no key {key!r}: the id is wrong, or it was revoked")
