"""The secret key rotated while control serves: nothing that is sealed is lost, and the old key may go."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.system.stack import Stack, queue_endpoint, running
from tests.system.test_backups import Load, stoker

SHORT = queue_endpoint("short", "recording/first_attempt_waits.py", workersMin=2, workersMax=2)


def put_secret(stack: Stack, name: str) -> None:
    answer = httpx2.put(
        f"{stack.facts['http']}/v1/secrets/{name}",
        json={"value": "of-the-caller"},
        headers={"Authorization": f"Bearer {stack.key}"},
        trust_env=False,
        timeout=60,
    )
    assert answer.status_code in (200, 201), answer.text


@pytest.mark.slow
def test_a_key_is_rotated_under_load_and_the_old_one_dropped(tmp_path: Path) -> None:
    with running(tmp_path, SHORT) as stack:
        put_secret(stack, "before")
        with Load(stack) as load:
            load.more(4)
            rotated = stoker(stack, "database", "rotate-key")
            assert rotated.returncode == 0, rotated.stderr
            put_secret(stack, "between")
            load.more(4)
            dropped = stoker(stack, "database", "rotate-key", "--drop-old")
            assert dropped.returncode == 0, dropped.stderr
            put_secret(stack, "after")
            load.more(4)
        assert len((tmp_path / "data" / "secret.key").read_bytes().split()) == 1
        stack.kill("control")
        stack.start_control()
        assert stack.runsync("short", {"go": "/", "runs": str(tmp_path / "runs")})["status"] == "COMPLETED"
        for said in ("another key", "stay in use"):
            assert said not in stack.log("control")
