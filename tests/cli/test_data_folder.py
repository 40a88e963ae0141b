"""Secrets on disk, `.env`, and one process at a time."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.cli.data_folder import (
    DataFolder,
    load_or_create_token,
    locked,
    locked_after_wait,
    read_private,
    write_private,
)
from stoker.cli.errors import CliError


def test_a_token_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    token, made = load_or_create_token(tmp_path / "api_key", "sk")
    assert made
    assert token.startswith("sk_")
    assert stat.S_IMODE((tmp_path / "api_key").stat().st_mode) == 0o600
    assert load_or_create_token(tmp_path / "api_key", "sk") == (token, False)
    assert [path.name for path in tmp_path.iterdir()] == ["api_key"], "nothing half written stays"


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "api_key"
    write_private(path, "sk_1_2\n")
    path.chmod(0o644)
    with pytest.raises(CliError, match=r"others may read it .*chmod 600"):
        read_private(path)


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    write_private(tmp_path / "api_key", "\n")
    with pytest.raises(CliError, match="is empty"):
        read_private(tmp_path / "api_key")


def test_the_data_folder_is_the_owners_alone(tmp_path: Path) -> None:
    folder = DataFolder.make(tmp_path / "deep" / "data")
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
    assert folder.root.is_absolute()


def test_a_folder_that_cannot_be_made_is_reported_in_text(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CliError, match="cannot be made: Not a directory"):
        DataFolder.make(tmp_path / "file" / "data")


def test_a_second_holder_is_refused_and_the_first_end_frees_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with locked(lock, "taken"), pytest.raises(CliError, match="taken"), locked(lock, "taken"):
        pass
    with locked(lock, "taken"):
        pass


class LogLines(logging.Handler):
    """What was logged; `something` is set with the first of it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.something = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.something.set()


@pytest.fixture
def logged() -> Iterator[LogLines]:
    handler = LogLines()
    logging.root.addHandler(handler)
    yield handler
    logging.root.removeHandler(handler)


async def test_a_holder_that_is_ending_is_waited_for(tmp_path: Path, logged: LogLines) -> None:
    async def second() -> None:
        async with locked_after_wait(tmp_path / "lock", "taken"):
            with pytest.raises(CliError, match="held now"), locked(tmp_path / "lock", "held now"):
                pass

    with locked(tmp_path / "lock", "taken"):
        waiting = asyncio.create_task(second())
        await logged.something.wait()
        assert not waiting.done()
    await waiting
    assert logged.lines == ["taken; waiting for it to end, at most 20 s"]
