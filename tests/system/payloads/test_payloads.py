"""Payloads over 1 MB lie in the object store; whoever asks reads them whole, as if they did not.

And what a handler printed can be read after its end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.system.stack import FETCH_S, Stack, files_below, queue_endpoint, running

SIZE = 2 * 1024 * 1024


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("payloads")
    endpoints = [
        queue_endpoint("large", "outputs/large_output.py"),
        queue_endpoint("digest", "outputs/digest.py"),
    ]
    endpoints.append(queue_endpoint("chunks", "streams/emits_large.py"))
    endpoints.append(queue_endpoint("prints", "printing/prints_much.py"))
    with running(folder, *endpoints) as made:
        yield made


def objects(stack: Stack, job: str) -> list[Path]:
    return [path for path in files_below(stack.folder / "data" / "objects") if job in str(path)]


def test_a_large_output_comes_back_inline(stack: Stack) -> None:
    record = stack.runsync("large", {"size": SIZE})
    assert record["status"] == "COMPLETED"
    assert record["output"] == {"text": "x" * SIZE}
    assert [path.stat().st_size > SIZE for path in objects(stack, record["id"])] == [True], "it was spilled"
    assert stack.http.get(f"/large/status/{record['id']}").json() == record
    assert stack.end_of("large", record["id"]) == record


@pytest.mark.slow
def test_an_output_that_no_frame_can_hold_is_given_as_its_address(stack: Stack) -> None:
    size = 90 * 1000 * 1000
    record = stack.runsync("large", {"size": size})
    assert record["status"] == "COMPLETED", record
    place = record["output"]
    assert place["size"] == size + len('{"text":""}')
    with httpx2.stream("GET", place["output_url"], trust_env=False, timeout=FETCH_S) as answer:
        digest = hashlib.sha256()
        for chunk in answer.iter_bytes():
            digest.update(chunk)
    assert digest.hexdigest() == place["sha256"]
    assert stack.runsync("large", {"size": 10})["workerId"] == record["workerId"], "the worker lives on"


def test_a_large_input_reaches_the_handler_whole(stack: Stack) -> None:
    text = hashlib.sha256(b"seed").hexdigest() * (SIZE // 64)
    record = stack.runsync("digest", {"text": text})
    assert record["status"] == "COMPLETED", record
    assert record["output"] == {"length": SIZE, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    assert objects(stack, record["id"]), "it was spilled"


SIZES = [10, 3_000_000, 10, 10, 3_000_000, 3_000_000, 999_000, 10]


def test_large_and_small_chunks_are_streamed_in_their_order(stack: Stack) -> None:
    job = stack.run("chunks", {"sizes": SIZES})
    found: list[tuple[int, int]] = []
    while True:
        answer = stack.http.get(f"/chunks/stream/{job}?wait=60000").json()
        chunks = [chunk["output"] for chunk in answer["stream"]]
        found += [(chunk["n"], len(chunk["text"])) for chunk in chunks]
        if answer["status"] not in {"IN_QUEUE", "IN_PROGRESS"}:
            break
    assert answer["status"] == "COMPLETED", answer["status"]
    assert found == list(enumerate(SIZES))
    assert sum("chunk-" in path.as_posix() for path in objects(stack, job)) == 3, (
        "the large ones were spilled"
    )


def test_they_come_as_events_too(stack: Stack) -> None:
    job = stack.run("chunks", {"sizes": SIZES})
    found: list[tuple[int, int]] = []
    kind = ""
    with stack.http.stream("GET", f"/chunks/stream/{job}", headers={"Accept": "text/event-stream"}) as answer:
        for line in answer.iter_lines():
            word, _, text = line.partition(": ")
            kind = text if word == "event" else kind
            if word == "data" and kind == "chunk":
                chunk = json.loads(text)["output"]
                found.append((chunk["n"], len(chunk["text"])))
    assert kind == "end"
    assert found == list(enumerate(SIZES))


@pytest.mark.parametrize(("then", "end"), [("", "COMPLETED"), ("raise", "FAILED")])
def test_what_was_printed_is_there_after_the_end(stack: Stack, then: str, end: str) -> None:
    record = stack.runsync("prints", {"then": then})
    assert record["status"] == end
    answer = stack.http.get(f"/prints/logs/{record['id']}").json()
    (attempt,) = answer["logs"]
    assert (answer["id"], attempt["attempt"], attempt["worker"]) == (record["id"], 1, record["workerId"])
    assert attempt["lines"] == ["to stderr", "line 0 ", "line 1 ", "line 2 "]
