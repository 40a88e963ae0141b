"""`stoker key ...`: works on the store itself, found where control finds it, beside a running control too.

A running control remembers a key's verdict for five seconds.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Column, Table

from stoker.cli.data_folder import DataFolder
from stoker.cli.database import open_chosen
from stoker.cli.errors import CliError
from stoker.cli.terminal import plain_console
from stoker.control import keys, store
from stoker.control.access import ALL, Access, Right
from stoker.control.commit import run_batch
from stoker.control.config import load_config
from stoker.control.store import Conn
from stoker.control.types import KeyRecord

T = TypeVar("T")

RIGHTS: tuple[Right, ...] = ("none", "read", "write")
_SPAN = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_TIMES = ("created", "expires", "used last", "revoked")


@dataclass(frozen=True, slots=True)
class NewKey:
    """As the command line says it. `rights`: of endpoints, as NAME=none, NAME=read or NAME=write."""

    name: str
    join: bool = False
    uses: int | None = None
    expires: str | None = None
    read_only: bool = False
    management: str | None = None
    rights: Sequence[str] = ()


def create(
    data_dir: Path, config: Path | None, wanted: NewKey, console: Console, *, as_json: bool = False
) -> None:
    now = time.time()
    access = _access(wanted)
    expires_at = None if wanted.expires is None else now + _seconds(wanted.expires)
    aliases = load_config(config).aliases

    def make(conn: Conn) -> tuple[KeyRecord, str]:
        if wanted.join:
            return keys.create_join_token(
                conn, name=wanted.name, now=now, uses=wanted.uses, expires_at=expires_at
            )
        known = _named(access, {one.id for one in store.list_endpoints(conn)}, aliases)
        return keys.create_key(conn, name=wanted.name, now=now, access=known, expires_at=expires_at)

    record, token = _on_store(data_dir, config, make)
    if as_json:
        print(_json({**_told(record), "key": token}))
        return
    console.print(token, soft_wrap=True)
    plain_console(stderr=True).print(f"{record.id} ({wanted.name}); it is shown this once")


def _access(wanted: NewKey) -> Access:
    restricted = wanted.management is not None or bool(wanted.rights)
    if wanted.uses is not None and not wanted.join:
        raise CliError("--uses is for join tokens: --join")
    if wanted.join and (restricted or wanted.read_only):
        raise CliError(
            "a join token lets nodes join and nothing else: no --read-only, --management, --endpoint"
        )
    if wanted.read_only and restricted:
        raise CliError("--read-only says it all; --management and --endpoint restrict a key otherwise")
    if not restricted:
        return Access("read") if wanted.read_only else ALL
    rights = {}
    for given in wanted.rights:
        name, _, right = given.partition("=")
        rights[name] = _right("--endpoint NAME=RIGHT", right)
    return Access("restricted", _right("--management", wanted.management or "none"), rights)


def _right(option: str, given: str) -> Right:
    for right in RIGHTS:
        if given == right:
            return right
    raise CliError(f"{option}: a right is one of {', '.join(RIGHTS)}; got {given!r}")


def _named(access: Access, known: set[str], aliases: Mapping[str, str]) -> Access:
    """With the ids of endpoints in place of their aliases."""
    rights = {aliases.get(name, name): right for name, right in access.endpoints.items()}
    for name in rights:
        if name != "*" and name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise CliError(f'--endpoint: there is no endpoint {name}; there are: {there}; "*" is all others')
    return replace(access, endpoints=rights)


def _seconds(given: str) -> float:
    found = _SPAN.fullmatch(given)
    if found is None:
        raise CliError(f"--expires is a number and s, m, h or d, such as 24h; got {given!r}")
    return int(found[1]) * _UNITS[found[2]]


def show(data_dir: Path, config: Path | None, *, join: bool, console: Console, as_json: bool = False) -> None:
    records = _on_store(data_dir, config, lambda conn: keys.list_keys(conn, "join" if join else "key"))
    if as_json:
        print(_json([_told(record) for record in records if record.revoked_at is None]))
        return
    table = Table(*(Column(name, no_wrap=True) for name in ("id", "name")), "account")
    for heading in ("uses left" if join else "may", *_TIMES):
        table.add_column(heading)
    for record in records:
        may = _uses(record) if join else _may(record.access)
        times = (record.created_at, record.expires_at, record.last_used_at, record.revoked_at)
        days = ("" if at is None else _day(at) for at in times)
        table.add_row(record.id, record.name, record.account, may, *days)
    console.print(table)


def _told(record: KeyRecord) -> dict[str, Any]:
    """As the API writes it, which knows no key that was revoked."""
    from stoker.control.api.management.keys import KeyTold, fields_of

    return KeyTold(**fields_of(record)).model_dump(mode="json", exclude_none=True)


def _json(value: object) -> str:
    return json.dumps(value, indent=2)


def _uses(record: KeyRecord) -> str:
    return "any number" if record.uses_left is None else str(record.uses_left)


def _may(access: Access) -> str:
    if access.scope != "restricted":
        return access.scope
    rights = {"management": access.management, **access.endpoints}
    return " ".join(f"{name}={right}" for name, right in rights.items())


def revoke(data_dir: Path, config: Path | None, key: str, console: Console) -> None:
    if not _on_store(data_dir, config, lambda conn: keys.revoke_key(conn, key, time.time())):
        raise CliError(f"there is no key {key} that was not revoked; `stoker key list` shows them")
    console.print(f"{key} is revoked")


def webhook_secret(data_dir: Path, config: Path | None) -> None:
    print(_on_store(data_dir, config, store.webhook_secret))


def _on_store(data_dir: Path, config: Path | None, work: Callable[[Conn], T]) -> T:
    store = open_chosen(DataFolder.make(data_dir), load_config(config), os.environ, None, alone=False)
    try:
        ((value, error),) = run_batch(store.writer, [work])
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]
    finally:
        store.close()


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
