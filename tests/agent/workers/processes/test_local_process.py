# ruff: noqa: ASYNC220, ASYNC222, ASYNC240  # waiting for real processes is what these tests do
"""Workers as real processes: what they are given, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs.tail import TailListener
from stoker.agent.host.process_tree import tree
from stoker.agent.host.process_tree.memory_watch import used
from stoker.agent.host.process_tree.tree import marked, process_table, reap_strays
from stoker.agent.host.sandbox.isolation import Host, SandboxPlan
from stoker.agent.host.sandbox.launching import launch, order
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.processes.environment import python_environment, runs_functions
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.wire.messages import Device, WorkerSpec
from stoker.worker.frames import Frame
from tests.other_users import SYSTEM_PYTHON, other_users

SLEEP = "forever()"


async def test_the_real_runtime_echoes(python_worker: Any) -> None:
    process, watcher = python_worker("outputs/echo")
    await watcher.next("ready")
    process.send(Frame("run", {"job": "j", "attempt": 1, "scratch": "/tmp"}, b'{"a":1}'))
    done = await watcher.next("done")
    assert json.loads(done.body) == {"a": 1}
    process.send(Frame("stop"))
    assert (await watcher.exit).reason == "exited with code 0"


async def test_the_last_frames_of_one_that_has_ended_come_when_it_is_not_alive(
    start: Any, new_watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[bool] = []
    monkeypatch.setattr(new_watcher, "on_frame", lambda self, _: alive.append(self.process.alive))
    process, watcher = start('say("ready")')
    assert process.alive
    process.pause()
    await watcher.exit
    assert alive == [False]


# ---- what a worker is given -------------------------------------------------------------------


async def test_the_environment_is_the_declared_one(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_API_KEY", "a secret of the platform")
    monkeypatch.setenv("LD_PRELOAD", "")
    _, watcher = start('say("ready", **os.environ)', env={"TOKEN": "declared", "LANG": "de_DE.UTF-8"})
    job_input = (await watcher.next("ready")).fields
    assert set(job_input) <= {
        *("PATH", "HOME", "LANG", "PYTHONPATH", "TOKEN"),
        *("CUDA_VISIBLE_DEVICES", "STOKER_WORKER", "STOKER_AGENT", "STOKER_AGENT_LIFE", "LC_CTYPE"),
    }
    assert job_input["TOKEN"] == "declared"
    assert job_input["LANG"] == "de_DE.UTF-8"
    assert job_input["CUDA_VISIBLE_DEVICES"] == ""
    assert job_input["STOKER_WORKER"] == "w1"
    assert job_input["HOME"] == str(tmp_path / "data" / "homes" / "w1.1")
    assert job_input["PYTHONPATH"].split(":")[1] == str(tmp_path)


def test_the_marks_and_the_device_cannot_be_declared_away() -> None:
    declared = {"STOKER_WORKER": "other", "CUDA_VISIBLE_DEVICES": "all"}
    spec = WorkerSpec("w2", "e", 1, "m:h", devices=("GPU-1",), env=declared)
    made = python_environment(spec, Device("GPU-1", "gpu", "a GPU"), Path("/home"), Path("/data"))
    assert made["STOKER_WORKER"] == "w2"
    assert made["CUDA_VISIBLE_DEVICES"] == "GPU-1"


@pytest.mark.parametrize("kind", ["gpu", "mig"])
def test_a_worker_sees_all_its_devices_in_their_order(kind: str) -> None:
    spec = WorkerSpec("w2", "e", 1, "m:h", devices=("GPU-7", "GPU-1"))
    made = python_environment(spec, Device("GPU-7", kind, "a GPU"), Path("/home"), Path("/data"))
    assert made["CUDA_VISIBLE_DEVICES"] == "GPU-7,GPU-1"


def test_a_worker_on_a_processor_sees_no_gpu() -> None:
    spec = WorkerSpec("w2", "e", 1, "m:h", devices=("cpu",))
    made = python_environment(spec, Device("cpu", "cpu", "a processor"), Path("/home"), Path("/data"))
    assert made["CUDA_VISIBLE_DEVICES"] == ""


async def test_no_descriptor_but_the_socket_comes_along(start: Any) -> None:
    leaked = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        _, watcher = start(
            """
            fds = sorted(map(int, os.listdir("/proc/self/fd")))[:-1]  # the last is that of the listing
            say("ready", fds=fds, stdin=os.readlink("/proc/self/fd/0"), session=os.getsid(0) == os.getpid())
            """
        )
        job_input = (await watcher.next("ready")).fields
    finally:
        os.close(leaked)
    assert job_input["fds"][:3] == [0, 1, 2]
    assert len(job_input["fds"]) == 4
    assert job_input["stdin"] == "/dev/null"
    assert job_input["session"] is True


async def test_a_host_without_memory_loses_workers_before_their_agent(start: Any) -> None:
    _, watcher = start('say("ready", score=open("/proc/self/oom_score_adj").read())')
    assert int((await watcher.next("ready")).fields["score"]) >= 500
    assert int(Path("/proc/self/oom_score_adj").read_text()) < 500, "the agent's own is as it was"


async def test_the_working_folder_is_the_handlers(start: Any, tmp_path: Path) -> None:
    _, watcher = start('say("ready", cwd=os.getcwd())', handler=f"{tmp_path}/handler.py:run")
    assert (await watcher.next("ready")).fields["cwd"] == str(tmp_path)
    await watcher.exit
    _, watcher = start('say("ready", cwd=os.getcwd(), home=os.environ["HOME"])')
    job_input = (await watcher.next("ready")).fields
    assert job_input["cwd"] == job_input["home"]


async def test_the_home_goes_with_the_worker(start: Any) -> None:
    process, watcher = start('open("left", "w").close(); say("ready", home=os.getcwd()); hear()')
    home = Path((await watcher.next("ready")).fields["home"])
    assert home.stat().st_mode & 0o777 == 0o700
    process.kill()
    await process.ended
    assert not home.exists()


@other_users
async def test_another_user_where_the_agent_may_choose(new_watcher: Any) -> None:
    # Not below pytest's folder: another user cannot pass through that one.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "who.py").write_text("import os\nprint(os.getuid(), os.getgid(), os.getgroups())")
        data = Path(folder) / "data"
        spawner = LocalSpawner(data, python=SYSTEM_PYTHON, module="who", users=WorkerUsers((65534, 65534)))
        watcher = new_watcher()
        spawner.spawn(WorkerSpec("w", "e", 1, "m:h", env={"PYTHONPATH": folder}), None, watcher)
        assert (await watcher.exit).log_tail == ("65534 65534 []",)
        await spawner.close()


async def test_a_folder_that_is_not_there(spawner: Any) -> None:
    with pytest.raises(SpawnFailed, match="there is no folder /nowhere"):
        spawner.spawn(WorkerSpec("w", "e", 1, "/nowhere/handler.py:run"), None, None)


# ---- how it ends ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("", 0, "exited with code 0"),
        ("sys.exit(3)", 3, "exited with code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, "killed, likely out of memory"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -11, "crashed: segmentation fault (SIGSEGV)"),
        ("os.kill(os.getpid(), signal.SIGUSR1)", -10, "ended by SIGUSR1"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 2)", -36, "ended by signal 36"),
    ],
)
async def test_the_exit_is_described(start: Any, script: str, status: int, reason: str) -> None:
    process, watcher = start(script)
    ended = await watcher.exit
    assert (ended.status, ended.reason) == (status, reason)
    await process.ended
    assert len(watcher.exits) == 1


async def test_terminate_reaches_the_group(start: Any) -> None:
    process, watcher = start(f'say("ready"); {SLEEP}')
    await watcher.next("ready")
    process.terminate()
    assert (await watcher.exit).reason == "stopped by the agent (SIGTERM)"


async def test_frames_before_the_exit_are_all_received(start: Any) -> None:
    _, watcher = start('[say("progress", n=n) for n in range(500)]; os._exit(1)')
    await watcher.exit
    assert [watcher.frames.get_nowait().fields["n"] for _ in range(500)] == list(range(500))


async def test_after_death_nothing_is_an_error(start: Any) -> None:
    process, watcher = start("")
    await process.ended
    for act in (process.kill, process.terminate, process.pause, process.resume):
        act()
    process.send(Frame("stop"))
    assert len(watcher.exits) == 1


# ---- nothing is left --------------------------------------------------------------------------

CHILD = "[sys.executable, '-c', 'import signal; signal.pause()']"
ORPHANED = f"""
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(w, str(subprocess.Popen({CHILD}, start_new_session=True).pid).encode())
    os._exit(0)
