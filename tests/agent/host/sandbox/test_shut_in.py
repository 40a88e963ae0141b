# ruff: noqa: ASYNC220, ASYNC240  # waiting for real processes is what these tests do
"""What workers are shut in with, for real: users of their own, limits, cgroups, bubblewrap, volumes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.process_tree.cgroups import Cgroups, NoCgroups
from stoker.agent.host.process_tree.tree import process_table, user_of
from stoker.agent.host.sandbox.isolation import Host, facts
from stoker.agent.host.sandbox.probe import probe
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.agent.workers.processes.spawn_request import Program
from stoker.agent.workers.zygotes.zygotes import ZygoteSpawner
from stoker.wire.messages import AttemptKey, WorkerLimits, WorkerSpec
from stoker.worker.frames import Frame
from tests.other_users import SYSTEM_PYTHON, other_users

RANGE = (190_000, 190_003)


def install_bubblewrap() -> str:
    """Why it does not work here; empty when it does."""
    subprocess.run([Path(__file__).parents[4] / ".ci" / "packages", "bubblewrap:bwrap"], check=False)
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed, and cannot be"
    return probe(sandbox="on").no_bubblewrap


@pytest.fixture(scope="module")
def bubblewrap() -> None:
    if why := install_bubblewrap():
        pytest.skip(f"no bubblewrap here: {why}")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user can pass into, below a /tmp that a sandbox has for itself."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def cgroups(folder: Path) -> Iterator[Cgroups]:
    try:
        made = Cgroups(folder / "data")
    except NoCgroups as why:
        pytest.skip(f"no cgroups here: {why}")
    yield made
    made.close()
    assert not made.path.exists(), "a cgroup is left"


class Made:
    """Spawners whose workers run a script of the test's."""

    def __init__(self, folder: Path, prologue: str, new_watcher: Any) -> None:
        self.folder, self.prologue, self.new_watcher = folder, prologue, new_watcher
        self.spawners: list[Any] = []

    def spawner(self, users: WorkerUsers | None = None, **options: Any) -> LocalSpawner:
        options = {"python": SYSTEM_PYTHON, "module": "sinner", **options}
        (self.folder / "data").mkdir(mode=0o711, exist_ok=True)
        made = LocalSpawner(self.folder / "data", users=users, **options)
        self.spawners.append(made)
        return made

    def start(self, spawner: Any, script: str, **spec: Any) -> tuple[Any, Any]:
        written = self.folder / "sinner.py.new"  # another worker may be reading the present one
        written.write_text(self.prologue + script)
        written.rename(self.folder / "sinner.py")
        watcher = self.new_watcher()
        env = {"PYTHONPATH": str(self.folder), **spec.pop("env", {})}
        handler = f"{self.folder}/handler.py:run"
        fields = {"worker": "w1", "endpoint": "e", "version": 1, "handler": handler, **spec}
        return spawner.spawn(WorkerSpec(env=env, **fields), None, watcher), watcher

    async def result_of(self, spawner: Any, script: str, **spec: Any) -> Any:
        """What a worker that runs the script says, before it is killed."""
        process, watcher = self.start(spawner, f"{script}\nhear()", **spec)
        job_input = (await watcher.next("ready")).fields
        process.kill()
        await process.ended
        return job_input


@pytest.fixture
async def made(folder: Path, prologue: str, new_watcher: Any) -> AsyncIterator[Made]:
    made = Made(folder, prologue, new_watcher)
    yield made
    for spawner in made.spawners:
        await spawner.close()


def own_users() -> tuple[WorkerUsers, Host]:
    return WorkerUsers(between=RANGE), Host(user_range=RANGE)


# ---- users ------------------------------------------------------------------------------------

WHO = """
home = os.environ["HOME"]
open(home + "/kept", "w").close()
say("ready", uid=os.getuid(), gid=os.getgid(), groups=os.getgroups(), home=home, mode=os.stat(home).st_mode)
"""


