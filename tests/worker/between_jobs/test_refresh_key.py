"""The key by which an output asks for a fresh worker."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.worker.between_jobs import refresh_key
from tests.mutants import mutant


def marks_of_outputs(m: Any) -> None:
    assert m.without_refresh_key({"refresh_worker": True, "y": 2}) == ({"y": 2}, True)
    assert m.without_refresh_key({"refresh_worker": False, "y": 2}) == ({"y": 2}, False)
    for output in ({"refresh_worker": "weekly"}, {"y": 2}, [True], "refresh_worker", None):
        assert m.without_refresh_key(output) == (output, False)
    job_input = {"refresh_worker": True}
    assert m.without_refresh_key(job_input) == ({}, True)
    assert job_input == {"refresh_worker": True}, "the handler's own object stays"


def test_the_key_is_read_and_taken_away() -> None:
    marks_of_outputs(refresh_key)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if key != REFRESH_KEY}", "}"),
        ("or not isinstance(output.get(REFRESH_KEY), bool)", "or REFRESH_KEY not in output"),
    ],
    ids=["its mark stays", "any mark counts"],
)
def test_a_mutant_is_noticed(old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        marks_of_outputs(mutant(refresh_key, old, new))