child = int(os.read(r, 20))
os.wait()
"""
GRANDCHILDREN = {
    "in the group": f"child = subprocess.Popen({CHILD}).pid",
    "in a session of its own": f"child = subprocess.Popen({CHILD}, start_new_session=True).pid",
    "without its environment": f"child = subprocess.Popen({CHILD}, start_new_session=True, env={{}}).pid",
    "orphaned": ORPHANED,
    "holding the socket": "child = os.fork()\nchild or forever()",
}


@pytest.mark.parametrize("how", GRANDCHILDREN)
async def test_kill_ends_whatever_it_started(start: Any, how: str) -> None:
    process, watcher = start(f"{GRANDCHILDREN[how]}\nsay('ready', child=child)\n{SLEEP}")
    child = (await watcher.next("ready")).fields["child"]
    process.kill()
    assert (await watcher.exit).reason == "killed by the agent"
    assert child not in process_table()
    assert process.pid not in process_table()


@pytest.mark.parametrize("how", sorted(GRANDCHILDREN.keys() - {"without its environment"}))
async def test_a_crash_leaves_nothing_either(start: Any, how: str) -> None:
    _, watcher = start(f"{GRANDCHILDREN[how]}\nsay('ready', child=child)\nos.abort()")
    child = (await watcher.next("ready")).fields["child"]
    assert (await watcher.exit).reason == "crashed: aborted (SIGABRT)"
    assert child not in process_table()


async def test_a_program_that_just_begins_is_recognised_by_its_mark_or_not_yet_recognised() -> None:
    """Whoever starts it goes on while the kernel still lays out its environment."""
    known = []
    for _ in range(50):
        with subprocess.Popen(["sleep", "99"], env={"MARK": "it"}, start_new_session=True) as begins:
            known.append(marked(begins.pid, "MARK", "it"))
            begins.kill()
        assert marked(begins.pid, "MARK", "it") is False, "a dead one"
    assert set(known) <= {True, None}
    with subprocess.Popen(["sleep", "99"], env={}) as wiped:
        while marked(wiped.pid, "MARK", "it") is None:
            pass
        assert marked(wiped.pid, "MARK", "it") is False
        wiped.kill()


async def test_an_orphan_that_just_becomes_another_program_is_waited_for(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, reported = Counter[int](), tree.marked

    def not_yet(pid: int, name: str, value: str) -> bool | None:
        looks[pid] += 1
        return reported(pid, name, value) if looks[pid] > 3 else None

    _, watcher = start(f"{ORPHANED}\nsay('ready', child=child)\nhear(); os.abort()")
    child = (await watcher.next("ready")).fields["child"]
    monkeypatch.setattr(tree, "marked", not_yet)
    watcher.process.send(Frame("stop"))
    await watcher.exit
    assert child not in process_table()


async def test_handlers_that_sin_leave_nothing(python_worker: Any) -> None:
    for name in (
        "leaving_behind/leaves_a_child",
        "interfering/forks_a_helper",
        "cancelling/ignores_sigterm_in_c",
    ):
        process, watcher = python_worker(name)
        await watcher.next("ready")
        process.send(Frame("run", {"job": "j", "attempt": 1, "scratch": "/tmp"}, b"{}"))
        reported = json.loads((await watcher.next("progress")).body)
        process.terminate() if name == "cancelling/ignores_sigterm_in_c" else None
        process.kill()
        await watcher.exit
        assert not isinstance(reported, dict) or reported["child"] not in process_table()


async def test_another_workers_processes_live_on(start: Any) -> None:
    script = f"{GRANDCHILDREN['orphaned']}\nsay('ready', child=child)\n{SLEEP}"
    first, first_watcher = start(script, worker="w1")
    second, second_watcher = start(script, worker="w2")
    await first_watcher.next("ready")
    child = (await second_watcher.next("ready")).fields["child"]
    first.kill()
    await first_watcher.exit
    assert not process_table()[child].zombie
    assert not process_table()[second.pid].zombie


async def test_orphans_that_end_by_themselves_are_reaped(start: Any) -> None:
    # The daemon's way: the child leaves the session, its child is inherited by the agent and ends.
    _, watcher = start(
        """
        r, w = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(w, str(os.getpid()).encode())
                os._exit(0)
            os._exit(0)
        child = int(os.read(r, 20)); os.wait()
        say("ready", child=child)
        forever()
        """
    )
    child = (await watcher.next("ready")).fields["child"]
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert process_table()[child].zombie
    reap_strays(set())
    assert child not in process_table()


async def test_a_daemon_that_leads_its_session_is_reaped_at_the_second_look(start: Any) -> None:
    process, watcher = start(
        """
        r, w = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                os.write(w, str(os.getpid()).encode())
                os._exit(0)
            os._exit(0)
        child = int(os.read(r, 20)); os.wait()
        say("ready", child=child)
        """
    )
    child = (await watcher.next("ready")).fields["child"]
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    await process.ended
    unclear = reap_strays(set())
    assert [seen.pid for seen in unclear] == [child], "also after its worker has ended"
    assert process_table()[child].zombie
    assert reap_strays(set(), unclear) == []
    assert child not in process_table()


async def test_a_child_of_somebody_else_in_this_process_is_left_alone(start: Any) -> None:
    # `stoker up` and the tests run other programs from the process that is a subreaper.
    others = [subprocess.Popen(["true"], start_new_session=own) for own in (True, False)]
    for other in others:
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    process, _ = start("")
    await process.ended
    reap_strays(set())
    assert [other.wait() for other in others] == [0, 0]


async def test_close_ends_all(spawner: Any, start: Any) -> None:
    watchers = [start(SLEEP, worker=f"w{n}")[1] for n in range(3)]
    await spawner.close()
    assert [watcher.exits[0].reason for watcher in watchers] == ["killed by the agent"] * 3


AGENT = """
import asyncio, sys
from pathlib import Path
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.host.process_tree.memory_watch import used
from stoker.wire.messages import WorkerSpec
class Watcher:
    def on_broken(self, why): raise AssertionError(why)
    def on_frame(self, frame): print(worker.pid, frame.fields["child"], flush=True)
    def on_exit(self, exit): print(exit, flush=True)
