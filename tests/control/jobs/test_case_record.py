"""The record of a case: what is in it, and that nothing secret is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.control.jobs.case_record import Payloads, case_record, why_no_case, without_secrets
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import EndpointVersion, JobView
from stoker.control.store.jobs.cases import StoredCase

URL = "https://user:s3cr3t@files.example/a.png?X-Amz-Signature=s3cr3t#s3cr3t"
NOTED: dict[str, Any] = {
    "python": "3.12.3",
    "environment": ["TOKEN"],
    "files": [{"url": "https://files.example/a.png", "size": 1, "sha256": "00"}],
    "raised": {"type": "builtins.KeyError"},
    "unknown": "s3cr3t",
}


def view(state: JobState = JobState.FAILED) -> JobView:
    return JobView(
        id="job-1",
        endpoint="echo",
        state=state,
        created_at=10.0,
        sync=False,
        attempt=2,
        error=f"KeyError: {URL}",
    )


def stored(noted: bytes, **fields: Any) -> StoredCase:
    values: dict[str, Any] = {
        "attempt": 2,
        "worker": "w1",
        "node": "n1",
        "version": 3,
        "run": EndpointVersion("caption.py:handler", env={"TOKEN": "s3cr3t"}),
        "facts": {"devices": [{"name": "NVIDIA H200"}], "node": {"cuda": "12.8"}},
        "noted": noted,
        "input": None,
        "input_ref": None,
        "timeout_ms": 600_000,
        "progress": json.dumps({"url": URL}).encode(),
        "saved_upto": 1,
        "saved": b"state",
        "saved_ref": None,
        "stream": 2,
    }
    return StoredCase(**values | fields)


def test_no_secret_is_in_it() -> None:
    payloads = Payloads(json.dumps({"image": URL, "text": f"see {URL}, or [{URL}]"}).encode(), b"state")
    found = case_record(view(), stored(json.dumps(NOTED).encode()), payloads)
    assert "s3cr3t" not in json.dumps(found)
    assert found["input"]["image"] == "https://files.example/a.png"
    assert (found["handler"], found["declaredEnvironment"]) == ("caption.py:handler", ["TOKEN"])
    assert (found["node"], found["files"]) == ({"name": "n1", "cuda": "12.8"}, NOTED["files"])
    assert found["saved"]["body"] == "c3RhdGU="


@given(st.integers())
@example(2**70)
def test_numbers_of_any_size_stay(number: int) -> None:
    text = json.dumps({"n": number}).encode()
    found = case_record(view(), stored(b"", progress=text), Payloads(text, None))
    assert (found["input"], found["progress"]) == ({"n": number}, {"n": number})


@pytest.mark.parametrize("noted", [b"", b"[]", b"null", b"{}"])
def test_a_worker_that_noted_nothing_leaves_the_rest(noted: bytes) -> None:
    found = case_record(view(), stored(noted, saved_upto=None, run=None), Payloads(b'{"x":1}', None))
    assert found["input"] == {"x": 1}
    assert not {"raised", "saved", "handler"} & found.keys()


@given(st.text(alphabet=st.characters(exclude_characters="?#@"), max_size=80))
def test_text_without_a_query_a_fragment_or_a_user_stays(text: str) -> None:
    assert without_secrets({"a": [text, 1, None]}) == {"a": [text, 1, None]}


@given(
    st.recursive(
        st.just(URL) | st.integers(), lambda below: st.lists(below) | st.dictionaries(st.just("a"), below)
    )
)
def test_a_signature_is_found_however_deep(value: Any) -> None:
    assert "s3cr3t" not in json.dumps(without_secrets(value))


def test_a_password_of_any_scheme_is_left_out() -> None:
    assert without_secrets("postgresql+psycopg://me:s3cr3t@db/x?y=1") == "postgresql+psycopg://db/x"


def test_each_missing_case_has_its_reason() -> None:
    assert "is CANCELLED" in why_no_case(view(JobState.CANCELLED), keeps=True)
    completed = why_no_case(view(JobState.COMPLETED), keeps=False)
    assert completed.endswith("set its keepCases to true; jobs that have completed have one then")
    assert "set its keepCases to true; jobs that fail from then on" in why_no_case(view(), keeps=False)
    assert "failed before its endpoint kept cases" in why_no_case(view(), keeps=True)
