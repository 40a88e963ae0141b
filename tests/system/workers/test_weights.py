"""Nodes fetch the weights of their workers: real processes, and a hub on loopback."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.models.weights import Entry, Lock, lock_from_folder, write_lock
from tests.servers.weights_server import COMMIT, REPOSITORY, WeightsServer, weights_server
from tests.system.stack import Stack, queue_endpoint, until

PATIENCE_S = 120.0
SIZE = 3_000_000
HEAD = (2).to_bytes(8, "little") + b"{}"
FILES = {name: {"model.safetensors": HEAD + os.urandom(SIZE - 10)} for name in ("first", "second")}


def lock(folder: Path) -> str:
    entries = []
    for name, files in FILES.items():
        (folder / name).mkdir()
        for path, data in files.items():
            (folder / name / path).write_bytes(data)
        made = lock_from_folder(Entry(name, "folder", "none", ()), folder / name)
        entries.append(Entry(name, f"huggingface:{REPOSITORY}-{name}", "none", made.files, COMMIT))
    write_lock(Lock(entries), folder / "our.lock")
    return str(folder / "our.lock")


@pytest.fixture
def hub() -> Iterator[WeightsServer]:
    with weights_server() as serves:
        for name, files in FILES.items():
            for path, data in files.items():
                serves.files[f"/{REPOSITORY}-{name}/resolve/{COMMIT}/{path}"] = data
        yield serves


@pytest.fixture
def stack(tmp_path: Path, hub: WeightsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path / "weights-1"))
    monkeypatch.setenv("STOKER_WEIGHTS_CACHE_MB", "4")
    (tmp_path / "made").mkdir()
    locked = lock(tmp_path / "made")
    needs = {"workersMin": 0, "idleTimeout": 1, "weightsLock": locked}
    endpoints = [queue_endpoint(name, "outputs/echo.py", weights=[name], **needs) for name in FILES]
    made = Stack(tmp_path, *endpoints, queue_endpoint("other", "outputs/echo.py"))
    made.agent_options = ["--name", "gpu-1"]
    try:
        made.start()
        yield made
    finally:
        made.stop()


def reason(stack: Stack, endpoint: str, job: str) -> str:
    return str(stack.status(endpoint, job).get("reason", ""))


def waits(stack: Stack, endpoint: str, job: str, said: str) -> None:
    until(
        lambda: said in reason(stack, endpoint, job), PATIENCE_S, said, lambda: reason(stack, endpoint, job)
    )


def held(stack: Stack) -> dict[str, list[str]]:
    """What each node is known to hold, by the node's name."""
    nodes = stack.http.get(f"{stack.facts['http']}/v1/nodes").json()
    return {node["name"]: [one["name"] for one in node["weights"]] for node in nodes}


@pytest.mark.slow
def test_a_node_fetches_resumes_evicts_and_is_preferred(
    stack: Stack, hub: WeightsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fresh node: the job waits, and says how far its weights are.
    hub.gate, hub.gate_at = threading.Event(), 1_500_000
    job = stack.run("first", {"x": 1})
    waits(stack, "first", job, "node gpu-1 fetches the weights first: 1.")
    assert " of 3.0 MB" in reason(stack, "first", job)
    health = stack.http.get("/first/health").json()
    assert health["reason"].startswith("node gpu-1 fetches the weights first: ")
    assert health["workers"]["initializing"] == 1

    # Killed in the middle, it goes on where it was, and its worker starts.
    stack.kill("agent")
    gate, hub.gate = hub.gate, None
    gate.set()
    (part,) = (tmp_path / "weights-1").glob(".first@*.part/model.safetensors")
    assert 0 < part.stat().st_size < SIZE
    there = part.stat().st_size
    stack.start_agent()
    assert stack.end_of("first", job)["status"] == "COMPLETED"
    assert hub.seen[-1][1] == f"bytes={there}-"
    assert (tmp_path / "weights-1" / "first" / "model.safetensors").read_bytes() == FILES["first"][
        "model.safetensors"
    ]
    until(
        lambda: held(stack) == {"gpu-1": ["first"]}, PATIENCE_S, "a node that holds it", lambda: held(stack)
    )

    # There is room for one: the other goes once no worker uses it.
    assert stack.end_of("second", stack.run("second", {"x": 2}))["status"] == "COMPLETED"
    assert not (tmp_path / "weights-1" / "first").exists()
    until(lambda: held(stack) == {"gpu-1": ["second"]}, PATIENCE_S, "another one", lambda: held(stack))

    # A second node is emptier, and holds nothing: the worker goes where its weights are.
    until(
        lambda: stack.http.get("/second/health").json()["workers"]["ready"] == 0,
        PATIENCE_S,
        "an idle endpoint",
    )
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path / "weights-2"))
    command = ["agent", "--control", stack.facts["grpc"], "--data-dir", str(stack.folder / "agent-2")]
    second, _ = stack._start([*command, "--name", "gpu-2"], "second_agent", {})
    try:
        until(lambda: len(held(stack)) == 2, PATIENCE_S, "a second node", lambda: held(stack))
        asked = len(hub.seen)
        assert stack.end_of("second", stack.run("second", {"x": 3}))["status"] == "COMPLETED"
        assert len(hub.seen) == asked, "nothing was fetched"
        assert "which holds the weights second" in stack.log("control")
        assert not (tmp_path / "weights-2").exists()
    finally:
        second.send_signal(signal.SIGTERM)
        second.wait()


@pytest.mark.slow
def test_what_cannot_be_had_is_said_and_is_no_crash_loop(stack: Stack, hub: WeightsServer) -> None:
    path = f"/{REPOSITORY}-first/resolve/{COMMIT}/model.safetensors"
    hub.statuses[path] = 401
    job = stack.run("first", {"x": 1})
    waits(stack, "first", job, "node gpu-1 cannot get the weights first: ")
    said = reason(stack, "first", job)
    assert (
        f"model.safetensors of {REPOSITORY}-first at {COMMIT} is refused (401); this agent has no HF_TOKEN"
        in said
    )
    assert "crash loop" not in json.dumps(stack.http.get("/first/health").json())
    assert len(hub.seen) == 1
