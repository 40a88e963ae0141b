"""The secret of a job's own bucket: where it must not be, with everything logged that can be.

Control and agent run with all loggers at DEBUG, those of their libraries too.
"""

from __future__ import annotations

import json
import runpy
import secrets
from pathlib import Path

import pytest

from stoker.agent.jobs.reports.outbox_file import OutboxFile, decode
from stoker.worker.testing import LocalJob
from tests.system import stack as stack_module
from tests.system.payloads.test_own_bucket import FILE, PRIVATE_ALLOWED, own_bucket, secret_is_nowhere
from tests.system.stack import HANDLERS, Stack, queue_endpoint, running
from tests.system.workers.test_protocol_workers import STOCK, program

LOOKS = queue_endpoint("looks", "access/looks_for_a_secret.py")
EVERYTHING = """
import logging
set_level, configure = logging.Logger.setLevel, logging.basicConfig
logging.Logger.setLevel = lambda self, level: set_level(self, logging.DEBUG)
logging.basicConfig = lambda **given: configure(**{**given, "level": logging.DEBUG})
"""


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _everything_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "customized"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(EVERYTHING)
    monkeypatch.setattr(stack_module, "SOURCE", f"{folder}:{stack_module.SOURCE}")


def halves(secret: str) -> dict[str, str]:
    return {"first": secret[:12], "rest": secret[12:][::-1]}


def test_a_python_handler_has_it_in_its_memory_and_no_file_holds_it(tmp_path: Path) -> None:
    with running(tmp_path, PRIVATE_ALLOWED, FILE, LOOKS) as stack:
        bucket = own_bucket(stack)
        secret = bucket["accessSecret"]
        assert stack.runsync("file", {"text": "mine"}, s3Config=bucket)["status"] == "COMPLETED"
        assert " DEBUG " in stack.log("agent")
        job_input = {**halves(secret), "announce": str(tmp_path / "go")}
        job = stack.run("looks", job_input, s3Config=bucket)
        stack.in_progress("looks", job)
        secret_is_nowhere(stack, secret)
        stack.kill("control")
        (tmp_path / "go").touch()
        assert secret not in outbox_with(stack, job)
        secret_is_nowhere(stack, secret)
        stack.start_control()
        record = stack.end_of("looks", job)
        assert record["status"] == "COMPLETED", record
        assert record["output"] == {"found": ["memory"], "readable": True}
        assert secret not in json.dumps(record)
        secret_is_nowhere(stack, secret)


def outbox_with(stack: Stack, job: str) -> str:
    """What lies on the agent's disk once the outcome does: control is away."""
    outbox = OutboxFile(stack.folder / "agent" / "outbox")
    while True:
        data = outbox.load()
        kept = repr(None if data is None else decode(data))
        if job in kept and "readable" in kept:
            return kept


@pytest.mark.skipif(
    not STOCK.exists(), reason=f"there is no {STOCK.name} with the stock SDK; .ci/peers makes it"
)
def test_a_program_gets_it_and_no_file_holds_it(tmp_path: Path) -> None:
    """The stock SDK's helper uploads with it."""
    with running(tmp_path, PRIVATE_ALLOWED, program("uploads", "uploads")) as stack:
        bucket = own_bucket(stack)
        record = stack.runsync("uploads", {"text": "for the caller"}, s3Config=bucket)
        assert record["status"] == "COMPLETED", record
        assert f"/callers/{record['id']}/a.txt?" in record["output"]["url"]
        secret_is_nowhere(stack, bucket["accessSecret"])


def test_the_handler_would_find_it(tmp_path: Path) -> None:
    """Here it is in its memory: that of this process."""
    secret = secrets.token_hex(20)
    handler = runpy.run_path(str(HANDLERS / "access/looks_for_a_secret.py"))["handler"]
    found = LocalJob(handler, halves(secret)).run().result()["found"]
    assert found == ["memory"]
    assert secret
