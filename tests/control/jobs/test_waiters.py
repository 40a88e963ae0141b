"""Waiting for a job: everyone who registered is woken, and nothing stays registered."""

import asyncio

from stoker.control.jobs.waiters import JobWaiters
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import JobView

DONE = JobView("j", "e", JobState.COMPLETED, 0.0)


async def test_every_waiter_of_an_end_gets_the_view() -> None:
    waiters = JobWaiters()
    with waiters.end_of("j") as first, waiters.end_of("j") as second, waiters.changes_of("j") as changed:
        assert "j" in waiters._ends
        waiters.changed("j", DONE)
        assert await first == await second == DONE
        assert changed.is_set()
    assert not waiters._ends


async def test_another_jobs_end_rings_nothing() -> None:
    waiters = JobWaiters()
    with waiters.end_of("other") as other:
        waiters.changed("j", DONE)
        assert not other.done()


async def test_a_waiter_that_gave_up_is_forgotten() -> None:
    waiters = JobWaiters()
    try:
        with waiters.end_of("j") as future:
            async with asyncio.timeout(0):
                await future
    except TimeoutError:
        pass
    waiters.changed("j", DONE)
    assert not waiters._ends
