"""How many functions and files a reader has to follow to know what becomes of one job."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import hops

TRIES = 3
"""On a busy machine a request outlasts timers (of an acknowledgement) and enters their functions."""


def test_one_job_enters_no_more_functions_and_files_than_the_limit(tmp_path: Path) -> None:
    """Where this fails, `python bench/hops.py --list` names them in order: leave out what only passes on."""
    tries = (_count(tmp_path / str(n)) for n in range(TRIES))
    assert any(hops.within_limit(entered) for entered in tries)


def _count(folder: Path) -> dict[str, list[hops.Function]]:
    folder.mkdir()
    entered = hops.count(folder, hops.ROOT, requests=5)
    assert all(entered[role] for role in hops.ROLES)
    return entered


def test_what_passes_the_limit_is_found() -> None:
    few = [("a.py", f"f{n}") for n in range(hops.FUNCTIONS)]
    many = [(f"{n}.py", "f") for n in range(hops.FILES + 1)]
    assert hops.within_limit({"control": few, "agent": few[:1], "workers": []})
    assert not hops.within_limit({"control": few, "agent": [], "workers": [("a.py", "g")]})
    assert not hops.within_limit({"control": many, "agent": [], "workers": []})