async def main():
    global worker
    spawner = LocalSpawner(Path(sys.argv[1]), module="sinner")
    worker = spawner.spawn(WorkerSpec("w", "e", 1, "m:h", env={"PYTHONPATH": sys.argv[2]}), None, Watcher())
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_a_killed_agent_leaves_nothing_to_the_next(
    start: Any, gone: Any, tmp_path: Path, prologue: str
) -> None:
    # The worker dies with the agent, even stuck in native code; what it had started in a session of its own
    # is inherited by whoever is above, and ended by the next agent of the same folder.
    child = f"child = subprocess.Popen({CHILD}, start_new_session=True).pid"
    (tmp_path / "sinner.py").write_text(f"{prologue}\n{child}\nsay('ready', child=child)\n{SLEEP}")
    data = tmp_path / "other"
    command = [sys.executable, "-P", "-c", AGENT, str(data), str(tmp_path)]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    worker, child_pid = map(int, agent.stdout.readline().split())
    agent.kill()
    agent.wait()
    agent.stdout.close()
    assert gone(worker)
    assert not process_table()[child_pid].zombie
    await LocalSpawner(data, module="sinner").close()
    assert gone(child_pid)
    for pid in (worker, child_pid):  # inherited by this process, which is a subreaper too
        os.waitpid(pid, 0)


