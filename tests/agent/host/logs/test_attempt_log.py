"""What an outcome shows of what was printed: in stories, and the bounds and the hiding by themselves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.host.logs.attempt_log import BYTES_MAX, LINE_MAX, LINES_MAX, last_lines
from stoker.agent.workers.lifecycle.process_life import JOB_SECRETS_MAX, KnownSecrets
from stoker.testing.fake_spawner import Start
from stoker.wire.messages import Grant, Refused
from stoker.worker.frames import Frame


def script(**steps):
    return json.dumps({"log": ["one", "two"], **steps}).encode()


STORIES = {
    "completed": {"output": 1},
    "failed": {"error": "bad"},
    "lost": {"exit": -11},
    "timed_out": {"run_s": 60},
    "cancelled": {"run_s": 60},
}


@pytest.mark.parametrize("end", STORIES)
def test_every_end_brings_what_was_printed(play, a_worker, a_job, end):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(**STORIES[end]), execution_timeout_ms=5000))
        if end == "cancelled":
            await host.control.cancel("j1")
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.log) == (end, ("one", "two"))

    play(story)


def test_a_kill_brings_it_too_and_the_next_attempt_starts_anew(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        stuck = script(run_s=600, ignore_cancel=True, ignore_term=True)
        await host.control.assign(a_job("j1", stuck, execution_timeout_ms=5000))
        assert (await host.control.outcome("j1")).log == ("one", "two")
        await host.control.worker_is("w1", "ready")
        await host.control.assign(a_job("j2", script(log=["three"])))
        assert (await host.control.outcome("j2")).log == ("three",)
        await host.control.assign(a_job("j3", b"{}"))
        assert (await host.control.outcome("j3")).log == ()

    play(story)


def test_neighbours_on_one_worker_show_all_of_their_time(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        await host.control.assign(a_job("j1", script(log=["a"], run_s=9)), a_job("j2", script(log=["b"])))
        assert (await host.control.outcome("j2")).log == ("b",)
        assert (await host.control.outcome("j1")).log == ("a", "b")

    play(story)


def test_what_never_ran_has_no_log(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(run_s=600)))
        host.agent.stop()
        await host.control.refused("j1")
        assert host.control.bodies(Refused)

    play(story)


def test_secrets_are_hidden_in_logs_and_in_a_workers_last_messages(play, a_worker, a_job):
    env = {"HF_TOKEN": "hf_abcdef", "MODE": "plain text", "PEM_KEY": "-----\nMIIEvQ\n-----"}
    printed = ["token hf_abcdef and secret", "plain text", "MIIEvQ"]

    async def story(host):
        await host.control.ready(a_worker(env=env))
        await host.control.assign(a_job("j1", script(log=printed)))
        assert (await host.control.outcome("j1")).log == ("token *** and ***", "plain text", "***")
        host.spawner.of("w1").exit(-9)
        await host.control.until(lambda: host.control.news("w1")[-1].log_tail)
        assert host.control.news("w1")[-1].log_tail == ("cannot log in with ***",)

    play(story, starts={"e1": Start(log_tail=("cannot log in with hf_abcdef",))})


def test_a_secret_is_one_because_control_says_so(play, a_worker, a_job):
    """Whatever the variable is called, and wherever in it the secret stands."""
    spec = a_worker(env={"DATABASE": "pg://me:hunter2@db"}, hidden=("hunter2",))

    async def story(host):
        await host.control.ready(spec)
        await host.control.assign(a_job("j1", script(log=["pg://me:hunter2@db said no to hunter2"])))
        assert (await host.control.outcome("j1")).log == ("pg://me:***@db said no to ***",)
        host.spawner.of("w1").exit(-9)
        await host.control.until(lambda: host.control.news("w1")[-1].log_tail)
        assert host.control.news("w1")[-1].log_tail == ("left with ***",)

    play(story, starts={"e1": Start(log_tail=("left with hunter2",))})


OWN = {"e1": Start(log_tail=("bucket-secret", "bucket-secret in its last words"))}


def bucket(secret):
    return Grant("http://s3.of.theirs", "http://s3.of.theirs", "", "theirs", "e1/", "id", secret)


def test_what_one_job_brings_is_hidden_from_its_neighbours_and_from_those_after_it(play, a_worker, a_job):
    """All of them are last_lines what a worker prints while they run; it may print late."""

    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        neighbour = a_job("j1", script(log=[], run_s=5))
        await host.control.assign(neighbour)
        await host.holds_work()
        loud = script(log=["with bucket-secret"], run_s=1)
        await host.control.assign(a_job("j2", loud, files_grant=bucket("bucket-secret")))
        for name in ("j2", "j1"):
            assert (await host.control.outcome(name)).log == ("with ***",), name
        await host.control.assign(a_job("j3", script(log=["late bucket-secret"], error="no bucket-secret")))
        outcome = await host.control.outcome("j3")
        assert (outcome.log, outcome.error) == (("late ***",), "no ***")
        host.spawner.of("w1").exit(-9)
        await host.control.until(lambda: host.control.news("w1")[-1].log_tail)
        assert host.control.news("w1")[-1].log_tail == ("***", "*** in its last words")

    play(story, starts=OWN)


def test_the_text_of_a_failure_hides_what_logs_hide(play, a_worker, a_job):
    env = {"HF_TOKEN": "hf_abcdef"}

    async def story(host):
        await host.control.ready(a_worker("w1", env=env))
        await host.control.assign(a_job("j1", script(error="Traceback\n  hf_abcdef is no token")))
        assert (await host.control.outcome("j1")).error == "Traceback\n  *** is no token"
        await host.control.desire(a_worker("w2", env=env, endpoint="e2"))
        await host.control.until(lambda: host.control.news("w2")[-1:] and host.control.news("w2")[-1].reason)
        assert "cannot log in with ***" in host.control.news("w2")[-1].reason

    play(story, starts={"e2": Start(setup_error="cannot log in with hf_abcdef")})


def test_the_message_that_returns_neighbours_hides_it_too(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2, env={"HF_TOKEN": "hf_abcdef"}))
        await host.control.assign(a_job("j1", script(run_s=60)), a_job("j2", script(run_s=60)))
        await host.holds_work()
        about = {"job": "j1", "attempt": 1, "reason": "its context went with hf_abcdef", "lost": True}
        host.spawner.of("w1").emit(Frame("retire", about))
        assert (await host.control.refused("j2")).reason == "its context went with ***"

    play(story)


def test_a_worker_remembers_the_last_secrets_that_jobs_brought():
    secrets = KnownSecrets(["given"])
    for n in range(JOB_SECRETS_MAX):
        secrets.add(f"secret-{n}")
    secrets.add("secret-0")  # again, and so it is the newest
    secrets.add("one more")
    known = set(secrets)
    assert len(known) == 1 + JOB_SECRETS_MAX
    assert {"given", "one more", "secret-0", "secret-2"} < known
    assert "secret-1" not in known


def test_a_cut_leaves_no_part_of_a_secret():
    line = "x" * (LINE_MAX - 2) + "topsecret"
    assert last_lines([line], ("topsecret",)) == ("x" * (LINE_MAX - 2) + "**",)


@given(st.lists(st.text(max_size=40).map(lambda text: text * 100), max_size=150))
def test_it_is_as_many_of_the_last_lines_as_fit(lines):
    seen = last_lines(lines, ())
    size = sum(len(line.encode("utf-8", "replace")) + 1 for line in seen)
    assert size <= BYTES_MAX
    assert len(seen) <= LINES_MAX
    cut = [line[:LINE_MAX] for line in lines]
    assert list(seen) == cut[len(cut) - len(seen) :]
    if len(seen) < min(len(cut), LINES_MAX):
        assert size + len(cut[-len(seen) - 1].encode("utf-8", "replace")) + 1 > BYTES_MAX
