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

from stoker.cli.control.database import open_chosen
from stoker.cli.data_folder import DataFolder
from stoker.cli.jobs import commands, following
from stoker.cli.main import main
from stoker.cli.options import DATA_DIR
from stoker.client import Event
from stoker.control.config.sections import Config
from tests.cli.jobs.job_service import Service, events

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
    reported = events(
        ("progress", "", {"output": {"step": 1}}),
        ("chunk", "1-0", {"output": "hel"}),
        ("reset", "2--1", {"attempt": 2}),
        ("chunk", "2-0", {"output": "hello " + "x" * 200}),
        ("end", "2-0", DONE),
    )
    service.says("events", reported)
    job("run", "echo", '{"x": 1}')
    output = capsys.readouterr()
    assert output.out == '{"sum": 3, "to": "é"}\n'
    lines = output.err.splitlines()
    assert [line for line in lines if not line.startswith("IN_")] == [
        'progress {"step": 1}',
        'chunk "hel"',
        "attempt 2 begins: what came before is void",
        f'chunk "hello {"x" * 200}"',
        "job j-u1 COMPLETED: ran 0.81 s after 0.03 s in the queue",
    ]
    assert "\x1b" not in output.err
    assert service.bodies("/run") == [{"input": {"x": 1}}]


def test_why_a_job_waits_is_reported_once(service: Service, capsys: Capture, monkeypatch: Any) -> None:
    """The events hold their end back until the state was looked at three times."""
    looked = threading.Event()
    looks = iter(range(100))

    async def soon(seconds: float) -> None:
        if next(looks) >= 2:
            looked.set()
            await asyncio.Event().wait()

    watch = following.watch
    monkeypatch.setattr(
        following, "watch", lambda *positional, **more: watch(*positional, **more, sleep=soon)
    )
    service.says("status", QUEUED, QUEUED, RUNNING)
    service.says("events", events(("end", "", DONE)))
    original_next = service.next

    def held(operation: str) -> tuple[int, Any]:
        if operation == "events":
            assert looked.wait(20)
        return original_next(operation)

    monkeypatch.setattr(service, "next", held)
    job("run", "echo")
    assert capsys.readouterr().err.splitlines()[:2] == [
        "IN_QUEUE: no worker is ready",
        "IN_PROGRESS on w-1",
    ]


def test_all_options_reach_the_service(service: Service, capsys: Capture) -> None:
    job(
        *("run", "echo", "--no-wait", "--timeout", "5.5", "--ttl", "60", "--low-priority"),
        *("--priority", "low", "--start-by", "5", "--deadline", "30.5"),
        *("--webhook", "https://w/x", "--idempotency-key", "k-7", "--set", "n=4", "--set", "word=four"),
    )
    output = capsys.readouterr()
    assert output.out == "j-u1\n"
    assert "stoker job stream echo j-u1" in output.err
    assert service.bodies("/run") == [
        {
            "input": {"n": 4, "word": "four"},
            "webhook": "https://w/x",
            "policy": {
                "executionTimeout": 5500,
                "ttl": 60000,
                "lowPriority": True,
                "priority": "low",
                "startBy": 5000,
                "deadline": 30500,
            },
        }
    ]
    assert service.requests[0][2]["Idempotency-Key"] == "k-7"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (FAILED, "job j-u1 ended FAILED: ValueError: seven is too many; its status has the rest"),
        ({**FAILED, "status": "TIMED_OUT", "error": "took 5 s"}, "job j-u1 ended TIMED_OUT: took 5 s"),
        ({"id": "j-u1", "status": "CANCELLED", "reason": "purged"}, "job j-u1 ended CANCELLED: purged"),
    ],
)
def test_a_job_that_ended_badly_is_exit_status_one(
    service: Service, capsys: Capture, record: Any, message: str
) -> None:
    service.says("events", events(("end", "", record)))
    job("run", "echo", code=1)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[-1] == f"stoker: {message}"


def test_a_refused_input_is_one_message(service: Service, capsys: Capture) -> None:
    service.says("run", {"error": "width must be at most 1536; got 9999"}, status=400)
    job("run", "echo", code=1)
    assert capsys.readouterr().err == "stoker: width must be at most 1536; got 9999\n"


def test_control_c_leaves_the_job_and_prints_how_to_follow_it(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(
        stoker: Any, endpoint: str, job: str, state: Any, received: Any, **more: Any
    ) -> Any:
        received(Event("chunk", "1-7", {"output": 7}))
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "watch", interrupted)
    job("run", "echo", code=130)
    output = capsys.readouterr().err
    assert "stoker job stream echo j-u1 --from 1-7; cancel it: stoker job cancel echo j-u1" in output
    assert not service.bodies("/cancel/j-u1")