async def test_a_worker_whose_agent_died_before_the_tie_was_made(tmp_path: Path) -> None:
    request = order(SandboxPlan(), ["true"], tmp_path, {}) | {"parent": 1}
    assert launch(request, {}, 2).wait() == 1


# ---- what it prints ---------------------------------------------------------------------------


async def test_the_last_lines_are_kept(start: Any) -> None:
    _, watcher = start(
        """
        for n in range(150):
            print("line", n, flush=True)
        os.write(2, b"x" * 10_000 + b"\\n")
        os.write(2, "no end \u00e4".encode() + b"\\xff")
        """
    )
    tail = (await watcher.exit).log_tail
    assert len(tail) == 100
    assert tail[0] == "line 52"
    assert tail[-2] == "x" * 8192
    assert tail[-1] == "no end ä\ufffd"


def texts(listener: TailListener) -> list[str]:
    return [line.text for line in listener.after(0, whole=False)[1]]


async def test_a_listener_receives_what_was_printed_since(start: Any) -> None:
    process, watcher = start(
        """
        os.write(1, b"before\\nno end")
        say("ready"); hear()
        os.write(1, b"first\\n"); os.write(2, b"second, open")
        say("done"); hear()
        os.write(1, b" and closed\\nlast words")
        os.abort()
        """
    )
    await watcher.next("ready")
    first = process.tail.listen()
    assert first.after(0, whole=False) == (0, ())
    process.send(Frame("run"))
    await watcher.next("done")
    assert texts(first) == ["first", "second, open"]
    second = process.tail.listen()
    process.send(Frame("run"))
    assert (await watcher.exit).log_tail[-4:] == ("first", "second, open", " and closed", "last words")
    assert texts(second) == [" and closed", "last words"]
    assert texts(first)[:2] == ["first", "second, open"]
    assert process.tail.listen().after(0, whole=False) == (0, ())


