"""The processes that this one has started and that still are: a test compares them before and after."""

from __future__ import annotations

import os

from stoker.agent.process_tree import process_table


def children() -> set[int]:
    """Servers that other tests keep for the session are among them."""
    return {pid for pid, seen in process_table().items() if seen.parent == os.getpid()}
