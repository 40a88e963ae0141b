"""The reaper: with a killed agent everything ends that it has started; with a clean end nothing is left."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.host.process_tree import reaper
from stoker.agent.host.process_tree.cgroups import Cgroups, NoCgroups
from stoker.agent.host.process_tree.reaper import GIVE_UP_S
from stoker.agent.host.process_tree.reaper_supervisor import REAPER, ReaperSupervisor
from stoker.agent.host.process_tree.tree import process_table
from tests.children import cgroups_of

LIFE = b"STOKER_AGENT_LIFE=that one"
AGENT = """
import asyncio, sys
from pathlib import Path
from stoker.agent.host.process_tree.cgroups import Cgroups, NoCgroups
from stoker.agent.host.sandbox.isolation import Host
from stoker.agent.host.process_tree.reaper_supervisor import ReaperSupervisor
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.wire.messages import WorkerSpec
class Watcher:
    def on_broken(self, why): raise AssertionError(why)
    def on_frame(self, frame): print(supervisor.pid, worker.pid, *frame.fields["children"], flush=True)
    def on_exit(self, exit): print(exit, flush=True)
async def main():
    global supervisor, worker
    folder = Path(sys.argv[1])
    cgroups = Cgroups(folder) if sys.argv[3] == "cgroups" else None
    host = Host(no_cgroups="" if cgroups else "none")
    supervisor = ReaperSupervisor(cgroups and cgroups.path, None)
    spawner = LocalSpawner(folder, module="sinner", host=host, cgroups=cgroups)
    spec = WorkerSpec("w", "e", 1, "m:h", env={"PYTHONPATH": sys.argv[2]})
    worker = spawner.spawn(spec, None, Watcher())
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await spawner.close()
    supervisor.stop()
asyncio.run(main())
"""

DAEMONS = """
sleep = [sys.executable, "-I", "-S", "-c", "import signal\\nwhile True: signal.pause()"]
plain = subprocess.Popen(sleep).pid
own = subprocess.Popen(sleep, start_new_session=True).pid
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(w, str(subprocess.Popen(sleep, start_new_session=True).pid).encode())
    os._exit(0)
