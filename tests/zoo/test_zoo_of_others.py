# ruff: noqa: ASYNC240  # it looks at small folders
"""What handlers do, where each worker has a user of its own.

A module of its own: its agent's processes are children of this one, as those of the other agent are, and
nobody may take the one's for what the other has left.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stoker.wire.messages import WorkerLimits
from tests.zoo.zoo_cases import MIB, Case, completes, dies, name, of_a_job

pytestmark = pytest.mark.asyncio(loop_scope="module")

LITTLE = WorkerLimits(memory_bytes=96 * MIB)

SHUT_IN = [
    Case("failing/fork_bomb.py", "completed", "", lives=True, limits=WorkerLimits(pids=64)),
    Case("leaving_behind/leaks_descriptors.py", "completed", lives=False, limits=WorkerLimits(files=64)),
    completes("leaving_behind/leaves_daemons.py"),
    completes("files/many_files.py", job_input={"files": 1000}, limits=WorkerLimits(files=64)),
    completes("files/locks_its_scratch.py"),
    dies("failing/kills_its_group.py", "killed"),
]


@pytest.mark.parametrize("case", SHUT_IN, ids=name)
async def test_workers_with_users_of_their_own(zoo_of_others: Any, case: Case) -> None:
    await of_a_job(zoo_of_others, case)


@pytest.mark.parametrize("where", ["memfd", "shm", "sysv"])
async def test_memory_that_nobody_has_mapped_counts(zoo_of_others: Any, where: str) -> None:
    job_input = {"where": where, "size": 160 * MIB, "wait": True}
    case = dies(
        "leaving_behind/keeps_in_memory.py",
        "out of memory (limit 96 MiB)",
        job_input=job_input,
        limits=LITTLE,
    )
    await of_a_job(zoo_of_others, case)


async def test_what_a_user_leaves_where_others_write_goes_with_its_worker(zoo_of_others: Any) -> None:
    zoo = zoo_of_others
    spec = await zoo.cage(Case("leaving_behind/keeps_in_memory.py", "completed"))
    await zoo.reported(spec)
    left = await zoo.output(spec, {"where": "everywhere", "size": MIB})
    assert os.path.exists(f"/dev/shm/{left['name']}/deep/file")
    assert left_of(left["uid"]) == ["msg", "sem", "shm"]
    await zoo.free(spec)
    for folder in ("/dev/shm", "/tmp", "/var/tmp"):
        assert not os.path.exists(f"{folder}/{left['name']}")
    assert left_of(left["uid"]) == []


def left_of(uid: int) -> list[str]:
    """Of which kinds of SysV there is something of this user's."""
    kinds = []
    for kind in ("msg", "sem", "shm"):
        names, *rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
        place = names.split().index("cuid")
        if any(row.split()[place] == str(uid) for row in rows):
            kinds.append(kind)
    return kinds


async def test_what_cannot_be_put_back_replaces_the_worker(zoo_of_others: Any) -> None:
    zoo = zoo_of_others
    spec = await zoo.cage(Case("leaving_behind/leaves_settings.py", "completed"))
    await zoo.reported(spec)
    before, pid = await zoo.output(spec, "look"), await zoo.output(spec, "pid")
    assert await zoo.output(spec, "change for good") == "changed"
    await zoo.lives_again(spec)
    after = await zoo.output(spec, "look")
    assert {**after, "folder": ""} == {**before, "folder": ""}, "its home is another"
    assert await zoo.output(spec, "pid") != pid
    reasons = [news.reason for news in zoo.control.news(spec.worker)]
    assert "a job lowered RLIMIT_NOFILE, which cannot be raised again" in reasons
    await zoo.free(spec)


async def test_another_user_writes_into_no_folder_of_the_agents_or_of_a_neighbour(zoo_of_others: Any) -> None:
    zoo = zoo_of_others
    spec = await zoo.cage(Case("files/writes_outside.py", "completed"))
    await zoo.reported(spec)
    homes, scratch = zoo.folder / "agent" / "homes", zoo.folder / "scratch"
    neighbours = [home for home in homes.iterdir() if not home.name.startswith(f"{spec.worker}.")]
    assert neighbours, "the good one's"
    tries = [
        str(folder) for folder in ("/etc", zoo.folder, zoo.folder / "agent", homes, scratch, *neighbours)
    ]
    output = await zoo.output(spec, {"others": str(zoo.folder), "tries": tries})
    assert output["written"] == []
    await zoo.next_job()
    await zoo.free(spec)
    zoo.nothing_is_left()
