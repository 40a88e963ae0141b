"""How many functions and files a reader has to follow to know what becomes of one job."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import hops

TRIES = 3
"""On a busy machine a request outlasts timers (of an acknowledgement) and enters their functions."""


@pytest.mark.slow
def test_one_job_enters_no_more_functions_and_files_than_the_limit(tmp_path: Path) -> None:
    """Where this fails, `python bench/hops.py --list` names them in order: leave out what only passes on."""
    over = set(hops.WAYS)
    for n in range(TRIES):
        if over:
            found = _count(tmp_path / str(n))
            over -= {name for name, entered in found.items() if hops.within_limit(hops.WAYS[name], entered)}
    assert not over


def _count(folder: Path) -> dict[str, hops.Entered]:
    folder.mkdir()
    found = hops.count(folder, hops.ROOT, requests=5)
    assert all(entered[role] for entered in found.values() for role in hops.ROLES)
    return found


def test_what_passes_the_limit_by_over_five_per_cent_is_found() -> None:
    way = hops.Way(hops.runsync, functions=100, files=20)
    few = [("a.py", f"f{n}") for n in range(105)]
    many = [(f"{n}.py", "f") for n in range(22)]
    assert hops.within_limit(way, {"control": few, "agent": few[:1], "workers": []})
    assert not hops.within_limit(way, {"control": few, "agent": [], "workers": [("a.py", "g")]})
    assert hops.within_limit(way, {"control": many[:21], "agent": [], "workers": []})
    assert not hops.within_limit(way, {"control": many, "agent": [], "workers": []})