os.wait()
children = [plain, own, int(os.read(r, 20))]
"""
WIPED = "children += [subprocess.Popen(sleep, start_new_session=True, env={}).pid]\n"


def agent(tmp_path: Path, prologue: str, script: str, cgroups: str) -> tuple[Any, list[int]]:
    """With one worker and what that has started: reaper, worker, children."""
    (tmp_path / "sinner.py").write_text(f"{prologue}{script}say('ready', children=children)\nforever()\n")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", AGENT, str(tmp_path / "data"), str(tmp_path), cgroups],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


def wait_for_all(pids: list[int]) -> float:
    """Seconds until the last of them has ended, all of them reaped: this process inherits them."""
    began = time.monotonic()
    for pid in pids:
        os.waitpid(pid, 0)
    return time.monotonic() - began


@pytest.fixture(autouse=True)
def subreaper() -> None:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


@pytest.mark.parametrize("how", ["marks", "cgroups"])
def test_all_that_a_killed_agent_has_started_ends(tmp_path: Path, prologue: str, how: str) -> None:
    if how == "cgroups":
        try:
            Cgroups(tmp_path / "probe").close()
        except NoCgroups as why:
            pytest.skip(f"no cgroups here: {why}")
    script = DAEMONS + (WIPED if how == "cgroups" else "")
    process, pids = agent(tmp_path, prologue, script, how)
    assert len(pids) == 5 + (how == "cgroups")
    process.kill()
    process.wait()
    seconds = wait_for_all(pids[1:])
    print(f"killed agent: {len(pids) - 1} processes gone after {seconds * 1000:.0f} ms ({how})")
    assert wait_for_all(pids[:1]) < GIVE_UP_S / 2, "the reaper ends, too, and had not given up"
    process.stdin.close()
    process.stdout.close()
    if how == "cgroups":
        assert cgroups_of(process.pid) == []


def test_a_clean_end_leaves_no_reaper(tmp_path: Path, prologue: str) -> None:
    process, pids = agent(tmp_path, prologue, DAEMONS, "marks")
    out, _ = process.communicate("\n")
    assert "killed by the agent" in out
    assert process.returncode == 0
    assert not set(pids) & process_table().keys()


async def test_another_reaper_is_started_where_one_was_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stoker.agent.host.process_tree.reaper_supervisor.AGAIN_S", 0.0)
    supervisor = ReaperSupervisor(None, None)
    first = supervisor.pid
    os.kill(first, signal.SIGKILL)
    while supervisor.pid == first:  # noqa: ASYNC110  # a process's end sends no event here
        await asyncio.sleep(0)
    assert "another is started" in caplog.text
    assert os.getsid(supervisor.pid) == supervisor.pid
    supervisor.stop()
    assert supervisor.pid not in process_table()


async def test_a_reaper_that_cannot_be_started_is_started_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stoker.agent.host.process_tree.reaper_supervisor.AGAIN_S", 0.0)
    supervisor, start = ReaperSupervisor(None, None), subprocess.Popen

    def none_left(*_: Any, **__: Any) -> Any:
        monkeypatch.setattr(subprocess, "Popen", start)
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", none_left)
    first = supervisor.pid
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(100):
        while supervisor.pid == first:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert "is tried again: [Errno 11] Resource temporarily unavailable" in caplog.text
    supervisor.stop()
    assert supervisor.pid not in process_table()


async def test_stopped_between_two_reapers(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = ReaperSupervisor(None, None)
    os.kill(supervisor.pid, signal.SIGKILL)
    while supervisor._again is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    supervisor.stop()
    await asyncio.sleep(0)
    assert supervisor.pid not in process_table()


def test_it_does_not_end_by_the_signals_of_a_terminal_and_is_small(tmp_path: Path) -> None:
    reaper = subprocess.Popen([sys.executable, "-I", "-S", str(REAPER), str(os.getpid()), "none"])
    blocked = 0
    while not blocked & (1 << (signal.SIGTERM - 1)):
        lines = Path(f"/proc/{reaper.pid}/status").read_text().splitlines()
        blocked = int(next(line for line in lines if line.startswith("SigIgn")).split()[1], 16)
    size = next(line for line in lines if line.startswith("VmRSS")).split()[1]
    print(f"the reaper holds {int(size) >> 10} MiB")
    assert int(size) < 20 << 10
    reaper.kill()
    reaper.wait()


def test_who_just_becomes_another_program_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows neither arguments nor environment; a moment later it is known."""
    with subprocess.Popen(["sleep", "100"], env={"STOKER_AGENT_LIFE": "that one"}) as begins:
        while not reaper.is_ours(str(begins.pid), LIFE, range(0)):
            pass
        read = reaper.read
        monkeypatch.setattr(
            reaper, "read", lambda pid, file: b"" if pid == str(begins.pid) else read(pid, file)
        )
        assert reaper.kill_marked(LIFE, range(0)) >= 1, "others on this host may begin as well"
        assert begins.poll() is None
        monkeypatch.undo()
        assert reaper.kill_marked(LIFE, range(0)) >= 1
        assert begins.wait() == -signal.SIGKILL
    assert reaper.is_ours(str(begins.pid), LIFE, range(0)) is False


def test_a_reaper_whose_agent_is_gone_already(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    marked = subprocess.Popen(["sleep", "100"], env={"STOKER_AGENT_LIFE": "that one"})
    other = subprocess.Popen(["sleep", "100"], env={"STOKER_AGENT_LIFE": "that one2"})
    command = [sys.executable, "-I", "-S", str(REAPER), str(gone.pid), "that one", str(tmp_path / "none"), ""]
    assert subprocess.run(command, check=False).returncode == 0
    assert marked.wait() == -signal.SIGKILL
    assert other.poll() is None
    other.kill()
    other.wait()
