"""What handlers are shut in with under a real agent; and that nobody outlives one that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stoker.agent.host.process_tree.tree import process_table
from tests.system.preloaded import preloaded
from tests.system.stack import SOURCE, STOP_S, Stack, queue_endpoint
from tests.system.workers.test_protocol_workers import STOCK, program

ENDPOINT = queue_endpoint("tells", "access/tells_what_it_sees.py", networkVolumeId="weights")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One for all: whoever ends its agent starts it again."""
    tmp_path = tmp_path_factory.mktemp("stack")
    endpoints = [ENDPOINT]
    if STOCK.exists():
        endpoints.append(program("stock", "mixed"))
    else:
        print(f"without a stock program: there is no {STOCK}")
    made = Stack(tmp_path, *endpoints)
    (tmp_path / "volumes").mkdir()
    made.executed = True
    made.agent_options = ["--volume-root", str(tmp_path / "volumes")]
    try:
        made.start()
        yield made
    finally:
        made.stop()


def of_the_agent(stack: Stack) -> list[int]:
    """Living processes that carry the mark of this stack's agent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("STOKER_AGENT") == str(stack.folder / "agent"):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def seconds_until_gone(pids: list[int]) -> float:
    began = time.monotonic()
    fds = []
    for pid in pids:
        try:
            fds.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
    for fd in fds:
        assert select.select([fd], [], [], 60)[0], f"{pids}: one lives on"
        os.close(fd)
    return time.monotonic() - began


def reaper_of(stack: Stack) -> int:
    found = []
    for child in psutil.Process(stack.agent.pid).children():
        with contextlib.suppress(psutil.Error):  # others come and go
            found += [child.pid] if any(part.endswith("reaper.py") for part in child.cmdline()) else []
    (reaper,) = found
    return reaper


def found_inside(stack: Stack, **more: Any) -> dict[str, Any]:
    record = stack.runsync("tells", {"daemons": 0, **more})
    assert record["status"] == "COMPLETED", record
    return dict(record["output"])


@pytest.mark.slow
def test_nobody_outlives_a_killed_agent(stack: Stack) -> None:
    found_inside(stack, daemons=3)
    if STOCK.exists():  # its ping is a child of its own
        assert stack.runsync("stock", {"do": "return", "value": 1})["status"] == "COMPLETED"
    pids, reaper = of_the_agent(stack), reaper_of(stack)
    assert len(pids) >= 4 + STOCK.exists()
    stack.kill("agent")
    seconds = seconds_until_gone(pids)
    print(f"agent killed: {len(pids)} processes gone after {seconds * 1000:.0f} ms")
    seconds_until_gone([reaper])  # too, once it finds nobody
    assert of_the_agent(stack) == []
    stack.start_agent()


def test_a_next_agent_removes_what_is_left(stack: Stack) -> None:
    found_inside(stack, daemons=2)
    pids = of_the_agent(stack)
    os.kill(stack.agent.pid, signal.SIGSTOP)  # or it would start another reaper
    os.kill(reaper_of(stack), signal.SIGKILL)
    stack.kill("agent")
    left = [pid for pid, seen in process_table().items() if pid in pids and not seen.zombie]
    assert len(left) >= 2, "daemons outlive an agent without a reaper"
    for name in ("homes", "scratch"):
        (stack.folder / "agent" / name / "left").mkdir(parents=True)
    stack.start_agent()
    assert not set(left) & set(of_the_agent(stack))
    assert not (stack.folder / "agent" / "homes" / "left").exists()
    assert not (stack.folder / "agent" / "scratch" / "left").exists()
    found_inside(stack)


def test_a_clean_end_leaves_no_keeper(stack: Stack) -> None:
    reaper = reaper_of(stack)
    found_inside(stack, daemons=1)
    stack.agent.send_signal(signal.SIGTERM)
    assert stack.agent.wait(STOP_S) == 0
    assert not psutil.pid_exists(reaper)
    assert of_the_agent(stack) == []
    stack.start_agent()


def test_no_secret_of_the_platform_is_there_to_read(stack: Stack) -> None:
    reported = found_inside(stack)
    assert reported["parent"] == stack.agent.pid
    own, agents = reported["seen"]
    for text in (own, agents):
        assert stack.join not in text
        assert stack.key not in text
    assert {one.partition("=")[0] for one in own.split("\0") if one.startswith("STOKER_")} == {
        *("STOKER_WORKER", "STOKER_AGENT", "STOKER_AGENT_LIFE", "STOKER_WEIGHTS_DIR", "STOKER_VOLUME_PATH"),
    }


def test_a_volume_and_the_nodes_record(stack: Stack) -> None:
    reported = found_inside(stack)
    assert (stack.folder / "volumes" / "weights" / "written").exists()
    database = next((stack.folder / "data").glob("*.db"))
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        (text,) = connection.execute("SELECT facts FROM nodes").fetchone()
    facts = json.loads(text)
    print(json.dumps(facts, indent=1))
    for name in ("user", "no_new_privs", "rlimits", "bubblewrap", "cgroups", "memory"):
        assert facts[f"isolation.{name}"].startswith(("yes", "no: "))
    assert facts["isolation.bubblewrap"].startswith("no: "), "workers are the agent's own user"
    assert ("at /runpod-volume" in facts["volumes"]) == (reported["volume"] == "/runpod-volume")


def test_half_of_a_choice_is_reported_with_a_message(tmp_path: Path) -> None:
    for options, message in (
        (
            ["--worker-users", "5-2"],
            "--worker-users is a range of user ids like 100000-100999, or auto; got '5-2'",
        ),
        (["--volume-root", "/nowhere"], "the volume root /nowhere is not a folder"),
        (["--worker-users", "1-2", "--worker-user", "nobody"], "give one of the two"),
    ):
        command = ["agent", "--control", "127.0.0.1:1", "--data-dir", str(tmp_path / "agent"), *options]
        env = {**os.environ, "STOKER_JOIN_TOKEN": "jt"}
        with open(tmp_path / "printed", "wb") as printed, open(os.devnull, "wb") as ready:
            ended = preloaded(SOURCE).start(command, env, tmp_path, printed.fileno(), ready.fileno())
        assert ended.wait(60) != 0
        assert message in " ".join((tmp_path / "printed").read_text().split())


def others_run_it() -> bool:
    """Whether another user can run this interpreter: one below /root is root's alone."""
    real = Path(sys.executable).resolve()
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (real, *real.parents))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
@pytest.mark.skipif(not others_run_it(), reason=f"other users cannot run {sys.executable}")
def test_an_agent_of_root_finds_users_for_its_workers() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        made = Stack(folder, queue_endpoint("uid", "access/tells_its_user.py"))
        made.agent_options = ["--worker-users", "auto"]
        try:
            made.start()
            first, last = map(int, (folder / "agent" / "worker_users").read_text().split("-"))
            assert first <= made.runsync("uid", {})["output"] <= last
            assert "HANDLERS RUN AS ROOT" not in made.log("agent")
        finally:
            made.stop()
