"""A worker is told after how many reports it stops its attempt, where control says so."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stoker.agent.jobs.attempts.running_attempt import RunningAttempt


@pytest.mark.parametrize(("stop_after", "told"), [(0, None), (3, 3)])
def test_the_run_has_the_number(monkeypatch, play, a_worker, a_job, stop_after, told):
    runs = []
    real = RunningAttempt.run_frame

    def run_frame(self, **options):
        runs.append(real(self, **options))
        return runs[-1]

    monkeypatch.setattr(RunningAttempt, "run_frame", run_frame)

    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(replace(a_job("j1", b"{}"), stop_after=stop_after))
        await host.control.outcome("j1")

    play(story)
    assert runs[0].fields.get("more", {}).get("stop_after") == told
