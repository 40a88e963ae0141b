"""Waiting for a job: whoever hung up a bell hears it, and nothing is left on the hook."""

import asyncio

from stoker.control.bells import Bells
from stoker.control.types import JobState, JobView

DONE = JobView("j", "e", JobState.COMPLETED, 0.0)


async def test_every_waiter_of_an_end_gets_the_view() -> None:
    bells = Bells()
    with bells.end_of("j") as first, bells.end_of("j") as second, bells.changes_of("j") as changed:
        assert bells.waits_for_end("j")
        bells.ended(DONE)
        assert await first == await second == DONE
        assert changed.is_set()
    assert not bells.waits_for_end("j")


async def test_another_jobs_end_rings_nothing() -> None:
    bells = Bells()
    with bells.end_of("other") as other:
        bells.ended(DONE)
        assert not other.done()


async def test_a_waiter_that_gave_up_is_forgotten() -> None:
    bells = Bells()
    try:
        with bells.end_of("j") as future:
            async with asyncio.timeout(0):
                await future
    except TimeoutError:
        pass
    bells.ended(DONE)
    assert not bells.waits_for_end("j")
