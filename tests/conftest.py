"""What holds for every test: no hub is asked for anything, and this process adopts no orphans."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(autouse=True, scope="module")
def _no_subreaper_afterwards() -> Iterator[None]:
    """A spawner makes this process a subreaper; the next module's tests expect orphans to go elsewhere."""
    yield
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
