"""The processes that this one has started and that still are: a test compares them before and after. And the
cgroups that an agent has made."""

from __future__ import annotations

import os

from stoker.agent.host.process_tree.tree import process_table


def children() -> set[int]:
    """Servers that other tests keep for the session are among them."""
    return {pid for pid, seen in process_table().items() if seen.parent == os.getpid()}


def cgroups_of(agent: int) -> list[str]:
    """Those that still are. Others' come and go meanwhile, which a glob would trip over."""
    names = {name for _, folders, _ in os.walk("/sys/fs/cgroup") for name in folders}
    return [name for name in names if name.startswith("stoker-") and f"-{agent}." in name]
