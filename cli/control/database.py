"""The store of control: the configured PostgreSQL database, else a file in the data folder.

    --database     else  STOKER_DATABASE_URL     else  `database` of the configuration     else  stoker.db

Control writes into its data folder which of them it uses. Only `stoker up` and `stoker control` make a store;
other commands open what is there (`open_existing`), and refuse to open another than control's.

A URL contains a password, so no message repeats it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.cli.data_folder import DataFolder, write_private
from stoker.cli.errors import CliError
from stoker.client.pasted import cleaned
from stoker.control.config.sections import Config
from stoker.control.store import Store, open_store
from stoker.control.store.database.opening import Use, check_store
from stoker.control.store.database.postgres_failures import is_url
from stoker.control.store.database.secrets import key_name, load_secrets

VARIABLE = "STOKER_DATABASE_URL"


def open_chosen(
    folder: DataFolder, config: Config, variables: Mapping[str, str], option: str | None, *, alone: bool
) -> Store:
    """Opens control's store, and makes it where there is none. `variables` are the STOKER_ variables.
    `alone`: see `open_store`; where it is set, the data folder says from then on which database is used."""
    where = chosen(folder, config, variables, option)
    store = open_store(where, secrets=load_secrets(folder.root, variables), alone=alone, now=time.time())
    if alone:
        note_database(folder, store)
    return store


def chosen(
    folder: DataFolder, config: Config, variables: Mapping[str, str], option: str | None = None
) -> Path | str:
    """Returns where control's store is: the file's path, or the URL of PostgreSQL."""
    return chosen_url(config, variables, option) or folder.store


def note_database(folder: DataFolder, store: Store) -> None:
    """Notes which database control uses, and which keys to its secrets it knows."""
    secrets = store.secrets
    keys = {"keys": [key_name(key) for key in secrets.keys], "keysAreReadAgain": secrets.looks_again}
    write_private(folder.control_note, json.dumps({"database": store.database.name, **keys}) + "\n")


def noted_keys(folder: DataFolder) -> tuple[list[str], bool]:
    """Returns the names of the keys that control of this folder knew at its start, and whether it reads the
    key file again; none where it is of an earlier version."""
    note = _note(folder)
    return [str(name) for name in note.get("keys", ())], bool(note.get("keysAreReadAgain"))


def check_chosen(folder: DataFolder, url: str | None, variables: Mapping[str, str]) -> None:
    """Checks that this process could open control's store, if there is one yet. `url`: of `chosen_url`."""
    if url is not None or folder.store.exists():
        check_store(url or folder.store, load_secrets(folder.root, variables, make=False))


def open_existing(root: Path, config: Config, variables: Mapping[str, str], tables: Use = "use") -> Store:
    """Opens the store that control of this data folder uses. Raises CliError where there is none, or where
    the settings of this command name another."""
    folder = DataFolder(root.absolute())
    url = chosen_url(config, variables, None)
    ours = str(folder.store) if url is None else _shown(url)
    noted = _noted(folder)
    if noted is not None and noted != ours:
        raise CliError(
            f"control of {folder.root} uses the database {noted}, and this command would use {ours}: give it"
            f" {VARIABLE} and --config as control has them, or another --data-dir"
        )
    if url is None and not folder.store.exists():
        by_address = (
            ", or its address by STOKER_URL"
            if tables == "use"
            else ". This command works on the tables themselves, so no address (STOKER_URL) will do"
        )
        raise CliError(
            f"there is no store of a control in {folder.root}: start `stoker up` or `stoker control`, or name"
            f" control's folder by --data-dir, its database by {VARIABLE}{by_address}"
        )
    secrets = load_secrets(folder.root, variables, make=False)
    where = folder.store if url is None else url
    return open_store(where, secrets=secrets, alone=False, tables=tables, now=time.time())


def _noted(folder: DataFolder) -> str | None:
    found = _note(folder).get("database")
    return None if found is None else str(found)


def _note(folder: DataFolder) -> dict[str, Any]:
    try:
        found = json.loads(folder.control_note.read_text(encoding="utf-8"))
        return {"database": found["database"], **found}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"{folder.control_note} cannot be read: {error}; restart control") from None


def _shown(url: str) -> str:
    from stoker.control.store.database.postgres import shown

    try:
        return shown(url)
    except ValueError as error:
        raise CliError(f"the URL of the database cannot be used: {error}") from None


def chosen_url(config: Config, variables: Mapping[str, str], option: str | None) -> str | None:
    """Returns the URL of the configured PostgreSQL database; None for the file. Raises CliError."""
    declared = None if config.database is None else config.database.get_secret_value()
    for source, text in (("--database", option), (VARIABLE, variables.get(VARIABLE)), ("database", declared)):
        url = cleaned(text or "")
        if not url:
            continue
        if not is_url(url):
            raise CliError(f"{source} must read postgresql://USER:PASSWORD@HOST:PORT/NAME")
        return url
    return None
