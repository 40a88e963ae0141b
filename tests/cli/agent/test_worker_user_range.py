"""Which users an agent of root gives its workers: nobody else's, and no other agent's."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.agent.host.sandbox.isolation import AS_ROOT, Host, facts
from stoker.cli.agent import isolation as agent_isolation
from stoker.cli.agent import worker_users as worker_user_range
from stoker.cli.agent.isolation import isolation, worker_users
from stoker.cli.agent.worker_users import FIRST_AUTO, RangeLock, find, hold, parse, taken_ranges
from stoker.cli.errors import CliError


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[list[RangeLock]]:
    """Of three agents of one host."""
    made = [RangeLock(tmp_path) for _ in range(3)]
    yield made
    for lock in made:
        lock.close()


def folders(tmp_path: Path) -> list[Path]:
    made = [tmp_path / name for name in ("one", "other")]
    for folder in made:
        folder.mkdir()
    return made


def test_ranges_that_overlap_are_one_agents(tmp_path: Path, locks: list[RangeLock]) -> None:
    one, other, third = locks
    hold((100_000, 100_999), one)
    for wanted in ((100_999, 101_999), (99_000, 100_000), (100_500, 100_500)):
        with pytest.raises(CliError, match="another agent of this host uses some of these"):
            hold(wanted, other)
    hold((101_000, 101_999), other)
    one.close()
    hold((100_000, 100_999), third)
    locks[0] = RangeLock(tmp_path)


def test_each_agent_finds_users_of_its_own_and_keeps_them(tmp_path: Path, locks: list[RangeLock]) -> None:
    here, there = folders(tmp_path)
    first, second = find(here, locks[0]), find(there, locks[1])
    assert first[1] < second[0]
    assert second[1] - second[0] == 999
    locks[0].close()
    locks[0] = RangeLock(tmp_path)
    assert find(here, locks[0]) == first, "its killed workers are found by their users"
    locks[1].close()
    locks[1] = RangeLock(tmp_path)
    hold(second, locks[2])
    assert find(there, locks[1]) not in (first, second), "another has them meanwhile"


def test_what_is_somebodys_is_left_to_them(
    tmp_path: Path, locks: list[RangeLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FIRST_AUTO
    (tmp_path / "subuid").write_text(f"alice:{first}:500\n\n# odd\nbob:x:y\n")
    (tmp_path / "subgid").write_text(f"alice:{first + 1500}:1\n")
    ours = tmp_path / "subuid", tmp_path / "subgid", tmp_path / "none"
    taken = taken_ranges(ours)
    assert (first, first + 499) in taken
    assert (0, 0) in taken, "users and groups, too"
    monkeypatch.setattr(worker_user_range, "taken_ranges", lambda: taken)
    running = [first + 2000]
    monkeypatch.setattr(
        worker_user_range, "of_users", lambda low, high: [uid for uid in running if low <= uid <= high]
    )
    here, _ = folders(tmp_path)
    assert find(here, locks[0])[0] == first + 3000


@pytest.mark.parametrize("text", ["", "all", "5-10", "2000-1000", "1000-99999999", "-", "1000"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="is a range of user ids like 100000-100999, or auto"):
        parse(text)


def test_auto_is_nothing_for_who_is_not_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert worker_users("auto", tmp_path) is None
    with pytest.raises(CliError, match="only root"):
        worker_users("100000-100999", tmp_path)


def test_root_is_reported_at_the_start_and_in_the_nodes_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_isolation, "Cgroups", _NoCgroups)
    monkeypatch.setattr(agent_isolation, "raise_open_files", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with caplog.at_level(logging.WARNING):
        shut = isolation(tmp_path, {"STOKER_SANDBOX": "off"})
    assert AS_ROOT in caplog.messages
    assert shut.facts["isolation.user"] == f"no: {AS_ROOT}"
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        shut = isolation(tmp_path, {"STOKER_SANDBOX": "off"}, user_range=(100_000, 100_999))
    shut.close()
    assert not shut.host.as_root
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with caplog.at_level(logging.WARNING):
        assert not isolation(tmp_path, {"STOKER_SANDBOX": "off"}).host.as_root
    assert caplog.messages == []
    assert "ROOT" not in facts(Host())["isolation.user"]


class _NoCgroups:
    def __init__(self, folder: Path) -> None:
        raise OSError("none here")
