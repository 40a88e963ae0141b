"""Which key and which join token `stoker up` hands on, and what it says of where they came from."""

from __future__ import annotations

from pathlib import Path

from stoker.cli.data_folder import DataFolder
from stoker.cli.token_source import Source
from stoker.cli.up import find_secrets


def test_the_key_of_the_environment_wins_over_the_file_and_that_over_ours(tmp_path: Path) -> None:
    folder = DataFolder.make(tmp_path / "data")
    ours = find_secrets(folder, {}, tmp_path)
    assert (ours.new_key, ours.key_source.file) == (True, folder.api_key)
    assert ours.join_source.file == folder.join_token
    again = find_secrets(folder, {}, tmp_path)
    assert (again.api_key, again.new_key) == (ours.api_key, False)

    (tmp_path / ".env").write_text("STOKER_API_KEY=sk_file_1\n")
    file = find_secrets(folder, {}, tmp_path)
    assert (file.api_key, file.key_source.file) == ("sk_file_1", tmp_path / ".env")
    given = find_secrets(folder, {"STOKER_API_KEY": "sk_env_1"}, tmp_path)
    assert (given.api_key, given.key_source.file) == ("sk_env_1", None)


def test_a_source_is_told_on_and_understood() -> None:
    kept = Source("STOKER_API_KEY", Path("/data/api_key"))
    assert Source.told("STOKER_API_KEY", kept.tell()) == kept
    assert (kept.name, kept.where) == ("file api_key", "/data/api_key")
    given = Source("STOKER_API_KEY")
    assert Source.told("STOKER_API_KEY", given.tell()) == given
    assert (given.name, given.where) == ("environment", "STOKER_API_KEY in the environment")
    assert Source("STOKER_API_KEY", Path("/here/.env")).where == "STOKER_API_KEY in /here/.env"
