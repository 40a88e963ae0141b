"""What an agent tells of its disk."""

from __future__ import annotations

import os
from pathlib import Path

from stoker.agent.host.storage.disk_facts import STEPS, disk_facts


def test_the_free_room_is_told_in_steps(tmp_path: Path) -> None:
    found, seen = disk_facts(tmp_path), os.statvfs(tmp_path)
    total = seen.f_blocks * seen.f_frsize
    assert int(found["disk_total"]) == total
    assert int(found["disk_free"]) % (total // STEPS) == 0
    assert abs(int(found["disk_free"]) - seen.f_bavail * seen.f_frsize) <= 2 * total // STEPS


def test_a_folder_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    assert disk_facts(tmp_path / "gone") == {}
