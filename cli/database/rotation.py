"""`stoker database rotate-key`: a new secret key first in the key file, and everything sealed with it.

one key ──> a new one before it ──> values sealed anew, a batch at a time ──> none left
several ────────────────────────────┘                                            │ --drop-old
                                                          the first key alone <──┘
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.fernet import Fernet
from rich.console import Console

from stoker.cli.control.database import noted_keys
from stoker.cli.data_folder import DataFolder, locked
from stoker.cli.database.place import control_runs, opened_to_look
from stoker.cli.errors import CliError
from stoker.control.store import Store
from stoker.control.store.database.rotation import count_stale, reseal
from stoker.control.store.database.secrets import FILE, VARIABLE, key_name, replace_key_file


def rotate(data_dir: Path, config: Path | None, *, drop_old: bool, console: Console) -> None:
    folder = DataFolder(data_dir.absolute())
    with (
        opened_to_look(data_dir, config) as store,
        locked(folder.root / "rotation.lock", "another rotation of the key runs"),
    ):
        runs = control_runs(data_dir, store)
        _rotate(folder, store, drop_old=drop_old, runs=runs, console=console)


def _rotate(folder: DataFolder, store: Store, *, drop_old: bool, runs: bool, console: Console) -> None:
    from_file, path = not os.environ.get(VARIABLE), folder.root / FILE
    if len(store.secrets.keys) == 1 and drop_old:
        raise CliError(f"{store.secrets.origin} has one key only: there is no old one to drop")
    if len(store.secrets.keys) == 1 and not from_file:
        raise CliError(
            f"{VARIABLE} has one key: start control and this command with the new key and the old one,"
            f" {VARIABLE}=NEW,OLD"
        )
    if runs:
        _check_control(folder, store)
    if len(store.secrets.keys) == 1:
        replace_key_file(path, [Fernet.generate_key(), *store.secrets.keys])
    done = reseal(store.writer)
    left, (first, *old) = count_stale(store.writer), store.secrets.keys
    console.print(
        f"{done} values were sealed with key {key_name(first)} now; {left} are left with others",
        soft_wrap=True,
    )
    if left:
        raise CliError("some are left, which control sealed meanwhile: run the command again")
    if drop_old and from_file:
        replace_key_file(path, [first])
    console.print(_advice(store, old, from_file=from_file, dropped=drop_old), soft_wrap=True)


def _check_control(folder: DataFolder, store: Store) -> None:
    """Raises CliError where the control that runs would not open what will be sealed with the first key."""
    noted, reads_again = noted_keys(folder)
    known = [key_name(key) for key in store.secrets.keys]
    if not noted:
        raise CliError(
            "the control that runs is of an earlier version, or of another data folder: restart it"
        )
    reads = reads_again and store.secrets.looks_again and bool(set(noted) & set(known))
    if not (reads or (len(known) > 1 and known[0] in noted)):
        raise CliError(
            "the control that runs would not know the new key: start it and this command with the new key and"
            f" the old one, {VARIABLE}=NEW,OLD"
        )


def _advice(store: Store, old: list[bytes], *, from_file: bool, dropped: bool) -> str:
    names = ", ".join(key_name(key) for key in old)
    kept = f"Backups that were taken before need key {names}: keep it with them."
    if dropped and from_file:
        return f"{store.secrets.origin} has the first key alone now. {kept}"
    if not from_file:
        return f"Control may be started without key {names} now. {kept}"
    return f"Key {names} is needed by none of them: drop it by stoker database rotate-key --drop-old. {kept}"