@other_users
async def test_each_worker_has_a_user_to_itself(made: Made) -> None:
    users, host = own_users()
    spawner = made.spawner(users, host=host)
    workers = [made.start(spawner, WHO + "hear()", worker=f"w{n}") for n in range(4)]
    reported = [(await watcher.next("ready")).fields for _, watcher in workers]
    assert (
        [one["uid"] for one in reported] == [one["gid"] for one in reported] == list(range(190_000, 190_004))
    )
    assert all(one["groups"] == [] and one["mode"] & 0o777 == 0o700 for one in reported)
    with pytest.raises(SpawnFailed, match="all worker users 190000-190003 are taken"):
        made.start(spawner, WHO, worker="w5")
    workers[2][0].kill()
    await workers[2][0].ended
    assert not Path(reported[2]["home"]).exists()
    assert (await made.result_of(spawner, WHO, worker="w6"))["uid"] == 190_002


BY_NAME = """
with open("/dev/stdout", "w") as out:
    out.write("said by name\\n")
say("ready")
"""


@other_users
async def test_a_worker_with_its_own_user_prints_to_its_output_by_name(made: Made) -> None:
    users, host = own_users()
    process, watcher = made.start(made.spawner(users, host=host), f"{BY_NAME}\nhear()")
    await watcher.next("ready")
    process.kill()
    assert "said by name" in (await watcher.exit).log_tail


LOST = """
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.dup2(w, 1)
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c",
            "import os, signal; os.write(1, b'%d' % os.getpid()); signal.pause()"], {})
    os._exit(0)
os.wait()
say("ready", child=int(os.read(r, 20)), uid=os.getuid())
"""
"""A daemon that left the session, wiped its environment, and lost its parent before anyone looked."""


@other_users
async def test_what_runs_as_the_workers_user_ends_with_it(made: Made) -> None:
    users, host = own_users()
    reported = await made.result_of(made.spawner(users, host=host), LOST)
    assert reported["uid"] == 190_000
    assert reported["child"] not in process_table()


@other_users
async def test_a_next_agent_ends_what_runs_as_a_users_of_the_range(made: Made) -> None:
    left = subprocess.Popen(["sleep", "100"], user=RANGE[1], group=RANGE[1], extra_groups=[])
    assert user_of(left.pid) == RANGE[1]
    users, host = own_users()
    made.spawner(users, host=host)
    assert left.wait() == -signal.SIGKILL


@other_users
async def test_scratch_is_the_workers_own(made: Made, folder: Path) -> None:
    users, host = own_users()
    spawner = made.spawner(users, host=host)
    scratch = ScratchFolders(folder / "data" / "scratch", users)
    process, watcher = made.start(
        spawner,
        """
        say("ready", uid=os.getuid())
        path = hear().fields["scratch"] + "/made"
        open(path, "w").write("text")
        say("file", fd=os.open(path, os.O_RDONLY))
        forever()
        """.replace("\n        ", "\n"),
    )
    await watcher.next("ready")
    key = AttemptKey("j", 1)
    path = scratch.prepare(key, "w1")
    assert os.stat(path).st_uid == RANGE[0]
    process.send(Frame("run", {"scratch": path}))
    frame = await watcher.next("file")
    assert scratch.check(key, frame.fd) == 4
    os.close(frame.fd)
    scratch.remove(key)
    assert not Path(path).exists()
    process.kill()
    await process.ended


# ---- limits -----------------------------------------------------------------------------------

LIMITS = """
import resource
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
fds = [fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{fd}")]
say("ready", privileges=status["NoNewPrivs"], core=resource.getrlimit(resource.RLIMIT_CORE), fds=fds,
    files=resource.getrlimit(resource.RLIMIT_NOFILE), pids=resource.getrlimit(resource.RLIMIT_NPROC),
    socket=sock.fileno())
"""


@other_users
async def test_limits_and_privileges_of_a_python_worker(made: Made) -> None:
    users, host = own_users()
    reported = await made.result_of(
        made.spawner(users, host=host), LIMITS, limits=WorkerLimits(files=123, pids=77)
    )
    assert reported["privileges"] == "1"
    assert reported["core"] == [0, 0]
    assert reported["files"] == [123, 123]
    assert reported["pids"] == [77, 77]
    assert reported["fds"] == [0, 1, 2, reported["socket"]]


