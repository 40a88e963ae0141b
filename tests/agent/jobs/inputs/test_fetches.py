"""Stories of handlers that have URLs fetched, in virtual time: frames in, one answer out, nothing left."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from stoker.agent.interfaces import FetchedInput, InputRefused
from stoker.agent.jobs.inputs.fetches import AT_ONCE
from stoker.worker.frames import Frame

LONG = b'{"run_s": 60, "output": 1}'


class Inputs:
    """`answers` by URL: bytes, a refusal, or None for never. `open`: the descriptors that were handed out."""

    def __init__(self):
        self.answers = {}
        self.wishes = []
        self.ended = []
        self.open = []

    async def fetch(self, wish):
        self.wishes.append(wish)
        try:
            answer = self.answers.get(wish.url)
            if answer is None:
                await asyncio.Event().wait()
            if isinstance(answer, Exception):
                raise answer
            fd = os.memfd_create("input", os.MFD_CLOEXEC)
            os.write(fd, answer)
            self.open.append(fd)
            return FetchedInput(fd, len(answer), "digest")
        finally:
            self.ended.append(wish.url)


def fetch(n, url="http://a.test/x", job="j1", **fields):
    wish = {"n": n, "url": url, "max_bytes": 10, "timeout_s": 5.0, **fields}
    return Frame("fetch", {"job": job, "attempt": 1, **wish})


def answers(host):
    kinds = ("fetched", "fetch_failed")
    found = [frame for frame in host.spawner.spawned[0].sent if frame.kind in kinds]
    return sorted(found, key=lambda frame: frame.fields["n"])


@pytest.fixture
def inputs():
    return Inputs()


@pytest.fixture
def play_with(play, inputs):
    """As `play`, with an agent that has `inputs`."""

    def run(story):
        async def whole(host):
            host.agent.attempts._updates._inputs = inputs
            await story(host)

        play(whole)
        for fd in inputs.open:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(fd)

    return run


async def running(host, a_worker, a_job, **fields):
    await host.control.ready(a_worker())
    await host.control.assign(a_job("j1", LONG, **fields))
    await host.holds_work()
    await host.until(lambda: any(frame.kind == "run" for frame in host.spawner.of("w1").sent))
    return host.spawner.of("w1")


@pytest.mark.parametrize("private", [False, True])
def test_a_fetch_is_answered_with_a_descriptor(play_with, inputs, a_worker, a_job, private):
    inputs.answers["http://a.test/x"] = b"hello"

    async def story(host):
        process = await running(host, a_worker, a_job, private_inputs=private)
        process.emit(fetch(7))
        await host.until(lambda: answers(host))
        [answer] = answers(host)
        assert answer.kind == "fetched"
        assert answer.fields == {"job": "j1", "attempt": 1, "n": 7, "size": 5, "sha256": "digest"}
        assert answer.fd is not None
        [wish] = inputs.wishes
        assert (wish.url, wish.max_bytes, wish.timeout_s, wish.private) == (
            "http://a.test/x",
            10,
            5.0,
            private,
        )

    play_with(story)


def test_the_platforms_own_bucket_may_lie_at_a_private_address(play_with, inputs, a_worker, a_job):
    ours, others = "http://public/bucket/e1/given/x/0-a.wav?signed", "http://public/bucket-of-others/a.wav"
    inputs.answers |= {ours: b"mine", others: b"theirs"}

    async def story(host):
        process = await running(host, a_worker, a_job)
        process.emit(fetch(0, ours))
        process.emit(fetch(1, others))
        await host.until(lambda: len(answers(host)) == 2)
        assert {wish.url: wish.private for wish in inputs.wishes} == {ours: True, others: False}

    play_with(story)


def test_a_refusal_is_reported_with_its_reason(play_with, inputs, a_worker, a_job):
    inputs.answers["http://a.test/x"] = InputRefused("not_found", "http://a.test/x answered 404")
    inputs.answers["http://a.test/y"] = RuntimeError("a bug")

    async def story(host):
        process = await running(host, a_worker, a_job)
        process.emit(fetch(0))
        process.emit(fetch(1, "http://a.test/y"))
        await host.until(lambda: len(answers(host)) == 2)
        first, second = (answer.fields for answer in answers(host))
        assert (first["reason"], first["error"]) == ("not_found", "http://a.test/x answered 404")
        assert first["retryable"] is False
        assert (second["n"], second["reason"]) == (1, "unreachable")
        assert host.agent.attempts.held(), "the job goes on: what to make of it is the handler's"

    play_with(story)


def test_an_input_for_which_no_descriptor_is_left_may_be_fetched_again(
    play_with, inputs, a_worker, a_job, monkeypatch
):
    """The handler hears it, and the agent goes on."""
    inputs.answers["http://a.test/x"] = b"hello"
    inputs.answers["http://a.test/y"] = OSError(errno.EMFILE, "Too many open files")

    async def story(host):
        process = await running(host, a_worker, a_job)
        send = process.send

        def fails(frame):
            if frame.kind == "fetched":
                raise OSError(errno.EMFILE, "Too many open files")
            send(frame)

        monkeypatch.setattr(process, "send", fails)
        process.emit(fetch(0))
        process.emit(fetch(1, "http://a.test/y"))
        await host.until(lambda: len(answers(host)) == 2)
        for answer in answers(host):
            assert (answer.kind, answer.fields["reason"], answer.fields["retryable"]) == (
                "fetch_failed",
                "no_room",
                True,
            )
            assert answer.fields["error"] == (
                "the input cannot be passed on by this node: Too many open files"
            )
        monkeypatch.setattr(process, "send", send)
        process.emit(fetch(2))
        await host.until(lambda: len(answers(host)) == 3)
        assert answers(host)[2].kind == "fetched"
        assert len(host.control.hellos) == 1

    play_with(story)


@pytest.mark.parametrize("end", ["cancel", "death", "timeout", "stop"])
def test_the_end_of_a_job_ends_its_fetches(play_with, inputs, a_worker, a_job, end):
    async def story(host):
        process = await running(host, a_worker, a_job, execution_timeout_ms=3000)
        process.emit(fetch(0))
        await host.until(lambda: inputs.wishes)
        assert inputs.ended == []
        if end == "cancel":
            await host.control.cancel("j1")
        elif end == "death":
            process.exit(-11)
        elif end == "stop":
            host.agent.stop()
        await host.until(lambda: inputs.ended)
        assert answers(host) == [], "nobody waits for it"

    play_with(story)


def test_one_job_has_no_end_of_fetches_at_once(play_with, inputs, a_worker, a_job):
    async def story(host):
        process = await running(host, a_worker, a_job)
        for n in range(AT_ONCE + 1):
            process.emit(fetch(n))
        await host.until(lambda: answers(host))
        [answer] = answers(host)
        assert (answer.fields["n"], answer.fields["reason"]) == (AT_ONCE, "too_many")
        assert len(inputs.wishes) == AT_ONCE

    play_with(story)


def test_who_asks_after_the_end_is_answered_at_once(play_with, inputs, a_worker, a_job):
    """A handler that holds out against its cancel."""

    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 60, "ignore_cancel": true}'))
        await host.holds_work()
        process = host.spawner.of("w1")
        await host.control.cancel("j1")
        await host.until(lambda: any(frame.kind == "cancel" for frame in process.sent))
        process.emit(fetch(0))
        await host.until(lambda: len(answers(host)) == 1)
        assert [answer.fields["reason"] for answer in answers(host)] == ["over"]
        assert inputs.wishes == []

    play_with(story)


@pytest.mark.parametrize(
    "wrong",
    [{"n": -1}, {"n": "0"}, {"url": 5}, {"max_bytes": "10"}, {"max_bytes": -1}, {"timeout_s": 0},
     {"timeout_s": float("nan")}, {"timeout_s": None}, {"timeout_s": float("inf")}],
)  # fmt: skip
def test_a_fetch_that_is_none_ends_the_worker(play_with, inputs, a_worker, a_job, wrong):
    async def story(host):
        process = await running(host, a_worker, a_job)
        process.emit(fetch(**{"n": 0, **wrong}))
        await host.until(lambda: process.signals)
        assert process.signals == ["KILL"]
        assert inputs.wishes == []

    play_with(story)


def test_an_agent_without_inputs_refuses_them(play, a_worker, a_job):
    async def story(host):
        process = await running(host, a_worker, a_job)
        process.emit(fetch(0))
        await host.until(lambda: answers(host))
        assert "fetches no inputs" in answers(host)[0].fields["error"]

    play(story)
