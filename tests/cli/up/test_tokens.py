"""Which key and which join token `stoker up` hands on, and what it says of where they came from."""

from __future__ import annotations

from pathlib import Path

from stoker.cli.control.token_source import TokenSource
from stoker.cli.data_folder import DataFolder
from stoker.cli.up.up import find_tokens


def test_the_key_of_the_environment_wins_over_the_file_and_that_over_ours(tmp_path: Path) -> None:
    folder = DataFolder.make(tmp_path / "data")
    ours = find_tokens(folder, {}, tmp_path)
    assert (ours.new_key, ours.key_source.file) == (True, folder.api_key)
    assert ours.join_source.file == folder.join_token
    again = find_tokens(folder, {}, tmp_path)
    assert (again.api_key, again.new_key) == (ours.api_key, False)

    (tmp_path / ".env").write_text("STOKER_API_KEY=sk_file_1\n")
    file = find_tokens(folder, {}, tmp_path)
    assert (file.api_key, file.key_source.file) == ("sk_file_1", tmp_path / ".env")
    found = find_tokens(folder, {"STOKER_API_KEY": "sk_env_1"}, tmp_path)
    assert (found.api_key, found.key_source.file) == ("sk_env_1", None)


def test_a_source_is_reported_on_and_understood() -> None:
    kept = TokenSource("STOKER_API_KEY", Path("/data/api_key"))
    assert TokenSource.from_environment("STOKER_API_KEY", kept.to_environment()) == kept
    assert (kept.name, kept.where) == ("file api_key", "/data/api_key")
    found = TokenSource("STOKER_API_KEY")
    assert TokenSource.from_environment("STOKER_API_KEY", found.to_environment()) == found
    assert (found.name, found.where) == ("environment", "STOKER_API_KEY in the environment")
    assert TokenSource("STOKER_API_KEY", Path("/here/.env")).where == "STOKER_API_KEY in /here/.env"
