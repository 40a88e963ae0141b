"""A handler saves, and a later attempt goes on from there: its chunks and metrics are counted on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from stoker import worker
from stoker.worker import File, HandlerError, Job
from stoker.worker.frames import SAVE_INLINE_MAX, SAVE_MAX, Frame, waits_for_took
from stoker.worker.job import attempt, saves
from stoker.worker.testing import LocalJob


def counts(job: Job) -> Any:
    """Counts to the end, and dies once on its way."""
    begins = 0 if job.saved is None else json.loads(job.saved)["next"]
    for n in range(begins, job.input["count"]):
        if n == job.input["dies_at"] and job.saved is None:
            raise RuntimeError("the worker dies here")
        job.emit(n)
        job.measure("numbers", 1)
        job.save(json.dumps({"next": n + 1}).encode())
    return begins


def test_a_later_attempt_goes_on_where_it_was() -> None:
    first = LocalJob(counts, {"count": 5, "dies_at": 3}).run()
    assert first.chunks == [0, 1, 2]
    assert [save.upto for save in first.saves] == [1, 2, 3]
    assert [json.loads(save.state) for save in first.saves] == [{"next": 1}, {"next": 2}, {"next": 3}]
    second = LocalJob(counts, {"count": 5, "dies_at": 3}, saved=first.saves[-1]).run()
    assert (second.chunks, second.output) == ([3, 4], 3)
    assert second.metrics == {"numbers": 5}, "what was measured before counts, too"
    assert [save.upto for save in second.saves] == [4, 5]


def test_a_first_attempt_has_nothing_saved() -> None:
    assert LocalJob(lambda job: job.saved).run().output is None


def test_a_generator_saves_and_goes_on() -> None:
    def words(job: Job) -> Iterator[str]:
        for n in range(int(job.saved or b"0"), 3):
            yield f"word {n}"
            job.save(str(n + 1).encode())

    whole = LocalJob(words).run()
    assert whole.chunks == ["word 0", "word 1", "word 2"]
    assert LocalJob(words, saved=whole.saves[0]).run().chunks == ["word 1", "word 2"]


def test_an_asynchronous_handler_saves() -> None:
    async def words(job: Job) -> AsyncIterator[int]:
        for n in range(int(job.saved or b"0"), 3):
            yield n
            job.save(b"%d" % (n + 1))

    whole = LocalJob(words).run()
    assert LocalJob(words, saved=whole.saves[1]).run().chunks == [2]


def test_a_file_is_saved_by_its_bytes() -> None:
    def writes(job: Job) -> None:
        (job.scratch / "latents").write_bytes(b"\x00\xff\n" * 3)
        job.save(File(job.scratch / "latents"))

    (save,) = LocalJob(writes).run().saves
    assert save.state == b"\x00\xff\n" * 3
    assert LocalJob(lambda job: len(job.saved), saved=save).run().output == 9


def test_upto_says_how_many_chunks_are_kept() -> None:
    def behind(job: Job) -> None:
        for n in range(3):
            job.emit(n)
        job.save(b"", upto=2)

    (save,) = LocalJob(behind).run().saves
    assert save.upto == 2


@pytest.mark.parametrize("upto", [-1, 0, 4, True, "2"])
def test_upto_lies_between_the_last_save_and_the_chunks_so_far(upto: Any) -> None:
    def wrong(job: Job) -> None:
        job.emit(0)
        job.save(b"")
        job.emit(1)
        job.emit(2)
        job.save(b"", upto=upto)

    error = LocalJob(wrong).run().error
    assert error == (f"upto must be from 1, what the last save covers, to 3, the chunks so far; not {upto!r}")


def test_what_is_not_bytes_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        HandlerError, match=r"job.save takes bytes or a File, not dict: write a value as json"
    ):
        _ = LocalJob(lambda job: job.save({"step": 3})).run().output  # type: ignore[arg-type]


def test_a_save_that_is_too_large_is_refused() -> None:
    with pytest.raises(HandlerError, match=f"a save of {SAVE_MAX + 1} bytes is over the limit of {SAVE_MAX}"):
        _ = LocalJob(lambda job: job.save(bytes(SAVE_MAX + 1))).run().output
    assert LocalJob(lambda job: job.save(bytes(SAVE_MAX))).run().error is None


def test_a_handler_whose_output_is_all_its_chunks_cannot_save() -> None:
    @worker.handler(aggregate=True)
    def words(job: Job) -> Iterator[int]:
        yield 1
        job.save(b"")

    with pytest.raises(HandlerError, match="a handler with aggregate=True cannot save"):
        _ = LocalJob(words).run().output


def test_the_sender_of_a_large_save_waits_for_room() -> None:
    assert not waits_for_took(Frame("save", {}, bytes(SAVE_INLINE_MAX)))
    assert waits_for_took(Frame("save", {}, bytes(SAVE_INLINE_MAX + 1)))


def test_a_job_that_is_asked_to_yield_ends_with_its_next_save() -> None:
    cleaned = []

    def steps(job: Job) -> int:
        begins = int(job.saved or b"0")
        try:
            for n in range(begins, 4):
                job.emit(n)
                job.save(b"%d" % (n + 1))
        except Exception as error:  # as handlers do; it must not keep the job here
            return repr(error)  # type: ignore[return-value]
        finally:
            cleaned.append(begins)
        return begins

    first = LocalJob(steps, on_chunk=lambda n: first.ask_to_yield("the host leaves") if n == 1 else None)
    first.run()
    assert (first.yielded, first.retryable, first.error) == (True, True, "yielded: the host leaves")
    assert (first.chunks, [save.state for save in first.saves]) == ([0, 1], [b"1", b"2"])
    second = LocalJob(steps, saved=first.saves[-1]).run()
    assert (second.yielded, second.chunks, second.output, cleaned) == (False, [2, 3], 2, [0, 2])


def test_a_job_that_never_saves_runs_on() -> None:
    job = LocalJob(lambda job: job.asked_to_yield)
    job.ask_to_yield()
    assert (job.run().output, job.yielded) == (True, False)


def test_generators_and_asynchronous_handlers_yield_at_a_save() -> None:
    def numbers(job: Job) -> Iterator[int]:
        for n in range(3):
            yield n
            job.save(b"")

    async def in_a_group(job: Job) -> AsyncIterator[int]:
        async def saves() -> None:
            job.save(b"")

        yield 0
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(saves())
            tasks.create_task(asyncio.Event().wait())
        yield 1

    for handler in (numbers, in_a_group):
        job = LocalJob(handler)
        job.ask_to_yield()
        assert (job.run().yielded, job.chunks, len(job.saves)) == (True, [0], 1)


def test_what_else_fails_beside_a_yield_is_a_failure() -> None:
    async def handler(job: Job) -> None:
        async def fails() -> None:
            raise ValueError("on purpose")

        async def saves() -> None:
            job.save(b"")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(saves())
            tasks.create_task(fails())

    job = LocalJob(handler)
    job.ask_to_yield()
    assert (job.run().yielded, "on purpose" in str(job.error)) == (False, True)


def test_a_save_covers_no_chunk_that_would_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of chunks over 64 MiB, which are smaller here."""
    monkeypatch.setattr(attempt, "BODY_MAX", 100)
    monkeypatch.setattr(saves, "BODY_MAX", 100)

    def handler(job: Job) -> None:
        job.emit("small")
        job.save(b"1")
        job.emit("x" * 200)
        job.save(b"2", upto=1)
        job.save(b"3")

    found = LocalJob(handler).run()
    assert [save.upto for save in found.saves] == [1, 1]
    assert found.error == (
        "a save cannot cover chunk 1, which has 202 bytes: only chunks of up to 100 bytes come back in the"
        " next attempt (`job.kept`); emit several smaller ones"
    )
