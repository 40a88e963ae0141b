"""The chunks that a save covers come back to the handler of the next attempt, lazily and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from stoker.worker import HandlerError, Job, KeptUnavailable
from stoker.worker.errors import Cancelled
from stoker.worker.frames import Frame, kept_page
from stoker.worker.job.attempt import Attempt
from stoker.worker.testing import LocalJob

VALUES = [{"n": 0, "text": "zwölf\n"}, [1, 2], "three", None, 5]


def emits(job: Job) -> list[Any]:
    """Emits all values, saves after each, and returns those that are kept from before."""
    kept = list(job.kept)
    assert len(job.kept) == len(kept) == len(list(job.kept)), "they can be read again"
    for value in VALUES[len(kept) :]:
        job.emit(value)
        job.save(b"state")
    return kept


def test_the_next_attempt_reads_what_the_save_covers() -> None:
    first = LocalJob(emits).run()
    assert first.output == []
    for n, save in enumerate(first.saves, 1):
        second = LocalJob(emits, saved=save).run()
        assert (second.output, second.chunks) == (VALUES[:n], VALUES[n:])
        for third in second.saves:
            assert LocalJob(emits, saved=third).run().output == VALUES[: third.upto]


def test_a_save_that_covers_less_gives_back_less() -> None:
    def behind(job: Job) -> None:
        for value in VALUES:
            job.emit(value)
        job.save(b"", upto=3)

    (save,) = LocalJob(behind).run().saves
    assert LocalJob(lambda job: list(job.kept), saved=save).run().output == VALUES[:3]


def test_an_asynchronous_handler_reads_them_with_async_for() -> None:
    async def reads(job: Job) -> AsyncIterator[Any]:
        with pytest.raises(HandlerError, match="write `async for` here"):
            list(job.kept)
        yield [value async for value in job.kept]

    save = LocalJob(emits).run().saves[-1]
    assert LocalJob(reads, saved=save).run().chunks == [VALUES]


def test_where_they_cannot_be_had_a_handler_may_begin_again() -> None:
    def careful(job: Job) -> Any:
        assert len(job.kept) == 5, "so many have been emitted"
        try:
            return list(job.kept)
        except KeptUnavailable as error:
            return str(error)

    save = replace(LocalJob(emits).run().saves[-1], kept=None)
    why = (
        "the kept chunks cannot be had: this run has the job's save alone, and not the chunks that the save"
        " covers; a replay on a node (`stoker replay JOB --on NODE`) has them"
    )
    assert LocalJob(careful, saved=save).run().output == why
    job = LocalJob(emits, saved=save).run()
    assert (job.error, job.retryable) == (why, False)


def test_a_job_whose_chunks_were_dropped_by_its_test_has_none_to_give() -> None:
    def forgets(job: Job) -> None:
        job.emit(1)
        job.save(b"")

    local = LocalJob(forgets, on_chunk=lambda _: local.chunks.clear())
    (save,) = local.run().saves
    assert (save.upto, save.kept) == (1, None)


# ---- the frames ------------------------------------------------------------------------------------


class Asked:
    """A link that answers nothing by itself."""

    receives_in_background = False

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.answers: list[Frame] = []

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)

    def poll(self) -> None:
        pass

    def wait(self, done: Any) -> None:
        while not done():
            self.attempt.answered(self.answers.pop(0))

    def goes_on(self, upto: int) -> Job:
        saved = {"input": 4, "upto": upto, "kept": True}
        run = Frame("run", {"job": "j", "attempt": 2, "scratch": "/s", "more": {"saved": saved}}, b"null{}\n")
        self.attempt = Attempt(run, self)
        return Job(self.attempt, None)


def test_an_agent_of_an_earlier_version_is_asked_for_none() -> None:
    link = Asked()
    kept = link.goes_on(1).kept
    link.attempt.gives_kept = False
    with pytest.raises(KeptUnavailable, match="this node, or its control, is of an earlier version"):
        list(kept)
    assert link.sent == []


def test_nothing_is_sent_before_a_value_is_wanted_and_then_page_by_page() -> None:
    link = Asked()
    kept = link.goes_on(3).kept
    assert (len(kept), link.sent) == (3, [])
    about = {"job": "j", "attempt": 2}
    link.answers = [kept_page({**about, "n": 0}, [b"0", b"[1]"]), kept_page({**about, "n": 1}, [b'"two"'])]
    values = iter(kept)
    assert [next(values), next(values)] == [0, [1]]
    assert [(frame.kind, frame.fields["first"]) for frame in link.sent] == [("kept", 0)]
    assert list(values) == ["two"]
    assert [frame.fields["first"] for frame in link.sent] == [0, 2]


def test_a_handler_that_is_not_asynchronous_has_no_async_for() -> None:
    async def reads() -> Any:
        return [value async for value in Asked().goes_on(1).kept]

    with pytest.raises(HandlerError, match="write `for value in"):
        asyncio.run(reads())


def test_a_refusal_says_why_and_whether_to_try_again() -> None:
    link = Asked()
    kept = link.goes_on(1).kept
    about = {"job": "j", "attempt": 2, "n": 0, "reason": "refused", "retryable": True}
    link.answers = [Frame("fetch_failed", {**about, "error": "the object store has no such object"})]
    with pytest.raises(KeptUnavailable) as raised:
        list(kept)
    assert str(raised.value) == "the kept chunks cannot be had: the object store has no such object"
    assert raised.value.retryable


def test_a_cancel_ends_the_reading() -> None:
    link = Asked()
    job = link.goes_on(1)
    link.wait = lambda done: link.attempt.cancel("by its caller")  # type: ignore[method-assign]
    with pytest.raises(Cancelled, match="by its caller"):
        list(job.kept)
