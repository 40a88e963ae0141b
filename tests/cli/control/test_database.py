"""Which database is taken, and that nothing repeats its URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.cli.control.database import open_chosen
from stoker.cli.data_folder import DataFolder
from stoker.cli.errors import CliError
from stoker.control.config.config import ConfigError, load_config
from stoker.control.config.sections import Config
from stoker.control.store import StoreError
from stoker.control.store.database.secrets import VARIABLE as SECRET_KEY

NOBODY = "postgresql://stoker:hidden@127.0.0.1:1/"


def configured(folder: Path, line: str) -> Config:
    path = folder / "stoker.toml"
    path.write_text(line)
    return load_config(path)


def test_the_option_goes_before_the_variable_and_that_before_the_file(tmp_path: Path) -> None:
    folder = DataFolder.make(tmp_path / "data")
    config = configured(tmp_path, f'database = "{NOBODY}of_the_file"')
    assert "hidden" not in repr(config)
    variables = {"STOKER_DATABASE_URL": NOBODY + "of_the_variable"}
    for environment, option, name in (
        ({}, None, "of_the_file"),
        (variables, None, "of_the_variable"),
        (variables, NOBODY + "of_the_option", "of_the_option"),
    ):
        with pytest.raises(
            StoreError, match=f"^the database {name} at 127.0.0.1:1 cannot be opened: Connect"
        ):
            open_chosen(folder, config, environment, option, alone=True)


def test_without_any_it_is_a_file_and_its_key_may_come_with_the_environment(tmp_path: Path) -> None:
    folder = DataFolder.make(tmp_path / "data")
    store = open_chosen(folder, Config(), {SECRET_KEY: "A" * 43 + "="}, None, alone=True)
    assert store.path == str(folder.store)
    assert SECRET_KEY in store.secrets.origin
    store.close()


def test_what_is_no_url_of_postgres_is_refused_without_repeating_it(tmp_path: Path) -> None:
    folder = DataFolder.make(tmp_path / "data")
    with pytest.raises(CliError, match=r"^--database must read postgresql://USER:PASSWORD@HOST:PORT/NAME$"):
        open_chosen(folder, Config(), {}, "mysql://stoker:hidden@host/db", alone=True)
    with pytest.raises(ConfigError) as refused:
        configured(tmp_path, 'database = ["postgresql://stoker:hidden@host/db"]')
    assert "database" in str(refused.value)
    assert "hidden" not in str(refused.value)
