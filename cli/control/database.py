"""The store of control: the configured PostgreSQL database, else a file in the data folder.

    --database     else  STOKER_DATABASE_URL     else  `database` of the configuration     else  stoker.db

A URL contains a password, so no message repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from stoker.cli.data_folder import DataFolder
from stoker.cli.errors import CliError
from stoker.client.pasted import cleaned
from stoker.control.config.sections import Config
from stoker.control.store import Store, open_store
from stoker.control.store.database.postgres import is_url
from stoker.control.store.database.secrets import load_secrets

VARIABLE = "STOKER_DATABASE_URL"


def open_chosen(
    folder: DataFolder, config: Config, variables: Mapping[str, str], option: str | None, *, alone: bool
) -> Store:
    """`variables` are the STOKER_ variables. `alone`: see `open_store`."""
    url = _url(config, variables, option)
    where = folder.store if url is None else url
    return open_store(where, secrets=load_secrets(folder.root, variables), alone=alone, now=time.time())


def _url(config: Config, variables: Mapping[str, str], option: str | None) -> str | None:
    declared = None if config.database is None else config.database.get_secret_value()
    for source, text in (("--database", option), (VARIABLE, variables.get(VARIABLE)), ("database", declared)):
        url = cleaned(text or "")
        if not url:
            continue
        if not is_url(url):
            raise CliError(f"{source} must read postgresql://USER:PASSWORD@HOST:PORT/NAME")
        return url
    return None
