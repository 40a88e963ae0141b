"""What followed attempts print goes to control as it is printed, on a stream of its own."""

from __future__ import annotations

import asyncio
import json

from stoker.agent.host.logs.attempt_log import job_of
from stoker.agent.host.logs.tail import WATCHED
from stoker.wire.messages import AttemptKey, LogLines, LogWanted, StreamHello, log_of_worker

KEY = AttemptKey("j1", 1)


def script(**steps):
    return json.dumps({"run_s": 9, **steps}).encode()


async def opened(host):
    stream = await host.control.logs.get()
    hello = (await stream.receive()).hello
    assert hello == StreamHello("node-1", host.control.sessions)
    return stream


async def follow(host, *keys):
    stream = await opened(host)
    await stream.send(LogWanted(keys))
    return stream


def test_lines_come_as_they_are_printed_and_the_last_says_so(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        stream = await follow(host, KEY)
        await host.control.assign(a_job("j1", script(log=["one", "two"])))
        first = await stream.receive()
        began = first.at_ms[0]
        assert first == LogLines(None, "j1", 1, 0, ("one", "two"), at_ms=(began, began))
        await asyncio.sleep(1.5)
        host.spawner.of("w1").print_lines("three")
        later = (await stream.receive()).at_ms[0]
        assert 1500 <= later - began <= 1600
        outcome = await host.control.outcome("j1")
        assert await stream.receive() == LogLines(None, "j1", 1, 3, (), over=True)
        assert (outcome.log, outcome.log_first) == (("one", "two", "three"), 0)
        assert outcome.log_at_ms == (began, began, later)

    play(story)


def test_whoever_comes_late_gets_what_is_kept(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(log=[str(n) for n in range(130)])))
        await host.holds_work()
        stream = await follow(host, KEY)
        lines = await stream.receive()
        assert (lines.first, lines.lines[0], lines.lines[-1]) == (30, "30", "129")
        assert (await host.control.outcome("j1")).log_first == 30

    play(story)