PROGRAM = """
import json, os, resource, sys
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
fds = [os.readlink("/proc/self/fd/" + fd).split(":")[0] for fd in os.listdir("/proc/self/fd")[:-1]]
print(json.dumps([status["NoNewPrivs"], os.getuid(), resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    resource.getrlimit(resource.RLIMIT_CORE), open("/proc/self/environ").read(), fds]))
"""


@other_users
async def test_limits_and_privileges_of_a_program(
    made: Made, folder: Path, new_watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_JOIN_TOKEN", "jt_secret")
    users, host = own_users()
    watcher = new_watcher()
    program = Program((SYSTEM_PYTHON, "-c", PROGRAM), folder, {"MINE": "declared"})
    spec = WorkerSpec("w1", "e", 1, str(folder), kind="protocol", limits=WorkerLimits(files=99))
    made.spawner(users, host=host).spawn(spec, None, watcher, program)
    (line,) = (await watcher.exit).log_tail
    privileges, uid, files, core, environment, fds = json.loads(line)
    assert [privileges, uid, files, core] == ["1", RANGE[0], 99, [0, 0]]
    assert "MINE=declared" in environment
    assert "jt_secret" not in environment
    names = {one.partition("=")[0] for one in environment.split("\0")}
    assert {name for name in names if name.startswith("STOKER")} == {
        *("STOKER_WORKER", "STOKER_AGENT", "STOKER_AGENT_LIFE"),
    }
    assert fds == ["/dev/null", "pipe", "pipe"]


@other_users
async def test_a_forked_worker_has_its_zygotes_user(made: Made, new_watcher: Any) -> None:
    users, host = own_users()
    local = made.spawner(users, host=host, module="stoker.worker.runtime")
    spawner = ZygoteSpawner(local)
    made.spawners[-1] = spawner
    (made.folder / "handler.py").write_text(
        "import os, resource\ndef handler(job):\n"
        "    told = 'NoNewPrivs:\\t1' in open('/proc/self/status').read()\n"
        "    return [os.getuid(), os.getgroups(), told, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]\n"
    )
    handler = f"{made.folder}/handler.py:handler"
    for n in range(2):
        watcher = new_watcher()
        spec = WorkerSpec(
            f"w{n}", "e", 1, handler, preload=("json",), limits=WorkerLimits(files=88), env={"A": "b"}
        )
        process = spawner.spawn(spec, None, watcher)
        process.send(Frame("setup", {"handler": handler, "device": None, "concurrency": 1}))
        await watcher.next("ready")
        process.send(Frame("run", {"job": "j", "attempt": 1, "scratch": "/tmp"}, b"{}"))
        assert json.loads((await watcher.next("done")).body) == [RANGE[0], [], True, 88]
    assert users.of("w0") == users.of("w1") == (RANGE[0], RANGE[0])
    await spawner.close()
    assert users.of("w0") is None
    assert not users.in_use((RANGE[0], RANGE[0]))


@other_users
async def test_a_limit_of_processes_needs_a_user_of_its_own(
    made: Made, new_watcher: Any, caplog: Any
) -> None:
    """Siblings that are forked have one user, and would count as one."""
    users, host = own_users()
    spawner = ZygoteSpawner(made.spawner(users, host=host, module="stoker.worker.runtime"))
    made.spawners[-1] = spawner
    (made.folder / "handler.py").write_text("def handler(job):\n    return 1\n")
    handler, limits = f"{made.folder}/handler.py:handler", WorkerLimits(pids=64)
    for name in ("w1", "w2"):
        watcher = new_watcher()
        spec = WorkerSpec(name, "e", 1, handler, preload=("json",), limits=limits)
        process = spawner.spawn(spec, None, watcher)
        process.send(Frame("setup", {"handler": handler, "device": None, "concurrency": 1}))
        await watcher.next("ready")
    assert (users.of("w1"), users.of("w2")) == ((RANGE[0], RANGE[0]), (RANGE[0] + 1, RANGE[0] + 1))
    assert "workers of endpoint e start in fresh interpreters: its limit of processes needs a" in caplog.text


GROWS = """
held = [bytearray(os.urandom(1 << 20) * 8) for _ in range(60)]
forever()
"""
"""To 480 MiB: not for ever, since whoever limits it may come late, and the host would kill it first."""


async def test_a_worker_that_uses_all_memory_is_killed_with_the_reason(made: Made) -> None:
    limit = WorkerLimits(memory_bytes=300 << 20)
    _, watcher = made.start(made.spawner(), GROWS, limits=limit)
    ended = await watcher.exit
    assert (ended.status, ended.reason) == (-9, "killed: out of memory (limit 300 MiB)")


async def test_what_is_mapped_from_a_file_is_nobodys_memory(made: Made, folder: Path) -> None:
    (folder / "weights").touch()
    os.truncate(folder / "weights", 64 << 20)
    script = f"""
import mmap, time
with open({str(folder / "weights")!r}, "r+b") as file:
    view = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
total = sum(view[::4096])
say("ready")
hear()
"""
    process, watcher = made.start(made.spawner(), script, limits=WorkerLimits(memory_bytes=48 << 20))
    await watcher.next("ready")
    process.send(Frame("stop"))
    assert (await watcher.exit).reason == "exited with code 0"


# ---- cgroups ----------------------------------------------------------------------------------


@pytest.fixture
def in_cgroups(made: Made, cgroups: Cgroups) -> LocalSpawner:
    host = Host(no_cgroups="", controllers=cgroups.controllers)
    return made.spawner(host=host, cgroups=cgroups)


async def test_a_cgroup_is_the_workers_and_goes_with_it(
    made: Made, cgroups: Cgroups, in_cgroups: LocalSpawner
) -> None:
    process, watcher = made.start(in_cgroups, "say('ready', cgroup=open('/proc/self/cgroup').read())\nhear()")
    reported = (await watcher.next("ready")).fields["cgroup"]
    assert f"/{cgroups.path.name}/w1.1\n" in reported
    assert (cgroups.path / "w1.1" / "cgroup.procs").read_text().split() == [str(process.pid)]
    process.kill()
    await process.ended
    assert list(cgroups.path.glob("w*")) == []


async def test_a_cgroup_finds_who_cannot_be_found_otherwise(made: Made, in_cgroups: LocalSpawner) -> None:
    reported = await made.result_of(in_cgroups, LOST)
    assert reported["child"] not in process_table() or process_table()[reported["child"]].zombie


async def test_a_forked_worker_is_in_its_cgroup_too(made: Made, cgroups: Cgroups, new_watcher: Any) -> None:
    host = Host(no_cgroups="", controllers=cgroups.controllers)
    local = made.spawner(host=host, cgroups=cgroups, module="stoker.worker.runtime", python=sys.executable)
    spawner = ZygoteSpawner(local)
    made.spawners[-1] = spawner
    (made.folder / "handler.py").write_text(
        "def handler(job):\n    return open('/proc/self/cgroup').read()\n"
    )
    handler = f"{made.folder}/handler.py:handler"
    watcher = new_watcher()
    process = spawner.spawn(WorkerSpec("w1", "e", 1, handler, preload=("json",)), None, watcher)
    process.send(Frame("setup", {"handler": handler, "device": None, "concurrency": 1}))
    await watcher.next("ready")
    process.send(Frame("run", {"job": "j", "attempt": 1, "scratch": "/tmp"}, b"{}"))
    assert f"/{cgroups.path.name}/w1." in json.loads((await watcher.next("done")).body)
    await spawner.close()


FORKS = """
made = 0
while made < 20:
    try:
        subprocess.Popen(["sleep", "99"])
    except OSError:
        break
    made += 1
say("ready", made=made)
"""


async def test_the_kernel_keeps_the_limits(made: Made, cgroups: Cgroups, in_cgroups: LocalSpawner) -> None:
    if not {"memory", "pids", "cpu"} <= cgroups.controllers:
        pytest.skip(f"cgroups of version 2 have only {sorted(cgroups.controllers)} here")
    reported = await made.result_of(in_cgroups, FORKS, limits=WorkerLimits(pids=6, cpus=0.5))
    assert reported["made"] == 5
    _, watcher = made.start(in_cgroups, GROWS, worker="w2", limits=WorkerLimits(memory_bytes=100 << 20))
    ended = await watcher.exit
    assert (ended.status, ended.reason) == (-9, "killed: out of memory (limit 100 MiB)")


# ---- bubblewrap -------------------------------------------------------------------------------

TRIES = """
def tries(path):
    try:
        with open(path, "w") as file:
            file.write("x")
        os.remove(path)
        return True
    except OSError as error:
        return error.strerror
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
say("ready", root=tries("/x"), etc=tries("/etc/x"), home=tries(os.environ["HOME"] + "/x"),
    tmp=os.listdir("/tmp"), write_tmp=tries("/tmp/x"), handler=tries(HANDLERS + "/x"),
    seen=os.path.exists(HANDLERS + "/handler.py"),
    scratch=tries(SCRATCH + "/x"), capabilities=status["CapEff"], privileges=status["NoNewPrivs"],
    cwd=os.getcwd(), null=open("/dev/null", "w").write("x"), uid=os.getuid(), own=os.getpid())
"""


@pytest.fixture(params=["on", pytest.param("auto", marks=other_users)])
def sandboxed(request: Any, made: Made, bubblewrap: None) -> LocalSpawner:
    """As the agent's own user, and each as another."""
    user_range = None if request.param == "on" else RANGE
    host = probe(sandbox=request.param, user_range=user_range)
    assert host.wraps, host.no_bubblewrap
    (made.folder / "data" / "scratch").mkdir(parents=True)
    (made.folder / "data").chmod(0o711)
    (made.folder / "data" / "scratch").chmod(0o777)
    closed = made.folder / "closed"  # as the weights of root's own are to other users
    (closed / "weights").mkdir(parents=True)
    closed.chmod(0o700)
    return made.spawner(WorkerUsers(between=user_range), host=host, writable=[closed / "weights"])


async def test_a_sandbox_has_nothing_to_write_to_but_its_own(made: Made, sandboxed: LocalSpawner) -> None:
    scratch = made.folder / "data" / "scratch"
    (made.folder / "handler.py").touch()
    constants = f"HANDLERS = {str(made.folder)!r}\nSCRATCH = {str(scratch)!r}\n"
    reported = await made.result_of(sandboxed, constants + TRIES, handler=f"{made.folder}/handler.py:run")
    assert reported["root"] == reported["etc"] == reported["handler"] == "Read-only file system"
    assert reported["home"] is reported["scratch"] is reported["write_tmp"] is reported["seen"] is True
    shown = (made.folder, Path(__file__), Path(sys.prefix))
    assert set(reported["tmp"]) == {path.parts[2] for path in shown if path.parts[1] == "tmp"}
    assert reported["capabilities"].strip("0") == ""
    assert reported["privileges"] == "1"
    assert reported["cwd"] == str(made.folder)


async def test_shared_memory_in_a_sandbox_is_its_own_and_counts(made: Made, sandboxed: LocalSpawner) -> None:
    script = """
seen = os.listdir("/dev/shm")
with open("/dev/shm/hidden", "wb") as file:
    for _ in range(20):
        file.write(b"x" * (1 << 20))
room = os.statvfs("/dev/shm")
say("ready", seen=seen, room=room.f_blocks * room.f_frsize, ipc=os.readlink("/proc/self/ns/ipc"))
hear()
with open("/dev/shm/more", "wb") as file:
    for _ in range(70):
        file.write(b"x" * (1 << 20))
forever()
"""
    limits = WorkerLimits(memory_bytes=96 << 20)
    process, watcher = made.start(sandboxed, script, limits=limits)
    reported = (await watcher.next("ready")).fields
    assert reported["seen"] == []
    assert reported["room"] == 96 << 20
    assert reported["ipc"] != os.readlink("/proc/self/ns/ipc")
    assert not os.path.exists("/dev/shm/hidden")
    process.send(Frame("stop"))
    assert (await watcher.exit).reason == "killed: out of memory (limit 96 MiB)"


SEES = """
lines = []
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            with open(f"/proc/{name}/cmdline") as file:
                lines.append(file.read())
        except (FileNotFoundError, ProcessLookupError):
            pass  # it ended since the folder was listed
secrets = sum("a-secret-of-the-operator" in line for line in lines)
say("ready", secrets=secrets, count=len(lines), own=os.getpid(), children=subprocess.run(["true"]).returncode)
"""
"""Counts the lines in the sandbox: a host may show more of them than a frame holds."""


async def test_a_sandbox_shows_no_command_line_of_another(made: Made, sandboxed: LocalSpawner) -> None:
    command = [SYSTEM_PYTHON, "-c", "input()", "--token", "a-secret-of-the-operator"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as another:
        if probe(sandbox="on").no_own_proc:
            pytest.skip(f"no /proc of its own here: {probe(sandbox='on').no_own_proc}")
        reported = await made.result_of(sandboxed, SEES)
        assert reported["secrets"] == 0
        assert reported["count"] <= 3, "itself, and what holds its namespace"
        assert (reported["own"] < 10, reported["children"]) == (True, 0)
        host = replace(probe(sandbox="on"), no_own_proc="for the test")
        seen = await made.result_of(made.spawner(host=host), SEES, worker="w2")
        assert seen["secrets"] >= 1
        assert facts(host)["isolation.bubblewrap"].endswith("it sees the host's processes: for the test")
        another.communicate(b"\n")


async def test_a_file_is_handed_out_of_a_sandbox(made: Made, sandboxed: LocalSpawner) -> None:
    (made.folder / "data" / "scratch").rmdir()
    scratch = ScratchFolders(made.folder / "data" / "scratch", sandboxed.users)
    script = """
say("ready")
folder = hear().fields["scratch"]
os.makedirs(folder, 0o700, exist_ok=True)
path = folder + "/made"
open(path, "w").write("text")
say("file", fd=os.open(path, os.O_RDONLY))
path = "/tmp/made"
open(path, "w").write("text")
say("file", fd=os.open(path, os.O_RDONLY))
hear()
"""
    process, watcher = made.start(sandboxed, script)
    await watcher.next("ready")
    key = AttemptKey("j", 1)
    process.send(Frame("run", {"scratch": scratch.prepare(key, "w1")}))
    good, bad = await watcher.next("file"), await watcher.next("file")
    assert scratch.check(key, good.fd) == 4
    with pytest.raises(Exception, match="outside the job's scratch folder"):
        scratch.check(key, bad.fd)
    os.close(good.fd)
    os.close(bad.fd)
    process.send(Frame("stop"))
    assert (await watcher.exit).reason == "exited with code 0"


ENDS: dict[str, tuple[str, int, str]] = {
    "an exit": ("os._exit(7)", 7, "exited with code 7"),
    "a crash": ("os.kill(os.getpid(), 11)", -11, "crashed: segmentation fault (SIGSEGV)"),
    "SIGTERM": ("forever()", -15, "stopped by the agent (SIGTERM)"),
    "SIGTERM, heard": ("signal.signal(15, lambda *_: os._exit(5))\nforever()", 5, "exited with code 5"),
    "SIGKILL": ("signal.signal(15, signal.SIG_IGN)\nforever()", -9, "killed by the agent"),
}


@pytest.mark.parametrize("how", ENDS)
async def test_how_a_worker_in_a_sandbox_ends(made: Made, sandboxed: LocalSpawner, how: str) -> None:
    script, status, reason = ENDS[how]
    begin, _, rest = script.rpartition("\n")
    process, watcher = made.start(
        sandboxed, f"{begin}\nsubprocess.Popen(['sleep', '99'], start_new_session=True)\nsay('ready')\n{rest}"
    )
    await watcher.next("ready")
    if how.startswith("SIGTERM"):
        process.terminate()
    elif how == "SIGKILL":
        process.terminate()
        process.kill()
    ended = await watcher.exit
    assert (ended.status, ended.reason) == (status, reason)


async def test_a_killed_wrapper_takes_the_worker_along(made: Made, sandboxed: LocalSpawner) -> None:
    process, watcher = made.start(sandboxed, "say('ready', pid=os.getpid())\nforever()")
    await watcher.next("ready")
    inside = [pid for pid, seen in process_table().items() if seen.session == process.pid != pid]
    assert inside
    os.kill(process.pid, signal.SIGKILL)
    assert (await watcher.exit).status == -9
    assert not set(inside) & set(process_table())


# ---- volumes ----------------------------------------------------------------------------------

VOLUME = """
path = os.environ["STOKER_VOLUME_PATH"]
open(path + "/written", "w").write("by %d" % os.getuid())
say("ready", path=path, there=sorted(os.listdir(path)))
"""


@pytest.fixture
def volume_root(folder: Path) -> Path:
    (folder / "volumes").mkdir(mode=0o711)
    (folder / "volumes").chmod(0o711)
    return folder / "volumes"


@pytest.mark.parametrize("how", ["bubblewrap", "mount", "variable"])
@pytest.mark.parametrize("users", [None, pytest.param(RANGE, marks=other_users)])
async def test_a_volume_is_where_the_variable_says(
    made: Made, volume_root: Path, how: str, users: Any, request: Any
) -> None:
    if how == "bubblewrap":
        request.getfixturevalue("bubblewrap")
    host = probe(sandbox="on" if how == "bubblewrap" else "off", user_range=users, volume_root=volume_root)
    if how == "mount" and host.no_mounts:
        pytest.skip(f"no mount namespace here: {host.no_mounts}")
    if how == "variable":
        host = Host(user_range=users, volume_root=str(volume_root), no_mounts="for the test")
    spawner = made.spawner(WorkerUsers(between=users), host=host)
    first = await made.result_of(spawner, VOLUME, volume="weights")
    second = await made.result_of(
        spawner, VOLUME, volume="weights", worker="w2"
    )  # another user, where there are
    assert first["path"] == (str(volume_root / "weights") if how == "variable" else "/runpod-volume")
    assert second["there"] == ["written"]
    assert (volume_root / "weights" / "written").read_text().startswith("by ")
    assert (volume_root / "weights").stat().st_mode & 0o777 == 0o770
    assert not (how == "mount" and os.listdir("/runpod-volume")), "the host sees it"


async def test_a_volume_of_a_forked_worker(made: Made, volume_root: Path, new_watcher: Any) -> None:
    host = probe(volume_root=volume_root)
    if host.no_mounts_in_a_fork:
        pytest.skip(f"no mount namespace here: {host.no_mounts_in_a_fork}")
    local = made.spawner(host=host, module="stoker.worker.runtime", python=sys.executable)
    spawner = ZygoteSpawner(local)
    made.spawners[-1] = spawner
    (made.folder / "handler.py").write_text(
        "import os\ndef handler(job):\n    open('/runpod-volume/written', 'w').close()\n"
        "    return os.environ['STOKER_VOLUME_PATH']\n"
    )
    handler = f"{made.folder}/handler.py:handler"
    watcher = new_watcher()
    spec = WorkerSpec("w1", "e", 1, handler, preload=("json",), volume="weights")
    process = spawner.spawn(spec, None, watcher)
    process.send(Frame("setup", {"handler": handler, "device": None, "concurrency": 1}))
    await watcher.next("ready")
    process.send(Frame("run", {"job": "j", "attempt": 1, "scratch": "/tmp"}, b"{}"))
    assert json.loads((await watcher.next("done")).body) == "/runpod-volume"
    assert (volume_root / "weights" / "written").exists()
    await spawner.close()


async def test_a_node_without_a_volume_root_reports_it(made: Made) -> None:
    with pytest.raises(SpawnFailed, match="weights cannot be stored here: this node has no volume root"):
        made.start(made.spawner(), "", volume="weights")
