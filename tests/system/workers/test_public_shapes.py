"""Handlers in the shapes in which public worker repositories write them, run by the stock worker SDK."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.stack import PROGRAMS, Stack, queue_endpoint, running
from tests.system.workers.test_protocol_workers import STOCK, program

CHAT = {"openai_route": "/v1/chat/completions"}
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if not STOCK.exists():
        why = STOCK.parents[2] / "python.why"
        pytest.skip(why.read_text().strip() if why.exists() else f"there is no {STOCK}; .ci/peers makes it")
    command = [str(STOCK), "-u", "src/handler.py"]
    language_model = queue_endpoint(
        "llm",
        "",
        imageName=f"local:{PROGRAMS / 'language_model'}",
        dockerStartCmd=command,
        concurrency=8,
    )
    programs = (language_model, program("pictures", "pictures"), program("speech", "speech"))
    with running(tmp_path_factory.mktemp("stack"), *programs) as stack:
        yield stack


def streamed(stack: Stack, endpoint: str, job: str) -> list[Any]:
    reported: list[Any] = []
    while True:
        answer = stack.http.get(f"/{endpoint}/stream/{job}").json()
        reported += [one["output"] for one in answer["stream"]]
        if answer["status"] not in ("IN_QUEUE", "IN_PROGRESS"):
            return reported


# ---- language models


@pytest.mark.slow
def test_tokens_of_an_engine_that_batches(stack: Stack) -> None:
    """All of them at once on one worker: the stock worker asks for one, then for as many as are free."""
    jobs = [stack.run("llm", {"prompt": "a b c d", "together": 6}) for _ in range(6)]
    records = [stack.end_of("llm", job) for job in jobs]
    assert {record["status"] for record in records} == {"COMPLETED"}
    tokens = [[batch["choices"][0]["tokens"][0] for batch in record["output"]] for record in records]
    assert tokens == [["a", "b", "c", "d"]] * 6
    assert {batch["at_once"] for record in records for batch in record["output"]} == {6}
    assert len({record["workerId"] for record in records}) == 1


def test_openai_requests_pass_through(stack: Stack) -> None:
    requested = {"model": "tiny", "messages": MESSAGES, "stream": False}
    record = stack.runsync("llm", {**CHAT, "openai_input": requested})
    assert record["output"][0]["choices"][0]["message"]["content"] == "HELLO"
    record = stack.runsync("llm", {"openai_route": "/v1/models"})
    assert record["output"][0]["data"] == [{"id": "tiny", "object": "model"}]


def test_openai_chunks_stay_text_of_events(stack: Stack) -> None:
    job = stack.run("llm", {**CHAT, "openai_input": {"model": "tiny", "messages": MESSAGES, "stream": True}})
    reported = streamed(stack, "llm", job)
    assert reported[-1] == "data: [DONE]\n\n"
    texts = [
        json.loads(line.removeprefix("data: "))["choices"][0]["delta"]["content"] for line in reported[:-1]
    ]
    assert texts == ["Good", "morning"]
    assert stack.end_of("llm", job)["output"] == reported


def test_an_error_that_is_yielded_fails_the_job(stack: Stack) -> None:
    record = stack.runsync("llm", {**CHAT, "openai_input": {"model": "large"}})
    assert record["status"] == "FAILED"
    assert "The model large does not exist." in record["error"]


# ---- images


def test_an_image_in_base64_from_a_model_that_is_loaded_once(stack: Stack) -> None:
    first, second = (stack.runsync("pictures", {"prompt": name})["output"] for name in ("cats", "dogs"))
    assert base64.b64decode(first["image"]) == b"a picture of cats"
    assert base64.b64decode(second["image"]) == b"a picture of dogs"
    assert first["loaded_in"] == second["loaded_in"]
    assert first["checked"] == ["weights", "device"], "each check of its fitness ran before the first job"


def test_an_input_that_its_schema_refuses(stack: Stack) -> None:
    for job_input, message in (
        ({"size": 1}, "prompt is a required input"),
        ({"prompt": 7}, "prompt should be"),
    ):
        record = stack.runsync("pictures", job_input)
        assert record["status"] == "FAILED"
        assert message in record["error"]


def test_progress_and_the_lines_of_its_logger(stack: Stack) -> None:
    job = stack.run("pictures", {"prompt": "birds", "steps": 50})
    record = stack.end_of("pictures", job)
    assert record["status"] == "COMPLETED"
    assert stack.http.get(f"/pictures/status/{job}").json() == record, "late progress changes nothing"
    lines = stack.http.get(f"/pictures/logs/{job}").json()["logs"][0]["lines"]
    reported = [json.loads(line) for line in lines if line.startswith("{")]
    assert {"drawing"} <= {one["message"] for one in reported if one["requestId"] == job}


@pytest.mark.slow
def test_a_worker_that_asks_for_a_fresh_one(stack: Stack) -> None:
    requests = stack.runsync("pictures", {"prompt": "a", "worker_refresh": True})
    after = stack.runsync("pictures", {"prompt": "b"})
    assert "refresh_worker" not in requests["output"]
    assert requests["output"]["loaded_in"] != after["output"]["loaded_in"]
    assert after.get("retries", 0) == 0


# ---- speech


def test_what_it_downloads_lies_in_a_folder_of_its_own(stack: Stack) -> None:
    before = names()
    record = stack.runsync("speech", {"audio": "hello"})
    assert record["status"] == "COMPLETED", record
    output = record["output"]
    assert (output["text"], output["left"]) == ("HELLO", [record["id"]])
    assert output["beside"].startswith('"""A plain generator'), "the endpoint's files are there"
    assert names() == before


def names() -> set[str]:
    """Beside what an interpreter of some other test leaves there."""
    return {path.name for path in PROGRAMS.iterdir()} - {"__pycache__"}