def test_nothing_is_sent_of_what_nobody_follows_or_follows_no_more(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        stream = await follow(host, KEY)
        await host.control.assign(a_job("j1", script(log=["mine"])), a_job("j2", script(run_s=20)))
        assert (await stream.receive()).lines == ("mine",)
        await stream.send(LogWanted(()))
        await asyncio.sleep(1)
        host.spawner.of("w1").print_lines("nobody hears this")
        await host.control.outcome("j2")
        assert stream._inbox.empty()

    play(story)


def test_a_flood_is_bounded_and_what_is_lost_is_counted(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        stream = await follow(host, KEY)
        await host.control.assign(a_job("j1", script()))
        await host.holds_work()
        flood = [f"{n} {'x' * 1000}" for n in range(5000)]
        host.spawner.of("w1").print_lines(*flood)
        got = []
        while not got or not got[-1].lines[-1].startswith("4999 "):
            got.append(await stream.receive())
        assert got[0].first == 5000 - WATCHED
        assert sum(len(lines.lines) for lines in got) == WATCHED
        assert all(sum(map(len, lines.lines)) < 100_000 for lines in got)
        assert [line for lines in got for line in lines.lines] == flood[-WATCHED:]

    play(story)


def test_secrets_are_hidden_in_these_lines_too(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(env={"HF_TOKEN": "hf_abcdef"}))
        stream = await follow(host, KEY)
        await host.control.assign(a_job("j1", script(log=["token hf_abcdef and secret"])))
        assert (await stream.receive()).lines == ("token *** and ***",)

    play(story)


def line_of(job, message):
    return json.dumps({"requestId": job, "message": message, "level": "INFO"})


def test_lines_that_name_another_job_are_that_jobs(play, a_worker, a_job):
    printed = [
        line_of("j1", "mine"),
        line_of("j2", "theirs"),
        line_of(None, "everybody's"),
        "plain",
        '{"requestId": 7',
    ]
    own = (printed[0], *printed[2:])

    async def story(host):
        await host.control.ready(a_worker(kind="protocol", concurrency=2))
        stream = await follow(host, KEY)
        await host.control.assign(a_job("j1", script()), a_job("j2", script(run_s=5)))
        await host.holds_work()
        host.spawner.of("w1").print_lines(*printed)
        assert (await stream.receive()).lines == own
        assert (await host.control.outcome("j2")).log == tuple(printed[1:])
        assert (await host.control.outcome("j1")).log == own

    play(story)


def test_a_python_workers_lines_are_never_taken_for_another_jobs(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(log=[line_of("j2", "x")], run_s=0)))
        assert (await host.control.outcome("j1")).log == (line_of("j2", "x"),)

    play(story)


def test_what_is_no_line_of_the_sdk_names_no_job():
    for line in ('{"requestId": "a"', '{"requestId": "a"}', '{"requestId": 1, "message": ""}', "[]", ""):
        assert job_of(line) is None
    assert job_of('{"requestId": "a", "message": "m", "level": "INFO"}') == "a"


def test_a_stream_of_logs_that_breaks_is_opened_again_and_the_session_goes_on(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        (await follow(host, KEY)).end("cut")
        await host.control.assign(a_job("j1", script(log=["one"])))
        stream = await follow(host, KEY)
        assert (await stream.receive()).lines == ("one",)
        assert host.control.sessions == 1

    play(story)


def test_a_log_that_nobody_reads_holds_no_report_up(play, a_worker, a_job):
    """Its stream takes nothing more, as one whose other end has stopped reading."""

    async def story(host):
        await host.control.ready(a_worker())
        stream = await follow(host, KEY)
        never = asyncio.Event()
        stream.peer.send = lambda _: never.wait()
        await host.control.assign(a_job("j1", script(log=["one"], progress=[1, 2])))
        assert (await host.control.outcome("j1")).end == "completed"

    play(story)


# ---- workers

WORKER = log_of_worker("w1")


async def started_again(host, process):
    await host.until(lambda: any(one is not process for one in host.spawner.processes))


def test_a_worker_is_followed_through_its_processes_whatever_it_runs(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.spawner.of("w1").print_lines("loading", "serving")
        stream = await follow(host, WORKER)
        first = await stream.receive()
        assert (first.key, first.first, first.lines) == (WORKER, 0, ("loading", "serving"))
        assert len(first.at_ms) == 2
        await host.control.assign(a_job("j1", script(log=["one"])))
        assert (await stream.receive()).lines == ("one",)
        process = host.spawner.of("w1")
        process.print_lines("it is broken")
        process.exit(1)
        assert (await stream.receive()).lines == ("it is broken",)
        await started_again(host, process)
        host.spawner.of("w1").print_lines("loading again")
        again = await stream.receive()
        assert (again.first, again.lines) == (4, ("loading again",))
        await host.control.desire()
        last = await stream.receive()
        assert (last.first, last.lines, last.over) == (5, (), True)

    play(story)


def test_whoever_follows_a_worker_late_gets_what_all_its_processes_printed_last(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker())
        process = host.spawner.of("w1")
        process.print_lines(*map(str, range(150)))
        process.exit(1)
        await started_again(host, process)
        host.spawner.of("w1").print_lines("again")
        stream = await follow(host, WORKER)
        lines = await stream.receive()
        assert (lines.first, lines.lines) == (50, (*map(str, range(50, 150)), "again"))

    play(story)


def test_a_worker_that_has_printed_nothing_or_is_not_there_yet_is_answered_for(play, a_worker):
    async def story(host):
        stream = await follow(host, WORKER, log_of_worker("w2"))
        await host.control.ready(a_worker(env={"API_KEY": "hidden-value"}))
        assert await stream.receive() == LogLines(None, "w1", 0, 0)
        host.spawner.of("w1").print_lines("my key is hidden-value")
        assert (await stream.receive()).lines == ("my key is ***",)
        assert stream._inbox.empty()

    play(story)


def test_more_says_that_the_first_answer_is_not_all(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker())
        host.spawner.of("w1").print_lines(*(f"{n} {'x' * 4000}" for n in range(100)))
        stream = await follow(host, WORKER)
        answers = [await stream.receive()]
        while answers[-1].more:
            answers.append(await stream.receive())
        assert len(answers) > 1
        assert [line.split()[0] for one in answers for line in one.lines] == [str(n) for n in range(100)]

    play(story)
