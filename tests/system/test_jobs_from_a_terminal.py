"""`stoker job` as its own process against real control, agent and worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.stack import SOURCE, Stack, queue_endpoint, running


def start(stack: Stack, *arguments: str) -> subprocess.Popen[str]:
    environment = {"PYTHONPATH": str(SOURCE), "STOKER_URL": stack.facts["http"], "STOKER_API_KEY": stack.key}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "stoker.cli", "job", *arguments],
        env={**os.environ, **environment},
        cwd=stack.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def job(stack: Stack, *arguments: str, code: int = 0) -> tuple[str, str]:
    with start(stack, *arguments) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return out, err


@pytest.mark.slow
def test_a_failed_job_is_listed_read_about_and_tried_again(tmp_path: Path) -> None:
    with running(tmp_path, queue_endpoint("tries", "recording/fails_until_told.py")) as stack:
        out, err = job(stack, "run", "tries", "--set", f"go={tmp_path / 'go'}", code=1)
        assert out == ""
        assert 'chunk {"attempt": 1}' in err.splitlines()
        reported = err.splitlines()[-1]
        assert reported.startswith("stoker: job ")
        assert reported.endswith(" ended FAILED: there is no file yet")

        ((made, *_),) = [line.split("\t") for line in job(stack, "list", "tries")[0].splitlines()]
        assert made in reported
        assert job(stack, "list", "tries", "--status", "COMPLETED")[0] == ""
        assert job(stack, "logs", "tries", made)[0] == "attempt 1 looks for a file\n"

        (tmp_path / "go").touch()
        out, err = job(stack, "retry", "tries", made, "--wait")
        assert json.loads(out) == {"attempt": 2}
        assert 'chunk {"attempt": 2}' in err.splitlines()
        assert 'chunk {"attempt": 1}' not in err.splitlines()
        assert json.loads(job(stack, "status", "tries", made, "--json")[0])["status"] == "COMPLETED"
        assert "attempt 2 looks for a file" in job(stack, "logs", "tries", made)[0].splitlines()
        refused = job(stack, "retry", "tries", made, code=1)[1]
        assert "only FAILED and TIMED_OUT jobs can be retried" in refused


@pytest.mark.slow
def test_control_c_leaves_the_job_running_and_a_purge_takes_what_waits(tmp_path: Path) -> None:
    with running(tmp_path, queue_endpoint("waits", "recording/first_attempt_waits.py")) as stack:
        input_json = json.dumps({"go": str(tmp_path / "go"), "runs": str(tmp_path / "runs")})
        with start(stack, "run", "waits", input_json) as process:
            assert process.stderr is not None
            while not (line := process.stderr.readline()).startswith("chunk"):
                assert line, "it ended before its handler ran"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
        assert process.returncode == 130
        goes_on = err.splitlines()[-1].split()
        assert goes_on[:4] == ["job", goes_on[1], "goes", "on;"]
        assert "--from 1-0;" in err

        (tmp_path / "input.json").write_text(input_json)
        once = ("run", "waits", "@input.json", "--no-wait", "--idempotency-key", "once")
        waiting = job(stack, *once)[0].strip()
        assert job(stack, *once)[0].strip() == waiting
        assert "another" in job(stack, *once, "--set", "more=1", code=1)[1]
        assert job(stack, "purge", "waits", "--yes")[0] == "1 job was cancelled\n"
        assert "purged" in job(stack, "stream", "waits", waiting, code=1)[1]

        (tmp_path / "go").touch()
        out, err = job(stack, "stream", "waits", goes_on[1])
        assert json.loads(out)["attempt"] == 1
        assert f"job {goes_on[1]} COMPLETED" in err
