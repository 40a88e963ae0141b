"""Facts of a worker for the case of its job: the last ones go with an outcome that is not a success."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from stoker.wire.messages import CASE_MAX

FACTS = {"python": "3.12.3"}


def case_of(play, a_worker, a_job, *, asked=True, **script):
    found = []

    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(replace(a_job("j1", json.dumps(script).encode()), keeps_case=asked))
        found.append((await host.control.outcome("j1")).case)

    play(story)
    return found[0]


@pytest.mark.parametrize("end", [{"error": "no such voice"}, {"exit": -9, "run_s": 1}])
def test_they_go_with_the_end_of_a_job_that_fails(play, a_worker, a_job, end):
    assert json.loads(case_of(play, a_worker, a_job, case=FACTS, **end)) == FACTS


def test_a_success_needs_none(play, a_worker, a_job):
    assert case_of(play, a_worker, a_job, case=FACTS, output={}) == b""


def test_what_nobody_asked_for_or_is_too_large_is_dropped(play, a_worker, a_job):
    assert case_of(play, a_worker, a_job, asked=False, case=FACTS, error="no") == b""
    assert case_of(play, a_worker, a_job, case="x" * CASE_MAX, error="no") == b""
