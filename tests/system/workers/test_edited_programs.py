"""A handler that is edited while its job runs: the new code gets no save of the old one, and the attempts say
so."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.system.stack import Stack, queue_endpoint

HANDLER = """
import json, threading

WORD = "first"

def handler(job):
    words = json.loads(job.saved or b"[]")
    if not words:
        job.save(b"[]")  # so the first chunk is seen once a save covers it
    words.append(WORD)
    job.emit(WORD)
    job.save(json.dumps(words).encode())
    while job.attempt == 1:
        threading.Event().wait(1)
    return words
"""


SHORT = """
import os

def handler(job):
    return {"pid": os.getpid(), "word": "first"}
"""


@pytest.mark.slow
def test_a_worker_that_dies_after_a_restart_of_control_runs_the_edited_code(tmp_path: Path) -> None:
    file = tmp_path / "words.py"
    file.write_text(SHORT)
    (tmp_path / "stack").mkdir()
    endpoint = queue_endpoint("words", "", imageName=f"local:{file}:handler")
    stack = Stack(tmp_path / "stack", endpoint)
    stack.config.write_text(f'local_roots = ["{tmp_path}"]\n{endpoint}')
    try:
        stack.start()
        first = stack.runsync("words", {})["output"]
        stack.kill("control")
        file.write_text(SHORT.replace("first", "second"))
        stack.start_control()
        again = stack.runsync("words", {})["output"]
        os.kill(first["pid"], signal.SIGKILL)
        last = stack.runsync("words", {})["output"]
    finally:
        stack.stop()
    assert again == first, "what runs is not ended for it"
    assert last["word"] == "second"


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.slow
def test_new_code_begins_anew_and_the_same_code_goes_on(tmp_path: Path, edited: bool) -> None:
    code = tmp_path / "code"
    code.mkdir()
    file = code / "words.py"
    file.write_text(HANDLER)
    endpoint = queue_endpoint("words", "", imageName=f"local:{file}:handler")
    stack = Stack(tmp_path, endpoint)
    stack.config.write_text(f'local_roots = ["{code}"]\n{endpoint}')
    try:
        stack.start()
        job = stack.run("words", {})
        assert stack.first_chunk("words", job) == "first"
        stack.kill("agent")
        stack.kill("control")
        if edited:
            file.write_text(HANDLER.replace("first", "second"))
        stack.start_control()
        stack.start_agent()
        record = stack.end_of("words", job)
        attempts = stack.http.get(f"/words/attempts/{job}").json()["attempts"]
    finally:
        stack.stop()
    assert record["status"] == "COMPLETED", record
    assert record["output"] == (["second"] if edited else ["first", "first"])
    reasons = [one["reason"] for one in attempts if "begins anew" in str(one.get("reason"))]
    assert len(reasons) == edited, f"{attempts}\n{stack.log('control')}\n{stack.log('agent')}"
    assert all("its save was made by source " in why and " runs source " in why for why in reasons)
