"""`stoker job ...` against a scripted service: what it sends, what goes to which stream, how it ends."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from job_service import Service, events

from stoker.cli import job_commands
from stoker.cli.main import main

QUEUED = {"id": "j-u1", "status": "IN_QUEUE", "reason": "no worker is ready"}
RUNNING = {"id": "j-u1", "status": "IN_PROGRESS", "delayTime": 30, "workerId": "w-1"}
DONE = {
    "id": "j-u1",
    "status": "COMPLETED",
    "delayTime": 30,
    "executionTime": 810,
    "workerId": "w-1",
    "output": {"sum": 3, "to": "é"},
}
FAILED = {**DONE, "status": "FAILED", "error": "ValueError: seven is too many\nTraceback ..."}
del FAILED["output"]


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_API_KEY", "sk_1_2")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with Service() as service:
        monkeypatch.setenv("STOKER_URL", service.url)
        service.says("run", {"id": "j-u1", "status": "IN_QUEUE"})
        service.says("status", RUNNING)
        thread = threading.Thread(target=service.serve_forever, args=(0.01,))
        thread.start()
        yield service
        service.shutdown()
        thread.join()


def job(*arguments: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["job", *arguments])
    assert ended.value.code == code


Capture = pytest.CaptureFixture[str]


# ---- run


def test_the_output_goes_to_standard_output_and_all_else_does_not(service: Service, capsys: Capture) -> None:
    told = events(
        ("progress", "", {"output": {"step": 1}}),
        ("chunk", "1-0", {"output": "hel"}),
        ("reset", "2--1", {"attempt": 2}),
        ("chunk", "2-0", {"output": "hello " + "x" * 200}),
        ("end", "2-0", DONE),
    )
    service.says("events", told)
    job("run", "echo", '{"x": 1}')
    said = capsys.readouterr()
    assert said.out == '{"sum": 3, "to": "é"}\n'
    lines = said.err.splitlines()
    assert [line for line in lines if not line.startswith("IN_")] == [
        'progress {"step": 1}',
        'chunk "hel"',
        "attempt 2 begins: what came before is void",
        f'chunk "hello {"x" * 200}"',
        "job j-u1 COMPLETED: ran 0.81 s after 0.03 s in the queue",
    ]
    assert "\x1b" not in said.err
    assert service.bodies("/run") == [{"input": {"x": 1}}]


def test_why_a_job_waits_is_told_once(service: Service, capsys: Capture, monkeypatch: Any) -> None:
    """The events hold their end back until the state was looked at three times."""
    looked = threading.Event()
    looks = iter(range(100))

    async def soon(seconds: float) -> None:
        if next(looks) >= 2:
            looked.set()
            await asyncio.Event().wait()

    watch = job_commands.watch
    monkeypatch.setattr(job_commands, "watch", lambda *given, **more: watch(*given, **more, sleep=soon))
    service.says("status", QUEUED, QUEUED, RUNNING)
    service.says("events", events(("end", "", DONE)))
    said_next = service.next

    def held(operation: str) -> tuple[int, Any]:
        if operation == "events":
            assert looked.wait(20)
        return said_next(operation)

    monkeypatch.setattr(service, "next", held)
    job("run", "echo")
    assert capsys.readouterr().err.splitlines()[:2] == [
        "IN_QUEUE: no worker is ready",
        "IN_PROGRESS on w-1",
    ]


def test_all_options_reach_the_service(service: Service, capsys: Capture) -> None:
    job(
        *("run", "echo", "--no-wait", "--timeout", "5.5", "--ttl", "60", "--low-priority"),
        *("--webhook", "https://w/x", "--idempotency-key", "k-7", "--set", "n=4", "--set", "word=four"),
    )
    said = capsys.readouterr()
    assert said.out == "j-u1\n"
    assert "stoker job stream echo j-u1" in said.err
    assert service.bodies("/run") == [
        {
            "input": {"n": 4, "word": "four"},
            "webhook": "https://w/x",
            "policy": {"executionTimeout": 5500, "ttl": 60000, "lowPriority": True},
        }
    ]
    assert service.asked[0][2]["Idempotency-Key"] == "k-7"


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (FAILED, "job j-u1 ended FAILED: ValueError: seven is too many; its status has the rest"),
        ({**FAILED, "status": "TIMED_OUT", "error": "took 5 s"}, "job j-u1 ended TIMED_OUT: took 5 s"),
        ({"id": "j-u1", "status": "CANCELLED", "reason": "purged"}, "job j-u1 ended CANCELLED: purged"),
    ],
)
def test_a_job_that_ended_badly_is_exit_status_one(
    service: Service, capsys: Capture, record: Any, sentence: str
) -> None:
    service.says("events", events(("end", "", record)))
    job("run", "echo", code=1)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == f"stoker: {sentence}"


def test_a_refused_input_is_one_sentence(service: Service, capsys: Capture) -> None:
    service.says("run", {"error": "width must be at most 1536; got 9999"}, status=400)
    job("run", "echo", code=1)
    assert capsys.readouterr().err == "stoker: width must be at most 1536; got 9999\n"


def test_control_c_leaves_the_job_and_says_how_to_go_on(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(stoker: Any, endpoint: str, job: str, board: Any, heard: Any, **more: Any) -> Any:
        board.last_id = "1-7"
        raise KeyboardInterrupt

    monkeypatch.setattr(job_commands, "watch", interrupted)
    job("run", "echo", code=130)
    said = capsys.readouterr().err
    assert "stoker job stream echo j-u1 --from 1-7; cancel it: stoker job cancel echo j-u1" in said
    assert not service.bodies("/cancel/j-u1")


def test_control_c_while_it_is_submitted_tells_the_key(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(job_commands.Client, "run", interrupted)
    job("run", "echo", "--idempotency-key", "k-7", code=130)
    assert "--idempotency-key k-7 finds it" in capsys.readouterr().err


def test_nobody_at_the_address_is_told_with_what_to_do(capsys: Capture) -> None:
    job("run", "echo", "--url", "http://127.0.0.1:9", code=1)
    assert "is `stoker up` running at http://127.0.0.1:9?" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://[", "ftp://x", "nowhere"])
def test_an_address_that_is_none_is_a_sentence(capsys: Capture, url: str) -> None:
    job("status", "echo", "j", "--url", url, code=1)
    said = capsys.readouterr().err
    assert said.startswith("stoker: ")
    assert len(said.splitlines()) == 1


def test_a_time_that_is_no_number(service: Service, capsys: Capture) -> None:
    job("run", "echo", "--timeout", "nan", code=1)
    assert capsys.readouterr().err == "stoker: a time must be a number of seconds; got nan\n"


# ---- the others


def test_status_in_words_and_as_json(service: Service, capsys: Capture) -> None:
    service.says("status", {**DONE, "retries": 1})
    job("status", "echo", "j-u1")
    assert capsys.readouterr().out.splitlines() == [
        "id: j-u1",
        "status: COMPLETED",
        "waited: 0.03 s",
        "ran: 0.81 s",
        "worker: w-1",
        "retries: 1",
        'output: {"sum": 3, "to": "é"}',
    ]
    job("status", "echo", "j-u1", "--json")
    assert json.loads(capsys.readouterr().out) == {**DONE, "retries": 1}


def test_stream_gives_chunks_only_and_goes_on_from_an_event(service: Service, capsys: Capture) -> None:
    told = (("progress", "", {"output": 1}), ("chunk", "1-3", {"output": {"a": 1}}), ("end", "1-3", DONE))
    service.says("events", events(*told))
    job("stream", "echo", "j-u1", "--from", "1-2")
    said = capsys.readouterr()
    assert said.out == '{"a": 1}\n'
    assert "progress 1" in said.err
    (asked,) = [headers for path, _, headers in service.asked if "/stream/" in path]
    assert asked["Last-Event-ID"] == "1-2"


def test_stream_of_a_job_that_failed(service: Service, capsys: Capture) -> None:
    service.says("events", events(("end", "", FAILED)))
    job("stream", "echo", "j-u1", code=1)
    assert "ended FAILED: ValueError" in capsys.readouterr().err


def test_cancel_and_retry(service: Service, capsys: Capture) -> None:
    service.says("cancel", {"id": "j-u1", "status": "CANCELLED"})
    job("cancel", "echo", "j-u1")
    assert capsys.readouterr().out == "job j-u1 is CANCELLED\n"
    service.says("retry", {"id": "j-u1", "status": "IN_QUEUE"})
    job("retry", "echo", "j-u1")
    assert capsys.readouterr().out == "job j-u1 is IN_QUEUE\n"
    service.says("events", events(("end", "", DONE)))
    job("retry", "echo", "j-u1", "--wait")
    assert capsys.readouterr().out == '{"sum": 3, "to": "é"}\n'


def test_logs(service: Service, capsys: Capture) -> None:
    log = {"attempt": 1, "worker": "w-1", "lines": ["loading [0] " + "y" * 100, "done"]}
    service.says("logs", {"id": "j-u1", "logs": [log]}, {"id": "j-u1", "logs": []})
    job("logs", "echo", "j-u1")
    said = capsys.readouterr()
    assert said.out.splitlines() == log["lines"]
    assert said.err == "attempt 1 on worker w-1:\n"
    job("logs", "echo", "j-u1")
    assert "there are no log lines of job j-u1" in capsys.readouterr().err


def test_logs_are_followed_to_the_end(service: Service, capsys: Capture) -> None:
    service.says(
        "events",
        events(
            ("skipped", "1-1203", {"lines": 1204}),
            ("log", "1-1204", {"line": "loading"}),
            ("reset", "2--1", {"attempt": 2}),
            ("log", "2-0", {"line": "anew"}),
            ("end", "", {"id": "j-u1", "status": "FAILED"}),
        ),
    )
    job("logs", "echo", "j-u1", "--follow")
    said = capsys.readouterr()
    assert said.out.splitlines() == ["loading", "anew"]
    assert said.err.splitlines() == ["… 1,204 lines left out", "attempt 2:", "job j-u1 is FAILED"]


def test_list_goes_over_pages_up_to_its_limit(service: Service, capsys: Capture) -> None:
    first = {**RUNNING, "createdAt": 1_790_000_000_000}
    pages = (
        {"requests": [first], "cursor": "8"},
        {"requests": [], "cursor": "5"},
        {"requests": [DONE, FAILED], "cursor": "2"},
    )
    service.says("requests", *pages)
    job("list", "echo", "--status", "in_progress", "--limit", "2")
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["j-u1", "IN_PROGRESS", "2026-09-21 14:13:20 UTC", "0.03 s", "", "0", "w-1"],
        ["j-u1", "COMPLETED", "", "0.03 s", "0.81 s", "0", "w-1"],
    ]
    assert service.asked[0][0] == "GET /v2/echo/requests?status=IN_PROGRESS&limit=2"


def test_purge_asks_first(service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    service.says("purge-queue", {"removed": 2, "status": "completed"})
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    job("purge", "echo", code=1)
    assert service.asked == []
    assert "Cancel every job that waits on echo?" in capsys.readouterr().err
    job("purge", "echo", "--yes")
    assert capsys.readouterr().out == "2 jobs were cancelled\n"


def test_the_webhook_secret_is_the_stores(capsys: Capture) -> None:
    shown = []
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(["key", "webhook-secret"])
        assert ended.value.code == 0
        shown.append(capsys.readouterr().out)
    assert shown[0].startswith("whsec_")
    assert shown[0] == shown[1]
