"""Inputs and outputs over 1 MB lie in the object store; whoever asks reads them whole, as if they did not."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from stack import Stack, queue_endpoint, running

SIZE = 2 * 1024 * 1024


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("payloads")
    endpoints = [queue_endpoint("large", "large_output.py"), queue_endpoint("digest", "digest.py")]
    with running(folder, *endpoints) as made:
        yield made


def objects(stack: Stack, job: str) -> list[Path]:
    kept = (stack.folder / "data" / "objects").rglob("*")
    return [path for path in kept if job in str(path) and path.is_file()]


def test_a_large_output_comes_back_inline(stack: Stack) -> None:
    record = stack.runsync("large", {"size": SIZE})
    assert record["status"] == "COMPLETED"
    assert record["output"] == {"text": "x" * SIZE}
    assert [path.stat().st_size > SIZE for path in objects(stack, record["id"])] == [True], "it was spilled"
    assert stack.http.get(f"/large/status/{record['id']}").json() == record
    assert stack.end_of("large", record["id"]) == record


def test_a_large_input_reaches_the_handler_whole(stack: Stack) -> None:
    text = hashlib.sha256(b"seed").hexdigest() * (SIZE // 64)
    record = stack.runsync("digest", {"text": text})
    assert record["status"] == "COMPLETED", record
    assert record["output"] == {"length": SIZE, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    assert objects(stack, record["id"]), "it was spilled"