async def test_a_flood_of_output_does_not_grow_memory(start: Any) -> None:
    process, watcher = start(
        """
        block = b"y" * 1_000_000  # one endless line
        lines = b"a line of a hundred letters or so\\n" * 30_000
        for n in range(60):
            if n == 10:
                say("ready")
            os.write(1, block)
            os.write(1, lines)
        say("flooded")
        hear()
        """
    )
    await watcher.next("ready")  # what a flood takes once is taken
    before = _anonymous()
    await watcher.next("flooded")
    assert _anonymous() - before < 16 * 1024 * 1024
    process.kill()
    assert (await watcher.exit).log_tail[-1] == "a line of a hundred letters or so"


def _anonymous() -> int:
    """What this process holds of its own. Pages of files come and go with the host's memory."""
    return used(os.getpid(), "status", (b"RssAnon:",))


async def test_a_module_that_does_not_exist_is_reported(tmp_path: Path, new_watcher: Any) -> None:
    spawner = LocalSpawner(tmp_path / "d", module="no_such_module")
    watcher = new_watcher()
    spawner.spawn(WorkerSpec("w", "e", 1, "m:h"), None, watcher)
    ended = await watcher.exit
    assert ended.status == 1
    assert ended.log_tail[-1].endswith("No module named no_such_module")
    await spawner.close()


async def test_kill_in_the_middle_of_a_frame(start: Any) -> None:
    process, watcher = start('sock.send(b"\\0\\0\\0\\x10\\0"); print("half", flush=True); say; hear()')
    await asyncio.sleep(0)
    process.kill()
    assert (await watcher.exit).status == -signal.SIGKILL


@pytest.mark.parametrize(("sandbox", "shared"), [("auto", True), ("on", False)])
async def test_workers_in_sandboxes_share_no_environments(
    tmp_path: Path, sandbox: Literal["auto", "on"], shared: bool
) -> None:
    spawner = LocalSpawner(tmp_path, host=Host(sandbox=sandbox, no_bubblewrap=""))
    await spawner.close()
    assert (tmp_path / "environments").exists() is shared


def test_the_worker_for_functions_is_known_by_its_handler() -> None:
    """It alone is given the folder of environments, which workers of one user share."""
    for handler, runs in (
        ("stoker.worker.functions.handler:Functions", True),
        ("", True),
        ("stoker.models.text_to_image.handler:TextToImage", False),
        ("/srv/handlers/echo.py:handler", False),
    ):
        assert runs_functions(WorkerSpec("w", "e", 1, handler)) is runs
