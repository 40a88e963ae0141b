"""`stoker database status` and `upgrade`: the tables, their version, and their way to this version's."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from stoker.cli import tables
from stoker.cli.database.place import control_runs, opened_to_look
from stoker.cli.errors import CliError
from stoker.control.store.database.opening import tables_of, upgrade_tables
from stoker.control.store.database.secrets import key_name
from stoker.control.store.database.versions import Tables, suit, upgrade_refusal
from stoker.control.store.tables.schema import SCHEMA_VERSION, WORKS_FROM

WANTED = Tables(SCHEMA_VERSION, WORKS_FROM)


def status(data_dir: Path, config: Path | None, *, as_json: bool) -> None:
    with opened_to_look(data_dir, config) as store:
        found, size = tables_of(store.writer), store.database.size(store.writer.raw)
        runs = control_runs(data_dir, store)
        name, origin = store.database.name, store.secrets.origin
        keys = [key_name(key) for key in store.secrets.keys]
    fields = {
        "database": name,
        "schemaFound": found.version,
        "schemaWanted": WANTED.version,
        "suits": suit(found, WANTED.version),
        "bytes": size,
        "controlRuns": runs,
        "keysOf": origin,
        "keys": keys,
    }
    rows = [
        ("database", name),
        ("schema", _schema(found)),
        ("size", f"{size / (1 << 20):.1f} MiB"),
        ("control", "has it open" if runs else "none has it open"),
        ("keys", f"{', '.join(keys)} ({origin})"),
    ]
    tables.show((), rows, fields, as_json=as_json)


def _schema(found: Tables) -> str:
    if found.version == WANTED.version:
        return f"version {found.version}, as this Stoker wants it"
    wants = f"version {found.version}, and this Stoker wants {WANTED.version}"
    if suit(found, WANTED.version):
        return f"{wants}: it works with both"
    return f"{wants}: " + (
        "upgrade it" if found.version < WANTED.version else "start the Stoker that wrote it"
    )


def upgrade(data_dir: Path, config: Path | None, console: Console) -> None:
    with opened_to_look(data_dir, config) as store:
        found, name = tables_of(store.writer), store.database.name
        if why := upgrade_refusal(found, WANTED, control_runs=control_runs(data_dir, store)):
            raise CliError(f"the database {name} is not upgraded: {why}")
        done = upgrade_tables(store)
    if done is None:
        console.print(f"{name}: schema version {found.version}; nothing to do", soft_wrap=True)
    else:
        console.print(f"{name}: upgraded {done}", soft_wrap=True)
