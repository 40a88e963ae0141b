"""Control's store as commands on the database itself open it: of any version, and beside its control."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.cli.control.database import open_existing
from stoker.cli.data_folder import DataFolder, is_locked
from stoker.control.config.config import load_config
from stoker.control.store import Store


@contextmanager
def opened_to_look(data_dir: Path, config: Path | None) -> Iterator[Store]:
    """Opens the store for the block, and leaves its tables as they are. Raises CliError, StoreError."""
    store = open_existing(data_dir, load_config(config), os.environ, "look")
    try:
        yield store
    finally:
        store.close()


def control_runs(data_dir: Path, store: Store) -> bool:
    """Returns whether a control has the database open: one of this data folder, or any by PostgreSQL's
    lock."""
    folder = DataFolder(data_dir.absolute())
    return is_locked(folder.control_lock) or store.database.has_control(store.writer.raw)
