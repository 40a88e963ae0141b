"""What handlers do, where each worker has a user of its own.

A module of its own: its agent's processes are children of this one, as those of the other agent are, and
nobody may take the one's for what the other has left.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from zoo_cases import Case, completes, dies, name, of_a_job

from stoker.wire.messages import WorkerLimits

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(100)]

SHUT_IN = [
    Case("fork_bomb.py", "completed", "", lives=True, limits=WorkerLimits(pids=64)),
    completes("leaks_descriptors.py", limits=WorkerLimits(files=64)),
    completes("leaves_daemons.py"),
    completes("locks_its_scratch.py"),
    dies("kills_its_group.py", "killed"),
]


@pytest.mark.parametrize("case", SHUT_IN, ids=name)
async def test_workers_with_users_of_their_own(zoo_of_others: Any, case: Case) -> None:
    await of_a_job(zoo_of_others, case)


async def test_another_user_writes_into_no_folder_of_the_agents_or_of_a_neighbour(zoo_of_others: Any) -> None:
    zoo = zoo_of_others
    spec = await zoo.cage(Case("writes_outside.py", "completed"))
    await zoo.told(spec)
    homes, scratch = zoo.folder / "agent" / "homes", zoo.folder / "scratch"
    neighbours = [home for home in homes.iterdir() if not home.name.startswith(f"{spec.worker}.")]
    assert neighbours, "the good one's"
    tries = [
        str(folder) for folder in ("/etc", zoo.folder, zoo.folder / "agent", homes, scratch, *neighbours)
    ]
    told = await zoo.output(spec, {"others": str(zoo.folder), "tries": tries})
    assert told["written"] == []
    await zoo.next_job()
    await zoo.free(spec)
    zoo.nothing_is_left()
