"""Real worker processes with synchronous handlers: every frame of the contract, and what ends a job."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stoker.worker.frames import CHUNK_INLINE_MAX, INLINE_MAX, Frame


def body(frame: Frame) -> Any:
    return json.loads(frame.body)


def read_and_close(frame: Frame) -> bytes:
    assert frame.fd is not None
    data = os.pread(frame.fd, 1000, 0)
    os.close(frame.fd)
    return data


def test_ready_reports_what_the_handler_is(start_worker: Any) -> None:
    ready = start_worker("outputs/echo.py:handler").setup(concurrency=8)
    assert ready.kind == "ready"
    assert (ready.fields["concurrency"], ready.fields["generator"]) == (8, False)
    assert start_worker("streams/generator.py:handler").setup().fields["generator"] is True


def test_ready_reports_what_a_class_says_that_it_serves(start_worker: Any) -> None:
    ready = start_worker("starting/class_with_setup.py:Handler").setup()
    assert ready.fields["serves"] == "a count of jobs� on gpu"
    assert "serves" not in start_worker("outputs/echo.py:handler").setup().fields
    assert "serves" not in start_worker("slots/class_chooses_slots.py:Handler").setup().fields


def test_ready_reports_the_stages_of_the_start(start_worker: Any) -> None:
    stages = start_worker("starting/class_with_stages.py:Handler").setup().fields["stages_ms"]
    assert (stages["read"], stages["warm\ufffd up"]) == (2, 1_000_000)
    assert set(stages) <= {"import", "read", "warm\ufffd up", "setup", "checks", "slots"}
    asynchronous = (
        start_worker("slots/async_class_with_setup.py:Handler").setup(concurrency=2).fields["stages_ms"]
    )
    assert set(asynchronous) <= {"import", "setup", "checks", "slots"}


def test_an_input_comes_back_as_the_output_and_the_next_job_too(start_worker: Any) -> None:
    agent = start_worker("outputs/echo.py:handler")
    agent.setup()
    for n in range(3):
        agent.run(json.dumps({"n": n, "é": None}).encode(), job=f"job-{n}", attempt=n + 1)
        done = agent.next()
        assert (done.kind, done.job, done.attempt) == ("done", f"job-{n}", n + 1)
        assert (done.fields["files"], done.fields["metrics"], done.fields["has_output"]) == (0, {}, True)
        assert body(done) == {"n": n, "é": None}


@pytest.mark.parametrize(("name", "concurrency"), [("handler", 1), ("handler", 2), ("async_handler", 2)])
def test_a_handler_reads_the_bucket_of_its_caller(start_worker: Any, name: str, concurrency: int) -> None:
    agent = start_worker(f"access/uses_its_bucket.py:{name}")
    agent.setup(concurrency=concurrency)
    bucket = {"accessId": "a", "accessSecret": "hush", "bucketName": "b", "endpointUrl": "https://s3.example"}
    agent.run(more={"s3Config": bucket})
    assert body(agent.next()) == {"bucket": "b", "path": None, "known": 4}
    agent.run(job="k")
    assert agent.next().fields["has_output"] is False, "the next job brought none"


def test_a_handler_that_returns_nothing_has_no_output(start_worker: Any) -> None:
    agent = start_worker("outputs/noop.py:handler")
    agent.setup()
    agent.run()
    done = agent.next()
    assert (done.kind, done.fields["has_output"], done.body) == ("done", False, b"")


def test_large_bodies_pass_in_both_directions(start_worker: Any) -> None:
    agent = start_worker("outputs/echo.py:handler")
    agent.setup()
    large = json.dumps("x" * (3 * INLINE_MAX)).encode()
    for sent in (large, b'"' + b"y" * (INLINE_MAX - 2) + b'"', b"1"):
        agent.run(sent)
        assert agent.next().body == sent


def test_progress_comes_before_the_end_and_in_order(start_worker: Any) -> None:
    agent = start_worker("outputs/progress.py:handler")
    agent.setup()
    agent.run(b'{"steps": 4}')
    *progress, done = agent.until_end()
    assert [(frame.kind, frame.job, frame.attempt) for frame in progress] == [("progress", "j", 1)] * 4
    assert [body(frame)["step"] for frame in progress] == [1, 2, 3, 4]
    assert body(done) == {"steps": 4}


@pytest.mark.parametrize(
    ("handler", "output"),
    [
        ("streams/emits.py", {"sum": 3}),
        ("streams/generator.py", []),
        ("streams/generator_aggregated.py", [{"number": 0}, {"number": 1}, {"number": 2}]),
        ("streams/async_generator.py", [{"number": 0}, {"number": 1}, {"number": 2}]),
    ],
)
def test_chunks_are_numbered_from_0_in_every_attempt(start_worker: Any, handler: str, output: Any) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    for attempt in (1, 2):
        agent.run(attempt=attempt)
        *chunks, done = agent.until_end()
        assert [(c.kind, c.attempt, c.fields["n"]) for c in chunks] == [
            ("chunk", attempt, n) for n in range(3)
        ]
        assert [body(chunk) for chunk in chunks] == [{"number": n} for n in range(3)]
        assert body(done) == output


LARGE = 3_000_000


@pytest.mark.parametrize(
    ("handler", "job_input"),
    [
        ("streams/emits_large.py", {}),
        ("streams/async_emits_large.py", {}),
        ("streams/async_emits_large.py", {"from": "thread"}),
    ],
)
def test_after_a_large_chunk_nothing_is_emitted_until_it_is_taken(
    start_worker: Any, handler: str, job_input: dict[str, str]
) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    agent.run(json.dumps({"sizes": [10, LARGE, 1_100_000, 10], **job_input}).encode())
    for n, large in enumerate([False, True, True, False]):
        chunk = agent.next()
        assert (chunk.kind, chunk.fields["n"], len(chunk.body) > CHUNK_INLINE_MAX) == ("chunk", n, large)
        if large:
            assert agent.is_silent()
            agent.send("took", job="j", attempt=1, n=n)
    assert body(agent.next()) == {"chunks": 4}


def test_a_generator_may_return_an_output_of_its_own(start_worker: Any) -> None:
    agent = start_worker("streams/generator_that_returns.py:handler")
    agent.setup()
    agent.run()
    chunk, done = agent.until_end()
    assert (body(chunk), body(done)) == ({"number": 0}, {"total": 1})


def test_a_file_is_handed_over_before_the_output_that_mentions_it(start_worker: Any) -> None:
    agent = start_worker("files/file_ok.py:handler")
    agent.setup()
    agent.run('{"text": "héllo"}'.encode())
    file, done = agent.until_end()
    assert file.fields == {"job": "j", "attempt": 1, "n": 0, "name": "hello.txt", "media_type": "text/plain"}
    assert os.readlink(f"/proc/self/fd/{file.fd}") == f"{agent.scratch}/hello.txt"
    assert read_and_close(file) == "héllo".encode()
    assert body(done) == {"greeting": {"$file": 0}, "length": 5}
    assert (done.fields["files"], done.fields["metrics"]) == (1, {"letters": 5})


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("files/file_symlink.py", "link.txt is a symbolic link; a File must be a regular file"),
        ("files/file_below_symlink.py", "hostname lies outside the job's scratch folder"),
        ("files/file_outside.py", "hostname lies outside the job's scratch folder"),
        ("files/file_device.py", "zero is a device; a File must be a regular file"),
        ("files/file_pipe.py", "pipe is a named pipe; a File must be a regular file"),
        ("files/file_emitted.py", "chunk.preview is a File; put it in the final output instead"),
        ("files/file_directory.py", " is a directory; a File must be a regular file"),
        ("files/file_missing.py", "nothing.png cannot be opened: no such file or directory"),
        ("outputs/unserialisable.py", "output.items[3].x is a set, which JSON cannot hold; make it a list"),
        ("outputs/nan.py", "output.loss is nan, which JSON cannot hold"),
    ],
)
def test_an_output_that_cannot_be_sent_fails_the_job_with_one_message(
    start_worker: Any, handler: str, message: str
) -> None:
    agent = start_worker(f"{handler}:handler")
    agent.setup()
    agent.run()
    failed = agent.next()
    assert (failed.kind, failed.fields["retryable"]) == ("failed", False)
    assert message in failed.fields["error"]
    assert "\n" not in failed.fields["error"]


@pytest.mark.parametrize(
    ("kind", "first_line", "retryable"),
    [
        ("plain", "ValueError: seven is too many", False),
        ("exit", "SystemExit: the handler called sys.exit(7)", False),
        ("handler", "the prompt names nobody", False),
        ("retryable", "the other service is busy", True),
    ],
)
def test_an_error_fails_its_job_and_the_next_job_runs(
    start_worker: Any, kind: str, first_line: str, retryable: bool
) -> None:
    agent = start_worker("failing/raises.py:handler")
    agent.setup()
    for attempt in (1, 2):
        agent.run(json.dumps({"kind": kind}).encode(), attempt=attempt)
        failed = agent.next()
        first, *rest = failed.fields["error"].splitlines()
        assert (failed.kind, failed.attempt, first) == ("failed", attempt, first_line)
        assert failed.fields["retryable"] == retryable
        assert bool(rest) == (kind in ("plain", "exit"))
        assert not any("stoker/worker" in line for line in rest)


def test_a_generator_that_raises_has_sent_its_chunks(start_worker: Any) -> None:
    agent = start_worker("streams/generator_raises.py:handler")
    agent.setup()
    agent.run()
    frames = agent.until_end()
    assert [frame.kind for frame in frames] == ["chunk", "chunk", "failed"]
    assert frames[-1].fields["error"].startswith("ValueError: no third number")


def test_an_input_that_is_no_json_fails_the_job_only(start_worker: Any) -> None:
    agent = start_worker("outputs/echo.py:handler")
    agent.setup()
    agent.run(b"{", job="bad")
    assert agent.next().kind == "failed"
    agent.run(b"1", job="good")
    assert agent.next().kind == "done"


def test_a_class_is_set_up_once_with_its_device(start_worker: Any) -> None:
    agent = start_worker("starting/class_with_setup.py:Handler")
    agent.setup()
    for n in (1, 2):
        agent.run()
        assert body(agent.next()) == {"device": "GPU-1", "kind": "gpu", "jobs": n}


def test_without_a_device_a_class_gets_the_cpu(start_worker: Any) -> None:
    agent = start_worker("starting/class_with_setup.py:Handler")
    agent.setup(device=None)
    agent.run()
    assert body(agent.next())["kind"] == "cpu"


def test_a_device_field_of_a_later_version_is_left_out(start_worker: Any) -> None:
    agent = start_worker("starting/class_with_setup.py:Handler")
    agent.setup(device={"uuid": "GPU-9", "kind": "mig", "name": "x", "index": 0, "colour": "red"})
    agent.run()
    assert body(agent.next())["device"] == "GPU-9"


def test_the_users_own_models_worker_and_agent_win(start_worker: Any) -> None:
    agent = start_worker("starting/own_models_package/handler.py:handler")
    agent.setup()
    agent.run()
    assert body(agent.next()) == {name: f"the user's {name}" for name in ("models", "worker", "agent")}


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("starting/exits_at_import.py:handler", "exits_at_import.py cannot be imported: SystemExit"),
        ("starting/does_not_parse.py:handler", "SyntaxError"),
        ("starting/raises_in_setup.py:Handler", "RuntimeError: the weights are not there"),
        ("starting/takes_no_job.py:handler", "handler() must take the job, and nothing else"),
        ("starting/not_a_handler.py:handler", "handler is 7, not a function or a class"),
        ("outputs/echo.py:nothing", "has no nothing; it defines handler"),
        ("/nowhere/x.py:handler", "there is no file /nowhere/x.py"),
    ],
)
def test_a_worker_that_cannot_start_says_why_and_exits(start_worker: Any, handler: str, message: str) -> None:
    agent = start_worker(handler)
    failed = agent.setup()
    assert failed.kind == "setup_failed"
    assert message in failed.fields["error"]
    assert agent.wait() == 1


def test_what_the_handler_prints_stays_its_own_and_is_there_at_once(start_worker: Any) -> None:
    agent = start_worker("printing/prints.py:handler")
    agent.setup()
    agent.run()
    assert body(agent.next()) == {"printed": 2}
    assert agent.log.read_text() == "to stdout\nto stderr\n"


def test_what_is_printed_without_an_end_of_line_is_there_before_the_answer(start_worker: Any) -> None:
    agent = start_worker("printing/prints_much.py:handler", env={"MY_TOKEN": "open end"})
    agent.setup()
    agent.run(b'{"lines": 1}')
    assert agent.next().kind == "done"
    assert agent.log.read_text() == "to stderr\nline 0 \nopen end"
    agent.run(b'{"lines": 0, "then": "raise"}')
    assert agent.next().kind == "failed"
    assert agent.log.read_text().endswith("open endto stderr\nopen end")


def test_a_closed_stdout_ends_no_job(start_worker: Any, tmp_path: Path) -> None:
    path = tmp_path / "closes_stdout.py"
    path.write_text(
        "import sys\ndef handler(job):\n    sys.stdout.close()\n    sys.stderr = None\n    return 1\n"
    )
    agent = start_worker(f"{path}:handler")
    agent.setup()
    agent.run()
    assert body(agent.next()) == 1


@pytest.mark.parametrize("size", [900_000, 1_048_570, 1_048_577, 5_000_000, 25_000_000])
def test_an_output_of_many_megabytes_passes(start_worker: Any, size: int) -> None:
    agent = start_worker("outputs/large_output.py:handler")
    agent.setup()
    agent.run(json.dumps({"size": size}).encode())
    done = agent.next()
    assert (done.kind, len(done.body)) == ("done", size + len('{"text":""}'))


def test_a_chunk_that_no_frame_can_hold_goes_as_a_file(start_worker: Any) -> None:
    agent = start_worker("streams/emits_large.py:handler")
    agent.setup()
    agent.run(json.dumps({"sizes": [70_000_000]}).encode())
    chunk = agent.next()
    assert (chunk.kind, chunk.body, os.fstat(chunk.fd).st_size) == ("chunk", b"", 70_000_017)
    os.close(chunk.fd)


def test_an_output_that_no_frame_can_hold_goes_as_a_file(start_worker: Any) -> None:
    agent = start_worker("outputs/large_output.py:handler")
    agent.setup()
    agent.run(json.dumps({"size": 70_000_000}).encode())
    file, done = agent.next(), agent.next()
    assert (file.kind, os.fstat(file.fd).st_size) == ("file", 70_000_000 + len('{"text":""}'))
    os.close(file.fd)
    assert (done.kind, done.fields["in_file"], done.body) == ("done", True, b"")


def test_a_synchronous_worker_never_imports_asyncio(start_worker: Any, tmp_path: Path) -> None:
    path = tmp_path / "lists_modules.py"
    path.write_text("import sys\ndef handler(job): return 'asyncio' in sys.modules\n")
    agent = start_worker(f"{path}:handler")
    agent.setup()
    agent.run()
    assert body(agent.next()) is False


def test_a_worker_leaves_without_walking_what_its_handler_loaded(start_worker: Any, tmp_path: Path) -> None:
    path = tmp_path / "loads_rings.py"
    path.write_text(
        "import atexit, pathlib\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "atexit.register((here / 'asked').touch)\n"
        "class Ring:\n"
        "    def __init__(self): self.self, self.found = self, here / 'found'\n"
        "    def __del__(self): self.found.touch()\n"
        "Ring.first = Ring()\n"
        "def handler(job): return 'loaded'\n"
    )
    agent = start_worker(f"{path}:handler")
    agent.setup()
    agent.run()
    assert body(agent.next()) == "loaded"
    agent.send("stop")
    assert agent.wait() == 0
    assert (tmp_path / "asked").exists(), "what the handler registered is called"
    assert not (tmp_path / "found").exists()
