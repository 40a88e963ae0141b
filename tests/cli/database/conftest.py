"""An operator's folder with a store of a control that was started there, in either database."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.control.database import VARIABLE, open_chosen
from stoker.cli.data_folder import DataFolder, locked
from stoker.cli.main import main
from stoker.control.config.sections import Config
from stoker.control.store import Store, open_store
from tests.control.store.database.past_tables import PastTables


@dataclass
class Operator:
    """Somebody at a terminal in `folder`. `url` is that of PostgreSQL, or empty."""

    folder: DataFolder
    url: str
    capsys: pytest.CaptureFixture[str]

    @property
    def variables(self) -> dict[str, str]:
        return {VARIABLE: self.url} if self.url else {}

    def open(self, *, alone: bool = False) -> Store:
        return open_chosen(self.folder, Config(), {**os.environ, **self.variables}, None, alone=alone)

    @contextmanager
    def control_of(self, past: PastTables) -> Iterator[None]:
        """A control of a past release: it has the same locks, and its own tables."""
        where = self.url or self.folder.store
        with locked(self.folder.control_lock, "there is one"):
            store = open_store(where, secrets=past.secrets, tables="look")
            try:
                yield
            finally:
                store.close()

    @contextmanager
    def control(self) -> Iterator[Store]:
        """The store as a control has it open, with its locks."""
        with locked(self.folder.control_lock, "there is one"):
            store = self.open(alone=True)
            try:
                yield store
            finally:
                store.close()

    def works(self, *arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        printed = self.capsys.readouterr()
        assert ended.value.code == 0, printed.err
        return printed.out

    def says(self, *arguments: str) -> Any:
        return json.loads(self.works(*arguments, "--json"))

    def fails(self, *arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        assert ended.value.code == 1
        return self.capsys.readouterr().err

    def put_tables_of(self, version: int) -> PastTables:
        """Tables of a past release, in the place of a store that was never made."""
        past = PastTables.of(version)
        past.make(self.url or str(self.folder.store))
        key = self.folder.root / "secret.key"
        key.write_text(past.secret_key)
        key.chmod(0o600)
        return past


@pytest.fixture(params=["sqlite", "postgres"])
def operators(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Callable[[str], Operator]]:
    """Makes operators, each with a folder and a database of its own; commands are run as the last one."""
    for name in [name for name in os.environ if name.startswith("STOKER_")]:
        monkeypatch.delenv(name)
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    made: list[str] = []

    def make(name: str = "here") -> Operator:
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        url = "" if server is None else server.fresh()
        if server is not None:
            made.append(url)
            monkeypatch.setenv(VARIABLE, url)
        return Operator(DataFolder.make(tmp_path / name / ".stoker"), url, capsys)

    yield make
    for url in made:
        server.drop(url)


@pytest.fixture
def operator(operators: Callable[..., Operator]) -> Operator:
    return operators()
