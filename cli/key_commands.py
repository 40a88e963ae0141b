"""`stoker key ...`: works on the store itself, found where control finds it, beside a running control too.

A running control remembers a key's verdict for five seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from stoker.cli.data_folder import DataFolder
from stoker.cli.database import open_chosen
from stoker.cli.errors import CliError
from stoker.cli.terminal import plain_console
from stoker.control import keys, store
from stoker.control.commit import run_batch
from stoker.control.config import load_config
from stoker.control.store import Conn

T = TypeVar("T")


def create(data_dir: Path, config: Path | None, name: str, *, join: bool, console: Console) -> None:
    make = keys.create_join_token if join else keys.create_key
    record, token = _on_store(data_dir, config, lambda conn: make(conn, name=name, now=time.time()))
    console.print(token, soft_wrap=True)
    plain_console(stderr=True).print(f"{record.id} ({name}); it is shown this once")


def show(data_dir: Path, config: Path | None, *, join: bool, console: Console) -> None:
    records = _on_store(data_dir, config, lambda conn: keys.list_keys(conn, "join" if join else "key"))
    table = Table("id", "name", "account", "created", "revoked")
    for record in records:
        revoked = "" if record.revoked_at is None else _day(record.revoked_at)
        table.add_row(record.id, record.name, record.account, _day(record.created_at), revoked)
    console.print(table)


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
