"""Handlers in real containers: jobs, environment, logs, every way to stop, and nothing left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stoker.worker.frames import Frame

pytestmark = pytest.mark.slow


async def test_a_python_handler_runs_a_job(host: Any) -> None:
    worker = host.python("echo")
    await worker.told("ready")
    worker.process.send(Frame("run", {"job": "j", "attempt": 1, "scratch": "/tmp"}, b'{"n": 1}'))
    assert json.loads((await worker.told("done")).body) == {"n": 1}
    worker.process.send(Frame("stop"))
    assert (await worker.exited()).reason == "exited with code 0"