def test_control_c_while_it_is_submitted_prints_the_key(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*positional: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.Client, "run", interrupted)
    job("run", "echo", "--idempotency-key", "k-7", code=130)
    assert "--idempotency-key k-7 finds it" in capsys.readouterr().err


def test_nobody_at_the_address_is_reported_with_what_to_do(capsys: Capture) -> None:
    job("run", "echo", "--url", "http://127.0.0.1:9", code=1)
    assert "is `stoker up` running at http://127.0.0.1:9?" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://[", "ftp://x", "nowhere"])
def test_an_address_that_is_none_is_a_message(capsys: Capture, url: str) -> None:
    job("status", "echo", "j", "--url", url, code=1)
    output = capsys.readouterr().err
    assert output.startswith("stoker: ")
    assert len(output.splitlines()) == 1


def test_a_time_that_is_no_number(service: Service, capsys: Capture) -> None:
    job("run", "echo", "--timeout", "nan", code=1)
    assert capsys.readouterr().err == "stoker: a time must be a number of seconds; got nan\n"


def test_the_address_may_stand_in_dotenv(
    service: Service, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STOKER_URL")
    (tmp_path / ".env").write_text(f"STOKER_URL={service.url}\n")
    service.says("status", DONE)
    job("status", "echo", "j-u1", "--json")
    assert json.loads(capsys.readouterr().out) == DONE


# ---- the others


def test_status_in_text_and_as_json(service: Service, capsys: Capture) -> None:
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
    reported = (("progress", "", {"output": 1}), ("chunk", "1-3", {"output": {"a": 1}}), ("end", "1-3", DONE))
    service.says("events", events(*reported))
    job("stream", "echo", "j-u1", "--from", "1-2")
    output = capsys.readouterr()
    assert output.out == '{"a": 1}\n'
    assert "progress 1" in output.err
    (requested,) = [headers for path, _, headers in service.requests if "/stream/" in path]
    assert requested["Last-Event-ID"] == "1-2"


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
    output = capsys.readouterr()
    assert output.out.splitlines() == log["lines"]
    assert output.err == "attempt 1 on worker w-1:\n"
    job("logs", "echo", "j-u1")
    assert "there are no log lines of job j-u1" in capsys.readouterr().err


def test_attempts(service: Service, capsys: Capture) -> None:
    lost = {"attempt": 1, "worker": "w-1", "node": "n", "assignedAt": 1_764_292_471_000}
    lost |= {"endedAt": 1_764_292_473_500, "end": "lost", "reason": "the worker died"}
    runs = {"attempt": 2, "worker": "w-2", "assignedAt": 1_764_292_475_000}
    answer = {"id": "j-u1", "createdAt": 1_764_292_470_000, "attempts": [lost, runs]}
    service.says("attempts", answer, answer)
    job("attempts", "echo", "j-u1")
    assert [line.split("\t") for line in capsys.readouterr().out.splitlines()] == [
        ["1", "2025-11-28 01:14:31 UTC", "", "", "", "+2.50 s", "n", "w-1", "lost: the worker died"],
        ["2", "2025-11-28 01:14:35 UTC", "", "", "", "", "", "w-2", "running"],
    ]
    job("attempts", "echo", "j-u1", "--json")
    assert json.loads(capsys.readouterr().out) == [lost, runs]


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
    output = capsys.readouterr()
    assert output.out.splitlines() == ["loading", "anew"]
    assert output.err.splitlines() == ["… 1,204 lines left out", "attempt 2:", "job j-u1 is FAILED"]


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
    assert service.requests[0][0] == "GET /v2/echo/requests?status=IN_PROGRESS&limit=2"


def test_a_list_as_json_has_the_services_records(service: Service, capsys: Capture) -> None:
    record = {**RUNNING, "createdAt": 1_790_000_000_000}
    service.says("requests", {"requests": [record], "cursor": None})
    job("list", "echo", "--json")
    assert json.loads(capsys.readouterr().out) == [record]


@pytest.mark.parametrize("columns", ["40", "80"])
def test_no_id_of_a_list_is_cut_at_a_terminal(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    number, worker = "sync-d3b0a1c2-5f64-4e0e-9c7b-0d9a7d1f2b63-u1", "abcdefghijk123"
    record = {**DONE, "id": number, "workerId": worker, "createdAt": 1_790_000_000_000}
    service.says("requests", {"requests": [record], "cursor": None})
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    job("list", "echo")
    printed = capsys.readouterr().out.split()
    assert {number, worker} <= set(printed)
    assert "…" not in printed


ENDPOINTS = [{"id": "ep1a2b3c", "name": "echo"}, {"id": "ep9z", "name": "other"}]
NO_JOB = (404, {"error": "no such job"})


def listed(service: Service, *ids: str) -> None:
    service.says("/v1/endpoints", ENDPOINTS)
    service.says("requests", {"requests": [{**RUNNING, "id": id_} for id_ in ids], "cursor": None})


@pytest.mark.parametrize("command", ["status", "cancel", "retry", "logs", "attempts"])
def test_the_beginning_of_an_id_will_do(service: Service, capsys: Capture, command: str) -> None:
    listed(service, "d3b0-u1", "d4aa-u1")
    read = {"logs": {"logs": []}, "attempts": {"createdAt": 1, "attempts": []}}
    answer = {"id": "d3b0-u1", **read[command]} if command in read else DONE
    service.answers[command] = [NO_JOB, (200, answer)]
    job(command, "ep1", "d3")
    calls = [path for path, _, _ in service.requests if f"/{command}/" in path]
    assert [path.split(" ")[1] for path in calls] == [
        f"/v2/ep1/{command}/d3",
        f"/v2/ep1a2b3c/{command}/d3b0-u1",
    ]


@pytest.mark.parametrize("command", [("stream",), ("logs", "--follow")])
def test_a_job_is_followed_by_the_beginning_of_its_id(
    service: Service, capsys: Capture, command: tuple[str, ...]
) -> None:
    listed(service, "d3b0-u1")
    service.answers["events"] = [NO_JOB, (200, events(("end", "", DONE)))]
    service.answers["status"] = [NO_JOB, (200, RUNNING)]
    job(command[0], "ep1a2b3c", "d3", *command[1:])
    assert "COMPLETED" in capsys.readouterr().err


def test_a_beginning_of_two_ids_is_refused_and_both_are_reported(service: Service, capsys: Capture) -> None:
    listed(service, "d3b0-u1", "d3aa-u1")
    service.says("cancel", NO_JOB[1], status=404)
    job("cancel", "ep1", "d3", code=1)
    assert "2 jobs of ep1a2b3c have ids that begin with d3: d3b0-u1, d3aa-u1" in capsys.readouterr().err
    job("cancel", "ep1", "nothing", code=1)
    assert "no such job" in capsys.readouterr().err


def test_a_job_is_submitted_to_an_endpoint_by_the_beginning_of_its_id(
    service: Service, capsys: Capture
) -> None:
    listed(service)
    service.answers["run"] = [(404, {"error": "no such endpoint"}), (200, QUEUED)]
    job("run", "ep9", "--no-wait")
    assert capsys.readouterr().out == "j-u1\n"
    posts = [path for path, _, _ in service.requests if path.startswith("POST")]
    assert posts == ["POST /v2/ep9/run", "POST /v2/ep9z/run"]


@pytest.mark.parametrize(
    ("command", "module"), [(["image", "x"], "image"), (["talk", "a.png", "b.wav"], "talk")]
)
def test_a_hosted_call_takes_the_beginning_of_an_endpoint(
    service: Service, monkeypatch: pytest.MonkeyPatch, command: list[str], module: str
) -> None:
    listed(service)
    requested: list[str] = []
    monkeypatch.setattr(
        f"stoker.cli.jobs.{module}_job.run", lambda request, *_: requested.append(request.endpoint)
    )
    for more in (["--endpoint", "ep1"], []):
        with pytest.raises(SystemExit):
            main([*command, "-o", "out", *more])
    assert requested == ["ep1a2b3c", {"image": "text-to-image", "talk": "talking-video"}[module]]


def test_a_refusal_of_a_key_for_jobs_only_is_reported(service: Service, capsys: Capture) -> None:
    listed(service)
    service.says("/v1/endpoints", {"error": "this key may not"}, status=403)
    service.says("run", {"error": "no such endpoint"}, status=404)
    job("run", "ep9", "--no-wait", code=1)
    assert capsys.readouterr().err == "stoker: no such endpoint\n"


def test_purge_asks_first(service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    service.says("purge-queue", {"removed": 2, "status": "completed"})
    service.says("health", {"jobs": {}, "workers": {}})
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    job("purge", "echo", code=1)
    assert [path for path, _, _ in service.requests] == ["GET /v1/endpoints/echo/health"]
    assert "Cancel every job that waits on echo?" in capsys.readouterr().err
    job("purge", "echo", "--yes")
    assert capsys.readouterr().out == "2 jobs were cancelled\n"


def test_the_webhook_secret_is_the_stores(capsys: Capture) -> None:
    shown = []
    open_chosen(DataFolder.make(DATA_DIR), Config(), {}, None, alone=True).close()
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(["key", "webhook-secret"])
        assert ended.value.code == 0
        shown.append(capsys.readouterr().out)
    assert shown[0].startswith("whsec_")
    assert shown[0] == shown[1]
