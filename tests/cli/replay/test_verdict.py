"""Whether a replay ended as its job did, and what differs here."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.replay.verdict import Run, differences, message_of, reported_seed, verdict

RAISED = {"type": "builtins.ValueError", "file": "caption.py", "function": "handler", "line": 7}
TRACE = "\nTraceback (most recent call last):\n  ..."
CASE: dict[str, Any] = {
    "status": "FAILED",
    "error": f"ValueError: no /scratch/1/a.png{TRACE}",
    "scratch": "/scratch/1",
    "raised": RAISED,
    "source": {"caption.py": "a" * 64},
    "python": "3.12.3",
    "libraries": {"torch": "2.7.0"},
    "settings": {"STOKER_PROFILE": "fast"},
    "devices": [{"kind": "gpu", "name": "NVIDIA H200"}],
    "declaredEnvironment": ["HF_TOKEN"],
}
FACTS: dict[str, Any] = {
    "scratch": "/tmp/stoker-9f",
    "raised": RAISED,
    "source": {"caption.py": "a" * 64},
    "python": "3.12.3",
    "libraries": {"torch": "2.7.0"},
    "settings": {"STOKER_PROFILE": "fast"},
    "device": "NVIDIA H200",
    "environment": ["HF_TOKEN"],
}
SAME = Run("raised", f"ValueError: no /tmp/stoker-9f/a.png{TRACE}", FACTS)


def test_the_same_exception_in_another_scratch_folder_is_the_same() -> None:
    found = verdict(CASE, SAME)
    assert found.same, found.reason
    assert "builtins.ValueError at caption.py in handler, line 7" in found.reason


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"type": "builtins.KeyError"}, SAME.error, "the job raised builtins.ValueError"),
        ({}, "ValueError: another", "another message: 'ValueError: another'"),
        ({"function": "setup"}, SAME.error, "from another place: caption.py in setup"),
        ({"line": 8}, SAME.error, "from another place: caption.py in handler, line 8"),
    ],
)
def test_another_type_message_or_place_is_not(change: dict[str, Any], error: str, why: str) -> None:
    found = verdict(CASE, Run("raised", error, {**FACTS, "raised": {**RAISED, **change}}))
    assert not found.same
    assert why in found.reason


def test_a_line_moves_with_the_source() -> None:
    facts = {**FACTS, "raised": {**RAISED, "line": 9}, "source": {"caption.py": "b" * 64}}
    assert verdict(CASE, Run("raised", SAME.error, facts)).same


@pytest.mark.parametrize("ended", ["returned", "timed_out", "died"])
def test_another_end_is_not_the_same(ended: Any) -> None:
    assert not verdict(CASE, Run(ended)).same


def test_a_job_that_ran_out_of_time_or_lost_its_process_does_so_again() -> None:
    assert verdict({"status": "TIMED_OUT"}, Run("timed_out")).same
    assert verdict({"status": "FAILED", "error": "the worker died"}, Run("died")).same
    assert not verdict({"status": "TIMED_OUT"}, SAME).same


def test_what_was_stopped_as_told_is_no_failure() -> None:
    assert verdict(CASE, Run("stopped", "after report 2")).same


@given(st.text(), st.text(alphabet="0123456789abcdef", min_size=6, max_size=16), st.text("az/.", min_size=1))
def test_only_what_differs_by_itself_is_put_aside(text: str, address: str, path: str) -> None:
    said = "{text} at 0x{address} of https://host/{path}?{query}"
    one = said.format(text=text, address=address, path=path, query="sig=1")
    other = said.format(text=text, address="7f" * 4, path=path, query="sig=2#b")
    assert message_of(one, "") == message_of(other, "")
    assert message_of(one + TRACE, "") == message_of(one, "")
    assert message_of(f"x{one}", "") != message_of(other, "")


def test_nothing_differs_on_the_same_machine() -> None:
    assert list(differences(CASE, FACTS)) == []


def test_each_difference_is_named() -> None:
    facts = {"source": {}, "python": "3.11.7", "libraries": {}, "device": "CPU", "environment": []}
    assert [str(one) for one in differences(CASE, facts)] == [
        "source caption.py: aaaaaaaaaaaa there, none here",
        "python: 3.12.3 there, 3.11.7 here",
        "torch: 2.7.0 there, none here",
        "STOKER_PROFILE: fast there, none here",
        "device: NVIDIA H200 there, CPU here",
        "variable HF_TOKEN: set there, not set here",
    ]


@pytest.mark.parametrize(
    ("progress", "given_input", "seed"),
    [
        ({"seed": 7}, {"x": 1}, 7),
        ({"seed": 7}, {"seed": 1}, None),
        ({"seed": True}, {}, None),
        ({"step": 1}, {}, None),
        ([7], {}, None),
        ({"seed": 7}, [1], None),
    ],
)
def test_the_seed_that_the_job_reported_is_used_where_its_input_has_none(
    progress: Any, given_input: Any, seed: int | None
) -> None:
    assert reported_seed({"progress": progress, "input": given_input}) == seed
