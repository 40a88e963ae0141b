"""Where the store is: in the PostgreSQL database that is named, else in a file of the data folder.

    --database     else  STOKER_DATABASE_URL     else  `database` of the configuration     else  stoker.db

A URL holds a password, so no sentence repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from stoker.cli.data_folder import DataFolder
from stoker.cli.errors import CliError
from stoker.control.config_sections import Config
from stoker.control.secrets import load_secrets
from stoker.control.store import Store, open_store
from stoker.control.store.postgres import is_url

VARIABLE = "STOKER_DATABASE_URL"


def open_chosen(
    folder: DataFolder, config: Config, given: Mapping[str, str], option: str | None, *, alone: bool
) -> Store:
    """`given`: the STOKER_ variables. `alone`: as control opens it, see `open_store`."""
    url = _url(config, given, option)
    where = folder.store if url is None else url
    return open_store(where, secrets=load_secrets(folder.root, given), alone=alone, now=time.time())


def _url(config: Config, given: Mapping[str, str], option: str | None) -> str | None:
    declared = None if config.database is None else config.database.get_secret_value()
    for source, url in (("--database", option), (VARIABLE, given.get(VARIABLE)), ("database", declared)):
        if not url:
            continue
        if not is_url(url):
            raise CliError(f"{source} must read postgresql://USER:PASSWORD@HOST:PORT/NAME")
        return url
    return None
