"""A handler that is edited while its job runs: the new code gets no save of the old one, and the attempts say
so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.stack import Stack, queue_endpoint

HANDLER = """
import json, threading

WORD = "first"

def handler(job):
    words = [] if job.saved is None else json.loads(job.saved)
    words.append(WORD)
    job.emit(WORD)
    job.save(json.dumps(words).encode())
    while job.attempt == 1:
        threading.Event().wait(1)
    return words
"""


@pytest.mark.parametrize("edited", [False, True])
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
    assert len(reasons) == edited, attempts
    assert all("its save was made by source " in why and " runs source " in why for why in reasons)
