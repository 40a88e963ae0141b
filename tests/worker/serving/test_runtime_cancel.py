"""Real worker processes that are cancelled, stopped, cut off or killed, and async handlers side by side."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from stoker.worker.frames import Frame, encode
from stoker.worker.serving.channel import AGENT_GONE_STATUS

PATIENCE_S = 100.0


def body(frame: Frame) -> Any:
    return json.loads(frame.body)


@pytest.mark.parametrize(
    "handler", ["cancelling/slow_until_cancelled.py", "cancelling/async_until_cancelled.py"]
)
def test_a_cancel_ends_the_job_with_its_reason_and_the_next_one_runs(start_worker: Any, handler: str) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    for attempt in (1, 2):
        agent.run(attempt=attempt)
        assert agent.next().kind == "progress"
        agent.cancel(attempt=attempt, reason="the caller asked")
        failed = agent.next()
        assert (failed.kind, failed.attempt) == ("failed", attempt)
        assert failed.fields["error"] == "cancelled: the caller asked"


@pytest.mark.parametrize("handler", ["streams/endless_generator.py", "streams/endless_async_generator.py"])
def test_a_cancel_ends_a_generator_that_knows_nothing_of_it(start_worker: Any, handler: str) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    agent.run()
    first = agent.next()
    assert (first.kind, first.fields["n"]) == ("chunk", 0)
    agent.cancel()
    *chunks, failed = agent.until_end()
    assert [chunk.fields["n"] for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert failed.fields["error"] == "cancelled: asked"


def test_a_cancel_is_received_by_a_handler_that_waits_for_its_chunk_to_be_taken(start_worker: Any) -> None:
    agent = start_worker("streams/emits_large.py:handler")
    agent.setup()
    agent.run(b'{"sizes": [3000000, 10]}')
    assert agent.next().kind == "chunk"
    agent.cancel()
    agent.send("took", job="j", attempt=1, n=0)
    done = agent.next()
    assert (done.kind, done.fields["has_output"]) == ("done", False)
    agent.run(b'{"sizes": [10]}', attempt=2)
    assert agent.until_end()[-1].kind == "done"


def test_an_async_handler_receives_the_other_jobs_while_a_thread_waits_for_a_chunk(start_worker: Any) -> None:
    agent = start_worker("streams/async_emits_large.py:handler")
    agent.setup(concurrency=4)
    agent.run(b'{"sizes": [3000000], "from": "thread"}', job="waits")
    assert agent.next().job == "waits"
    agent.run(b'{"sizes": [10], "from": "thread"}', job="other")
    assert [(frame.kind, frame.job) for frame in agent.until_end()] == [("chunk", "other"), ("done", "other")]
    agent.send("took", job="waits", attempt=1, n=0)
    assert agent.next().kind == "done"


def test_a_handler_may_answer_a_cancel_with_what_it_has(start_worker: Any) -> None:
    agent = start_worker("cancelling/survives_cancel.py:handler")
    agent.setup()
    agent.run()
    agent.next()
    agent.cancel()
    assert body(agent.next()) == {"so far": 1}


def test_a_cancel_of_another_job_or_attempt_changes_nothing(start_worker: Any) -> None:
    for handler in ("cancelling/slow_until_cancelled.py", "cancelling/async_until_cancelled.py"):
        agent = start_worker(f"{handler}:handler")
        agent.setup()
        agent.run(attempt=2)
        agent.next()
        agent.cancel(attempt=1, reason="an earlier attempt")
        agent.cancel(job="other", attempt=2, reason="another job")
        agent.cancel(attempt=2, reason="this one")
        assert agent.next().fields["error"] == "cancelled: this one"


@pytest.mark.parametrize("handler", ["outputs/echo.py", "outputs/async_echo.py"])
def test_a_cancel_that_comes_with_its_run_keeps_the_handler_from_running(
    start_worker: Any, handler: str
) -> None:
    """Both frames in one piece: the worker reads them together."""
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    key = {"job": "j", "attempt": 1}
    frames = [
        Frame("run", {**key, "scratch": str(agent.scratch)}, b"1"),
        Frame("cancel", {**key, "reason": "at once"}),
        Frame("run", {"job": "k", "attempt": 1, "scratch": str(agent.scratch)}, b"2"),
    ]
    agent.sock.sendall(b"".join(encode(frame)[0] for frame in frames))
    ends = {frame.job: frame for frame in (agent.next(), agent.next())}
    assert ends["j"].fields["error"] == "cancelled: at once"
    assert body(ends["k"]) == 2


def test_a_cancel_after_the_end_changes_nothing(start_worker: Any) -> None:
    for handler in ("outputs/echo.py", "outputs/async_echo.py"):
        agent = start_worker(f"{handler}:handler")
        agent.setup()
        agent.run(b"1")
        agent.next()
        agent.cancel()
        agent.run(b"2", attempt=2)
        assert body(agent.next()) == 2


def test_async_jobs_run_side_by_side(start_worker: Any) -> None:
    """Each job waits for its partner: with fewer than three at once nobody would ever end."""
    agent = start_worker("slots/async_class_with_setup.py:Handler")
    assert agent.setup(concurrency=4).fields["concurrency"] == 4
    for job, pair in (("a1", "a"), ("b1", "b"), ("b2", "b"), ("a2", "a")):
        agent.run(json.dumps({"pair": pair}).encode(), job=job)
    met = {frame.job: body(frame)["met"] for frame in (agent.next() for _ in range(4))}
    assert met == {"a1": "a2", "b1": "b2", "a2": "a waiting job", "b2": "a waiting job"}


def test_a_cancel_ends_one_of_several_async_jobs(start_worker: Any) -> None:
    agent = start_worker("slots/async_class_with_setup.py:Handler")
    agent.setup(concurrency=3)
    agent.run(b'{"pair": "x"}', job="x1")
    agent.run(b'{"pair": "y"}', job="y1")
    agent.cancel(job="x1")
    failed = agent.next()
    assert (failed.job, failed.fields["error"]) == ("x1", "cancelled: asked")
    agent.run(b'{"pair": "y"}', job="y2")
    assert {agent.next().job, agent.next().job} == {"y1", "y2"}


@pytest.mark.parametrize("handler", ["outputs/echo.py", "outputs/async_echo.py"])
def test_a_stop_ends_an_idle_worker(start_worker: Any, handler: str) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    agent.send("stop")
    assert agent.wait() == 0
    assert agent.log.read_text() == ""


@pytest.mark.parametrize("handler", ["outputs/echo.py", "outputs/async_echo.py"])
def test_what_comes_after_a_stop_is_not_begun(start_worker: Any, handler: str) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    run = Frame("run", {"job": "j", "attempt": 1, "scratch": str(agent.scratch)}, b"1")
    agent.sock.sendall(encode(Frame("stop"))[0] + encode(run)[0])
    assert agent.wait() == 0
    assert agent.sock.recv(1) == b""


@pytest.mark.parametrize(
    "handler", ["cancelling/slow_until_cancelled.py", "cancelling/async_until_cancelled.py"]
)
def test_a_stop_waits_for_the_running_job(start_worker: Any, handler: str) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    agent.run()
    agent.next()
    agent.send("stop")
    agent.cancel()
    assert agent.next().kind == "failed"
    assert agent.wait() == 0


@pytest.mark.parametrize(
    "handler",
    [
        "outputs/echo.py",
        "outputs/async_echo.py",
        "cancelling/slow_until_cancelled.py",
        "cancelling/async_until_cancelled.py",
        "streams/endless_generator.py",
    ],
)
def test_a_worker_whose_agent_is_gone_ends(start_worker: Any, handler: str) -> None:
    """Idle, running and sending: in its own process group it takes everything with it."""
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    if handler not in ("outputs/echo.py", "outputs/async_echo.py"):
        agent.run()
        agent.next()
    agent.hang_up()
    assert agent.wait() == -signal.SIGKILL


def test_a_worker_before_its_setup_ends_with_its_agent(start_worker: Any) -> None:
    agent = start_worker("outputs/echo.py:handler")
    agent.hang_up()
    assert agent.wait() == -signal.SIGKILL


def test_what_the_handler_started_ends_with_it(start_worker: Any, tmp_path: Path) -> None:
    """The child holds the writing end of a pipe; its end of file tells that it is gone."""
    path = tmp_path / "starts_a_child.py"
    path.write_text(
        "import subprocess, sys, os\n"
        "def handler(job):\n"
        f"    out = open({str(tmp_path / 'pipe')!r}, 'w')\n"
        "    subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], stdout=out)\n"
    )
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    agent = start_worker(f"{path}:handler")
    agent.setup()
    agent.run()
    assert agent.next().kind == "done"
    agent.hang_up()
    agent.wait()
    assert select.select([reader], [], [], PATIENCE_S)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize(
    "handler",
    ["cancelling/ignores_cancel.py", "cancelling/stuck_in_c.py", "cancelling/async_until_cancelled.py"],
)
def test_sigterm_ends_a_handler(start_worker: Any, handler: str) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    agent.run()
    agent.next()
    os.killpg(agent.process.pid, signal.SIGTERM)
    assert agent.wait() == -signal.SIGTERM


def test_only_sigkill_ends_a_handler_that_ignores_sigterm(start_worker: Any) -> None:
    agent = start_worker("cancelling/ignores_sigterm_in_c.py:handler")
    agent.setup()
    agent.run()
    assert body(agent.next()) == "stuck"
    os.killpg(agent.process.pid, signal.SIGTERM)
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    sigterm = 1 << (signal.SIGTERM - 1)
    assert int(masks["SigIgn"], 16) & sigterm
    assert int(masks["SigBlk"], 16) & sigterm
    assert agent.process.poll() is None
    os.killpg(agent.process.pid, signal.SIGKILL)
    assert agent.wait() == -signal.SIGKILL


def test_sigint_is_ignored(start_worker: Any) -> None:
    agent = start_worker("outputs/echo.py:handler")
    agent.setup()
    os.killpg(agent.process.pid, signal.SIGINT)
    agent.run(b"1")
    assert agent.next().kind == "done"


@pytest.mark.parametrize(
    ("handler", "status"),
    [("failing/kills_itself.py", -signal.SIGKILL), ("failing/crashes.py", -signal.SIGSEGV)],
)
def test_a_handler_that_dies_is_recognised_by_its_status(
    start_worker: Any, handler: str, status: int
) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    agent.run()
    assert agent.wait() == status


def test_a_crash_in_native_code_says_where(start_worker: Any) -> None:
    agent = start_worker("failing/crashes.py:handler")
    agent.setup()
    agent.run()
    agent.wait()
    assert "Fatal Python error: Segmentation fault" in agent.log.read_text()
    assert "crashes.py" in agent.log.read_text()


def test_a_program_that_the_handler_starts_does_not_hold_the_socket(start_worker: Any) -> None:
    """The child outlives the worker in a session of its own; the agent sees the end of file all the same."""
    agent = start_worker("leaving_behind/leaves_a_child.py:handler")
    agent.setup()
    agent.run()
    child = body(agent.next())["child"]
    try:
        agent.process.kill()
        agent.wait()
        assert agent.sock.recv(1) == b""
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    "sent",
    [
        encode(Frame("run", {"job": "j", "attempt": 1, "scratch": "/"}))[0],
        b"\xff" * 8,
        encode(Frame("setup", {"handler": "x"}))[0] * 2,
    ],
    ids=["no setup", "no frame", "too early"],
)
def test_an_agent_that_breaks_the_protocol_is_left_with_a_message(start_worker: Any, sent: bytes) -> None:
    agent = start_worker("outputs/echo.py:handler")
    agent.sock.sendall(sent)
    assert agent.wait() == -signal.SIGKILL
    assert agent.log.read_text().startswith("the agent broke the protocol: ")


def test_a_frame_of_a_later_version_is_passed_over(start_worker: Any) -> None:
    for handler in ("outputs/echo.py", "outputs/async_echo.py"):
        agent = start_worker(f"{handler}:handler")
        agent.setup()
        agent.send("news", b"1", what="something")
        agent.run(b"1")
        assert agent.next().kind == "done"


def test_a_full_socket_holds_the_handler_back_and_loses_nothing(start_worker: Any) -> None:
    """Far more chunks than the socket holds."""
    agent = start_worker("streams/generator.py:handler")
    agent.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    agent.setup()
    agent.run(b'{"count": 20000}')
    *chunks, done = agent.until_end()
    assert [chunk.fields["n"] for chunk in chunks] == list(range(20000))
    assert done.kind == "done"


def test_a_worker_in_the_process_group_of_another_ends_alone(start_worker: Any) -> None:
    agent = start_worker("outputs/echo.py:handler", own_session=False)
    agent.setup()
    agent.hang_up()
    assert agent.wait() == AGENT_GONE_STATUS
