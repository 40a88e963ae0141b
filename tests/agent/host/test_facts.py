"""What an agent tells of its host, from files that say it and from what its operator says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.agent.host.facts import INITIAL_PID_NAMESPACE, host_facts, sees_host_processes, vcpus

ALL = float(len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("quota", "count"),
    [
        ("max 100000", ALL),
        ("50000 100000", 0.5),
        ("33333 100000", 0.33),
        ("99999999 100000", ALL),
        ("", ALL),
        ("x y", ALL),
        ("1 0", ALL),
    ],
)
def test_a_quota_makes_processors_fewer(tmp_path: Path, quota: str, count: float) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert vcpus(tmp_path) == count


def test_without_a_cgroup_all_processors_count(tmp_path: Path) -> None:
    assert vcpus(tmp_path) == ALL
    assert host_facts(None, {}, None, tmp_path) == {"vcpus": f"{ALL:g}"}


@pytest.mark.parametrize(
    ("limit", "reported"), [("max", "1000"), ("999", "999"), ("1001", "1000"), (None, "1000")]
)
def test_the_lesser_of_the_hosts_memory_and_its_limit(
    tmp_path: Path, limit: str | None, reported: str
) -> None:
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
    assert host_facts(None, {}, 1000, tmp_path)["memory_bytes"] == reported


def test_what_the_operator_configures(tmp_path: Path) -> None:
    facts = host_facts("EU-RO-1", {"tier": "gold", "rack": ""}, None, tmp_path)
    del facts["vcpus"]
    assert facts == {"data_center": "EU-RO-1", "label.tier": "gold", "label.rack": ""}


def test_whether_process_ids_are_the_hosts(tmp_path: Path) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    assert not sees_host_processes(tmp_path)
    link = tmp_path / "self" / "ns" / "pid"
    link.symlink_to("pid:[4026532345]")
    assert not sees_host_processes(tmp_path)
    link.unlink()
    link.symlink_to(INITIAL_PID_NAMESPACE)
    assert sees_host_processes(tmp_path)
