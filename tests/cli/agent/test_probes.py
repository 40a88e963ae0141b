"""The agent's probes: of a real agent beside a real control that stops and comes back; and their address."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

import stoker
from stoker.cli.agent import probes
from stoker.cli.agent.probes import probes_listener
from stoker.cli.errors import CliError
from tests.system.stack import START_S, Stack, queue_endpoint, until


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


@pytest.fixture
def stack(tmp_path: Path, port: int) -> Iterator[Stack]:
    made = Stack(tmp_path, queue_endpoint("echo", "outputs/echo.py"))
    made.agent_options = ["--probes", f"127.0.0.1:{port}"]
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_ready_while_there_is_a_session_and_metrics_of_what_is_here(stack: Stack, port: int) -> None:
    def get(path: str) -> httpx2.Response:
        return httpx2.get(f"http://127.0.0.1:{port}{path}", trust_env=False)

    def ready() -> tuple[int, Any]:
        answer = get("/ready")
        return answer.status_code, answer.json()["checks"]["control"]

    assert stack.runsync("echo", {"n": 1})["output"] == {"n": 1}
    assert ready() == (200, "ok")
    families = text_string_to_metric_families(get("/metrics").text)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert found["stoker_agent_connected",] == 1
    assert found["stoker_agent_workers", "echo", "ready"] == 1
    assert found["stoker_agent_upload_failures_total",] == 0
    assert found["stoker_agent_build_info", stoker.__version__] == 1
    assert found["stoker_agent_disk_free_bytes",] > 0
    assert "stoker_agent_loop_lag_seconds_count" in {name for name, *_ in found}
    stack.kill("control")
    until(lambda: ready() == (503, "there is no session with control"), START_S, "an outage", ready)
    assert get("/healthz").status_code == 200
    stack.start_control()
    until(lambda: ready() == (200, "ok"), START_S, "the session again", ready)


async def test_a_loop_that_stands_still_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LAG_EVERY_S", 0.0)
    lag = probes.LoopLag()

    def late() -> float | None:
        above = lag.registry.get_sample_value("stoker_agent_loop_lag_seconds_bucket", {"le": "0.05"})
        count = lag.registry.get_sample_value("stoker_agent_loop_lag_seconds_count")
        return None if count is None or above is None else count - above

    watching = asyncio.create_task(lag.watch())
    await asyncio.sleep(0)
    stands_still_s = time.monotonic() + 0.1
    while time.monotonic() < stands_still_s:
        pass
    for _ in range(3):
        await asyncio.sleep(0)
    watching.cancel()
    assert late()


def test_a_wrong_address_is_a_sentence() -> None:
    for address in ("9101", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", ":9101"):
        with pytest.raises(CliError, match="--probes is HOST:PORT, such as"):
            probes_listener(address)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            CliError, match=f"--probes {address} cannot be listened at: Address already in use"
        ):
            probes_listener(address)
