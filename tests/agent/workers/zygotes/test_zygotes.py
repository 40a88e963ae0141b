# ruff: noqa: ASYNC221, ASYNC222, ASYNC240  # waiting for real processes is what these tests do
"""Workers forked from zygotes: the same as fresh ones in all that can be seen, and nothing is ever left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs.tail import LogTail
from stoker.agent.host.process_tree.tree import become_subreaper, marked, process_table
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.zygotes import zygote_machine
from stoker.agent.workers.zygotes.pending_worker import PendingWorker
from stoker.agent.workers.zygotes.zygotes import ZygoteSpawner, ZygoteSupervisor
from stoker.wire.messages import Device, WorkerLimits, WorkerSpec
from stoker.worker.frames import Frame
from tests.children import children
from tests.other_users import SYSTEM_PYTHON, other_users

ECHO = "def handler(job):\n    return job.input\n"
PATIENCE_S = 100.0
AWAY_S = 10_000.0
IMPORTS_ARE_COUNTED = "open({counter!r}, 'a').write('x')\nVALUE = 7\n"


class Host:
    """A spawner whose interpreter has distributions of the test's making, and folders for handlers."""

    def __init__(self, folder: Path, new_watcher: Any, **options: Any) -> None:
        self.folder = folder
        self.new_watcher = new_watcher
        self.site = _interpreter(folder / "venv")
        python = str(folder / "venv" / "bin" / "python")
        self.local = LocalSpawner(folder / "data", **{"python": python, **options})
        self.spawner = ZygoteSpawner(self.local)
        self.spawned = 0

    def install(self, name: str, source: str) -> None:
        (self.site / f"{name}.py").write_text(source)
        about = self.site / f"{name}-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (about / "top_level.txt").write_text(name)

    def write(self, source: str, folder: str = "handlers") -> str:
        path = self.folder / folder / "handler.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
        return f"{path}:handler"

    def spawn(
        self, handler: str, *preload: str, device: Device | None = None, **fields: Any
    ) -> tuple[Any, Any]:
        self.spawned += 1
        watcher = self.new_watcher()
        spec = WorkerSpec(f"w{self.spawned}", "e", 1, handler, preload=preload, **fields)
        process = self.spawner.spawn(spec, device, watcher)
        setup = {"handler": handler, "device": None, "concurrency": 1}
        process.send(Frame("setup", setup))
        return process, watcher

    async def ready(self, handler: str, *preload: str, **fields: Any) -> tuple[Any, Any]:
        process, watcher = self.spawn(handler, *preload, **fields)
        await watcher.next("ready")
        return process, watcher

    async def answer(self, process: Any, watcher: Any, job_input: Any = None) -> Any:
        process.send(
            Frame("run", {"job": "j", "attempt": 1, "scratch": "/tmp"}, json.dumps(job_input).encode())
        )
        frame = await watcher.next("done")
        return json.loads(frame.body)

    async def result_of(self, source: str, *preload: str, **fields: Any) -> Any:
        process, watcher = await self.ready(self.write(source), *preload, **fields)
        answer = await self.answer(process, watcher)
        process.kill()
        await watcher.exit
        return answer

    @property
    def zygote(self) -> ZygoteSupervisor:
        (found,) = self.spawner._sets.values()
        return found

    @property
    def zygote_pid(self) -> int:
        assert self.zygote._life is not None
        return self.zygote._life._child.pid

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # what other processes do sends no event

    async def a_spare(self) -> int:
        await self.until(lambda: self.zygote._spare)
        assert self.zygote._spare is not None
        return self.zygote._spare.pid


def _interpreter(folder: Path) -> Path:
    """A virtual environment, which is a link and two lines; with the packages of this one behind its own."""
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "behind.pth").write_text(here + "\n")
    return site


@pytest.fixture
async def host(tmp_path: Path, new_watcher: Any) -> AsyncIterator[Host]:
    made = Host(tmp_path, new_watcher)
    yield made
    await made.spawner.close()


@pytest.fixture
def _it_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zygote that has died does not come back in the middle of the test, however long that takes."""
    monkeypatch.setattr(zygote_machine, "FIRST_S", AWAY_S)
    monkeypatch.setattr(zygote_machine, "LONGEST_S", AWAY_S)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.INFO)
    return lambda: caplog.text


# ---- one import for many workers --------------------------------------------------------------


async def test_workers_are_forked_from_one_import(host: Host) -> None:
    counter = host.folder / "imports"
    host.install("heavy", IMPORTS_ARE_COUNTED.format(counter=str(counter)))
    source = "import heavy, os\ndef handler(job):\n    return [heavy.VALUE, os.getppid()]\n"
    handler = host.write(source)
    workers = [host.spawn(handler, "heavy") for _ in range(4)]  # they wait together
    workers += [await host.ready(handler, "heavy") for _ in range(3)]
    for process, watcher in workers[:4]:
        await watcher.next("ready")
        assert process.pid > 0
    for process, watcher in workers:
        assert await host.answer(process, watcher) == [7, os.getpid()]
    assert counter.read_text() == "x"
    assert len({process.pid for process, _ in workers}) == 7


async def test_a_worker_that_finds_a_spare_has_its_process_at_once(host: Host) -> None:
    handler = host.write(ECHO)
    first, _ = host.spawn(handler, "json")
    assert first.pid == 0
    await host.until(lambda: first.pid)
    spare = await host.a_spare()
    second, watcher = host.spawn(handler, "json")
    assert second.pid == spare
    await watcher.next("ready")


SEEN = """
import ctypes, json, os, resource, signal, sys, tempfile
LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
def status():
    wanted = "Umask Uid Gid Groups Threads SigBlk SigIgn SigCgt NoNewPrivs CapEff".split()
    lines = open("/proc/self/status").read().splitlines()
    return {line.split(":")[0]: line.split(":")[1] for line in lines if line.split(":")[0] in wanted}
def prctl(*option):
    value = ctypes.c_int(0)
    given = ctypes.CDLL(None).prctl(option[0], ctypes.byref(value))
    return value.value or given
def fds():
    found = {}
    for fd in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            link = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        found[fd] = (link.split(":")[0], os.get_inheritable(int(fd)))
    return list(found.values())
def handler(job):
    return {
        "environ": dict(os.environ),
        "environment in /proc": sorted(filter(None, open("/proc/self/environ").read().split("\\0"))),
        "fds": fds(), "cwd": os.getcwd(), "path": sys.path, "arguments": sys.argv[1:2],
        "flags": str(sys.flags), "parent": os.getppid(), "status": status(),
        "session": os.getsid(0) == os.getpid() == os.getpgrp(),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
        "pdeathsig": prctl(2), "dumpable": ctypes.CDLL(None).prctl(3), "subreaper": prctl(37),
        "handlers": {s.name: str(signal.getsignal(s)).split(" at ")[0] for s in signal.Signals},
        "nice": os.nice(0), "processors": sorted(os.sched_getaffinity(0)),
        "main": sys.modules["__main__"].__name__,
        "stdout": [sys.stdout.encoding, sys.stdout.line_buffering, sys.stdout.isatty()],
        "temporary": tempfile.gettempdir(),
        "command": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0")[1:-1],
    }
"""


async def test_it_is_the_same_as_a_fresh_one(tmp_path: Path, new_watcher: Any) -> None:
    host = Host(tmp_path, new_watcher)
    limits = WorkerLimits(files=300)
    env = {"TOKEN": "declared", "OMP_NUM_THREADS": "3", "LANG": "C.UTF-8"}
    leaked = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        fresh = await host.result_of(SEEN, env=env, limits=limits)
        forked = await host.result_of(SEEN, "xml.dom.minidom", env=env, limits=limits)
        again = await host.result_of(SEEN, "xml.dom.minidom", env=env, limits=limits)
    finally:
        os.close(leaked)
        await host.spawner.close()
    for seen, number in ((fresh, 1), (forked, 2), (again, 3)):
        assert seen["environ"].pop("STOKER_WORKER") == f"w{number}"
        assert seen["environ"].pop("HOME").split("/")[-1].startswith(f"w{number}.")
        assert seen["environ"].pop("LC_CTYPE", None) in (None, "C.UTF-8")
        shown = seen.pop("environment in /proc")
        assert f"STOKER_WORKER=w{number}" in shown
        assert not any("zygote" in line for line in shown)
        assert "TOKEN=declared" in shown
        assert "OMP_NUM_THREADS=3" in shown
        assert not any(line.startswith("MKL") for line in shown)
    assert fresh["limits"]["RLIMIT_NOFILE"] == [300, 300]
    assert fresh["limits"]["RLIMIT_CORE"] == [0, 0]
    assert fresh["status"]["NoNewPrivs"].strip() == "1"
    assert fresh["pdeathsig"] == signal.SIGKILL
    assert len(fresh["fds"]) == 4
    assert forked == fresh
    assert again == fresh


async def test_each_sees_its_own_devices(host: Host) -> None:
    source = "import os\ndef handler(job):\n    return os.environ['CUDA_VISIBLE_DEVICES']\n"
    for uuids in (("GPU-1",), ("GPU-3", "GPU-2"), ("GPU-1",)):
        device = Device(uuids[0], "gpu", "a GPU", 0)
        assert await host.result_of(source, "json", device=device, devices=uuids) == ",".join(uuids)
    assert host.zygote._count == 1
    assert await host.result_of(source, "json") == ""
    assert len(host.spawner._sets) == 2


async def test_another_set_has_another_zygote(host: Host) -> None:
    source = "import os\ndef handler(job):\n    return sorted(os.environ)\n"
    assert "ONE" in await host.result_of(source, "json", env={"ONE": "1"})
    assert "ONE" not in await host.result_of(source, "json", env={"TWO": "1"})
    assert len(host.spawner._sets) == 2


async def test_what_it_prints_is_its_own_log(host: Host) -> None:
    host.install("chatty", "print('as it is imported', flush=True)\n")
    process, watcher = await host.ready(
        host.write("def handler(job):\n    print('hello'); return 1\n"), "chatty"
    )
    listener = process.tail.listen()
    await host.answer(process, watcher)
    assert [line.text for line in listener.after(0, whole=False)[1]] == ["hello"]
    process.send(Frame("stop"))
    ended = await watcher.exit
    assert (ended.reason, ended.log_tail) == ("exited with code 0", ("hello",))


async def test_who_listens_to_a_worker_that_waits_for_its_zygote_hears_its_process(host: Host) -> None:
    process, watcher = host.spawn(host.write("print('imported')\ndef handler(job):\n    return 1\n"), "json")
    assert process.pid == 0, "it waits"
    tail = process.tail
    listener = tail.listen()
    await watcher.next("ready")
    assert process.tail is tail
    assert [line.text for line in listener.after(0, whole=False)[1]] == ["imported"]


async def test_seeds_are_its_own(host: Host) -> None:
    source = """
import random, numpy
def handler(job):
    return [random.random(), int(numpy.random.randint(1 << 62)), numpy.random.default_rng().random()]
"""
    drawn = [await host.result_of(source, "numpy", "random") for _ in range(3)]
    assert all(len({one[n] for one in drawn}) == 3 for n in range(3))


@pytest.mark.slow
async def test_torch_has_seeds_and_threads_of_its_own(host: Host) -> None:
    source = """
import os, torch
def handler(job):
    made = torch.randn(400, 400)
    product = float((made @ made).abs().sum())  # hangs after a fork of a process with threads
    threads = [torch.get_num_threads(), torch.get_num_interop_threads()]
    return [*threads, os.environ.get("OMP_NUM_THREADS"), product, made[0, :8].tolist()]
"""
    fresh = await host.result_of(source)
    forked = [await host.result_of(source, "torch") for _ in range(2)]
    assert [one[:3] for one in forked] == [fresh[:3]] * 2
    assert forked[0][4] != forked[1][4]
    logged = await host.result_of(source, "torch", env={"OMP_NUM_THREADS": "5"})
    assert logged[0] == 5
    assert logged[2] == "5"


async def test_a_further_worker_costs_little_memory(host: Host) -> None:
    size = 64 << 20
    host.install("large", f"DATA = bytearray(b'x') * {size}\nKEPT = [[] for _ in range(400_000)]\n")
    source = """
import gc, large
def handler(job):
    gc.collect()
    sum(large.DATA[::4096])
    text = open("/proc/self/smaps_rollup").read()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty"))
"""
    assert await host.result_of(source) * 1024 > size
    assert await host.result_of(source, "large") * 1024 < size / 4


# ---- what cannot be forked is started fresh ---------------------------------------------------

UNFIT = {
    "a thread": (
        "import threading\nwait = threading.Event().wait\n"
        "threading.Thread(target=wait, daemon=True, name='ticker').start()",
        "importing bad leaves a thread running (ticker)",
    ),
    "a thread of native code": (
        "import ctypes\nlib = ctypes.CDLL(None)\n"
        "lib.pthread_create(ctypes.byref(ctypes.c_ulong()), None, lib.pause, None)",
        "importing bad leaves a thread running (of native code)",
    ),
    "a device": ("FILE = open('/dev/full')", "importing bad leaves the device /dev/full open"),
    "a file": ("FILE = open('/etc/hostname')", "importing bad leaves /etc/hostname open"),
    "an exception": ("raise RuntimeError('no licence')", "bad cannot be imported: RuntimeError: no licence"),
    "an exit": ("import sys\nsys.exit(0)", "bad cannot be imported: SystemExit: 0"),
    "a crash": (
        "import os, signal\nprint('about to', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)",
        "its zygote is not there: crashed: segmentation fault (SIGSEGV), having printed: about to",
    ),
    "a hard exit": ("import os\nos._exit(4)", "its zygote is not there: exited with code 4"),
    "CUDA": (
        "import sys, types\nsys.modules['torch.cuda'] = types.SimpleNamespace(is_initialized=lambda: True)",
        "importing bad initialises CUDA, which does not survive a fork",
    ),
}


@pytest.mark.usefixtures("_it_stays_away")
@pytest.mark.parametrize("how", UNFIT)
@pytest.mark.slow
async def test_unfit_imports_are_logged_and_its_workers_fresh(host: Host, how: str, logged: Any) -> None:
    source, message = UNFIT[how]
    host.install("bad", source)
    handler = "def handler(job):\n    return 5\n"
    assert await host.result_of(handler, "bad") == 5
    assert f"workers of endpoint e start in fresh interpreters: {message}" in logged()
    assert await host.result_of(handler, "bad") == 5
    assert logged().count("start in fresh interpreters") == 1
    assert logged().count("is started") == 1


NVML = """
#include <fcntl.h>
#include <unistd.h>
static int opened, fd;
int nvmlInit(void) { if (opened++ == 0) fd = open("/dev/full", O_RDONLY); return 0; }
int nvmlShutdown(void) { if (opened == 0) return 1; if (--opened == 0) close(fd); return 0; }
"""


async def test_an_import_that_asks_nvml_for_a_gpu_is_fit(host: Host, logged: Any) -> None:
    (host.folder / "nvml.c").write_text(NVML)
    library = host.folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, host.folder / "nvml.c"], check=True)
    ask = f"import ctypes\nNVML = ctypes.CDLL({str(library)!r})\n"
    host.install("asks", ask + "NVML.nvmlInit()\nNVML.nvmlInit()\n")
    source = "import asks\ndef handler(job):\n    return [asks.NVML.nvmlInit(), asks.NVML.nvmlShutdown()]\n"
    assert await host.result_of(source, "asks") == [0, 0]
    assert "fresh" not in logged()
    assert (
        await host.result_of("import os\ndef handler(job):\n    return sorted(os.environ)\n", "asks")
    ).count("PYTORCH_NVML_BASED_CUDA_CHECK") == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_thing", "no installed distribution provides no_such_thing; only installed modules are"),
        ("json.nothing", "json.nothing cannot be imported: AttributeError: module 'json' has no attribute"),
        ("lies_about", "no installed distribution provides lies_about"),
    ],
)
async def test_what_is_not_installed_is_reported(host: Host, name: str, message: str, logged: Any) -> None:
    (host.site / "lies_about.py").write_text("raise SystemError('never imported')")  # no distribution's
    assert await host.result_of("def handler(job):\n    return 5\n", name) == 5
    assert f"fresh interpreters: {message}" in logged()


async def test_user_code_is_never_preloaded(host: Host, logged: Any) -> None:
    # Not through a declared search path, and not from a handler's folder that is a site folder.
    (host.folder / "handlers").mkdir()
    mark = host.folder / "was imported in a zygote"
    (host.folder / "handlers" / "mine.py").write_text(
        f"import sys\n'zygote' in str(sys.argv) and open({str(mark)!r}, 'w')\n"
    )
    source = "import mine\ndef handler(job):\n    return 5\n"
    assert await host.result_of(source, "mine") == 5
    assert "no installed distribution provides mine" in logged()
    assert await host.result_of(source, "mine", env={"PYTHONPATH": str(host.folder / "handlers")}) == 5
    assert "its endpoint declares PYTHONPATH" in logged()
    host.install("theirs", "")
    (host.site / "handler.py").write_text(ECHO)
    await host.ready(f"{host.site}/handler.py:handler", "theirs")
    assert f"theirs lies in the handler's folder {host.site}: user code is not preloaded" in logged()
    assert not mark.exists()


async def test_the_handlers_own_modules_win(host: Host, logged: Any) -> None:
    (host.folder / "handlers").mkdir()
    (host.folder / "handlers" / "resource.py").write_text("MINE = True")
    (host.folder / "handlers" / "minidom").mkdir()
    source = "import resource\ndef handler(job):\n    return resource.MINE\n"
    assert await host.result_of(source, "xml.dom.minidom") is True
    assert "resource of the handler's folder would be hidden by what is preloaded" in logged()


async def test_what_a_fresh_worker_has_imported_as_well(host: Host) -> None:
    # All else that a zygote has imported is compared with the names of the handler's own modules.
    source = "import sys\ndef handler(job):\n    return sorted(sys.modules)\n"
    fresh = {name.partition(".")[0] for name in await host.result_of(source)}
    code = "import stoker.worker.zygote.zygote as t; print(*t._KNOWN_BEFORE)"
    command = [sys.executable, "-P", "-c", code]
    logged = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fixed = {*sys.builtin_module_names, "__main__"}
    assert set(logged.split()) - fresh - fixed == set()


async def test_an_environment_that_is_too_large_for_a_message(host: Host, logged: Any) -> None:
    env = {f"LARGE{n}": "x" * 60_000 for n in range(4)}
    source = "import os\ndef handler(job):\n    return len(os.environ['LARGE3'])\n"
    assert await host.result_of(source, "json", env=env) == 60_000
    assert "cannot be forked" in logged()
    assert "196608 are allowed" in logged()


async def test_a_folder_that_is_not_there(host: Host) -> None:
    _, watcher = host.spawn("/nowhere/handler.py:handler", "json")
    ended = await watcher.exit
    assert (ended.status, "there is no folder /nowhere" in ended.reason) == (1, True)
    await host.a_spare()
    spare = await host.a_spare()
    with pytest.raises(SpawnFailed, match="there is no folder /nowhere"):
        host.spawn("/nowhere/handler.py:handler", "json")
    assert await host.a_spare() == spare
    await host.until(lambda: host.zygote._state.users == 0)


# ---- how it ends ------------------------------------------------------------------------------

ENDS = {
    "import os; os._exit(9)": (9, "exited with code 9"),
    "import os; os.kill(os.getpid(), 9)": (-9, "killed, likely out of memory"),
    "import os; os.kill(os.getpid(), 11)": (-11, "crashed: segmentation fault (SIGSEGV)"),
    "import os; os.kill(os.getpid(), 15)": (-15, "ended by SIGTERM"),
    "import os; os.abort()": (-6, "crashed: aborted (SIGABRT)"),
}


@pytest.mark.parametrize("how", ENDS)
async def test_the_exit_is_reported_exactly(host: Host, how: str) -> None:
    process, watcher = await host.ready(host.write(f"def handler(job):\n    {how}\n"), "json")
    process.send(Frame("run", {"job": "j", "attempt": 1, "scratch": "/tmp"}, b"{}"))
    ended = await watcher.exit
    assert (ended.status, ended.reason) == ENDS[how]
    assert process.pid not in process_table()


DAEMON = """
import os, signal, subprocess, sys
def handler(job):
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(w, b"%d " % os.getpid())
            os.close(w)
            while True:
                signal.pause()
        os._exit(0)
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    os.close(w)
    forked = int(os.read(r, 20))
    job.progress([forked, child.pid])
    while True:
        signal.pause()
"""


async def test_kill_ends_whatever_it_started(host: Host) -> None:
    process, watcher = await host.ready(host.write(DAEMON), "json")
    other, other_watcher = await host.ready(host.write(ECHO, "others"), "json")
    process.send(Frame("run", {"job": "j", "attempt": 1, "scratch": "/tmp"}, b"{}"))
    started = json.loads((await watcher.next("progress")).body)
    assert all(marked(pid, "STOKER_WORKER", "w1") for pid in started)
    process.kill()
    assert (await watcher.exit).reason == "killed by the agent"
    assert not {*started, process.pid} & process_table().keys()
    assert await host.answer(other, other_watcher, 4) == 4
    assert not process_table()[host.zygote_pid].zombie


async def test_stop_and_terminate(host: Host) -> None:
    handler = host.write(ECHO)
    for act, reason in (
        (lambda p: p.terminate(), "stopped by the agent (SIGTERM)"),
        (lambda p: p.kill(), "killed by the agent"),
    ):
        process, watcher = await host.ready(handler, "json")
        act(process)
        assert (await watcher.exit).reason == reason
        waiting, watcher = host.spawn(host.write(ECHO), "sqlite3", env={"NEW": reason})
        assert waiting.pid == 0
        act(waiting)
        waiting.kill()
        assert not watcher.exits, "logged before the caller had returned"
        assert (await watcher.exit).reason == reason
        waiting.send(Frame("stop"))
        waiting.pause()
        waiting.resume()
        assert waiting.tail.listen().after(0, whole=False) == (0, ())


async def test_a_worker_that_is_killed_before_it_has_begun(host: Host) -> None:
    handler = host.write(ECHO)
    await host.ready(handler, "json")
    spare = await host.a_spare()
    os.kill(spare, signal.SIGSTOP)
    process, watcher = host.spawn(handler, "json")
    assert process.pid == spare
    process.kill()
    assert (await watcher.exit).reason == "killed by the agent"


async def test_a_waiting_worker_is_paused_before_it_begins(host: Host) -> None:
    process, watcher = host.spawn(host.write(ECHO), "json")
    process.pause()
    await host.until(lambda: process.pid)
    await host.a_spare()
    assert watcher.frames.empty()
    process.resume()
    await watcher.next("ready")


# ---- whatever is killed -----------------------------------------------------------------------


@pytest.mark.usefixtures("_it_stays_away")
async def test_the_death_of_a_zygote_touches_no_worker(host: Host, logged: Any) -> None:
    handler = host.write(ECHO)
    process, watcher = await host.ready(handler, "json")
    spare = await host.a_spare()
    zygote = host.zygote_pid
    os.kill(zygote, signal.SIGKILL)
    await host.until(lambda: not {zygote, spare} & process_table().keys())
    assert await host.answer(process, watcher, "alive") == "alive"
    fresh, fresh_watcher = await host.ready(handler, "json")
    assert await host.answer(fresh, fresh_watcher, "fresh") == "fresh"
    assert "its zygote is not there: killed, likely out of memory" in logged()
    # It comes back after its back-off, as long as its workers live.
    host.zygote._step(zygote_machine.Tick(asyncio.get_running_loop().time() + AWAY_S + 1))
    assert await host.a_spare() not in (spare, process.pid)


async def test_a_zygote_killed_while_workers_wait_for_it(host: Host) -> None:
    host.install("endless", "import signal, sys\n'zygote' in str(sys.argv) and signal.pause()\n")
    waiting = [host.spawn(host.write(ECHO), "endless") for _ in range(3)]
    await host.until(lambda: host.zygote_pid)
    os.kill(host.zygote_pid, signal.SIGKILL)
    for process, watcher in waiting:
        await watcher.next("ready")
        assert await host.answer(process, watcher, 1) == 1


async def test_imports_that_never_end(host: Host, monkeypatch: pytest.MonkeyPatch, logged: Any) -> None:
    monkeypatch.setattr(zygote_machine, "IMPORT_S", 0.0)
    host.install("endless", "import signal, sys\n'zygote' in str(sys.argv) and signal.pause()\n")
    await host.ready(host.write(ECHO), "endless")
    assert "its imports took more than 0 s" in logged()


async def test_a_zygote_that_is_stuck(host: Host, monkeypatch: pytest.MonkeyPatch, logged: Any) -> None:
    await host.ready(host.write(ECHO), "json")
    await host.a_spare()
    os.kill(host.zygote_pid, signal.SIGSTOP)
    monkeypatch.setattr(zygote_machine, "FORK_S", 0.0)
    await host.ready(host.write(ECHO), "json")  # takes the spare
    await host.ready(host.write(ECHO), "json")  # waits in vain
    assert "it forked nothing for 0 s" in logged()


async def test_a_spare_that_dies_is_replaced(host: Host) -> None:
    process, _ = await host.ready(host.write(ECHO), "json")
    spare = await host.a_spare()
    os.kill(spare, signal.SIGKILL)
    await host.until(lambda: spare not in process_table())
    assert await host.a_spare() != spare
    assert process.pid in process_table()


async def test_a_spare_that_dies_as_it_becomes_a_worker(host: Host) -> None:
    handler = host.write(ECHO)
    await host.ready(handler, "json")
    spare = await host.a_spare()
    os.kill(spare, signal.SIGSTOP)
    process, watcher = host.spawn(handler, "json")
    assert process.pid == spare
    os.kill(spare, signal.SIGKILL)
    assert (await watcher.exit).reason == "killed, likely out of memory"
    process, watcher = await host.ready(handler, "json")
    assert await host.answer(process, watcher, 1) == 1


async def test_a_zygote_killed_as_its_spare_becomes_a_worker(host: Host) -> None:
    handler = host.write(ECHO)
    await host.ready(handler, "json")
    spare = await host.a_spare()
    os.kill(host.zygote_pid, signal.SIGKILL)
    process, watcher = host.spawn(handler, "json")  # the death has not been noticed yet
    assert process.pid == spare
    await watcher.next("ready")
    assert await host.answer(process, watcher, 2) == 2


IS_LATE = """
import os, time
lead = os.setsid
def late():
    while not os.path.exists({go!r}):
        time.sleep(0.001)
    lead()
os.setsid = late
"""


async def test_a_spare_that_is_slow_to_leave_its_zygote_outlives_it(host: Host) -> None:
    """The agent has made a worker of it, while it is still in the session of a zygote that is dead."""
    go = host.folder / "go"
    host.install("late", IS_LATE.format(go=str(go)))
    process, watcher = host.spawn(host.write(ECHO), "late")
    await host.until(lambda: process.pid)
    os.kill(host.zygote_pid, signal.SIGKILL)
    await host.until(lambda: host.zygote._life is None)
    go.touch()
    await watcher.next("ready")
    assert await host.answer(process, watcher, 2) == 2
    await host.until(lambda: not host.zygote._lives)


async def test_a_spare_that_dies_in_the_session_of_its_dead_zygote(host: Host, gone: Any) -> None:
    """Whoever looks for what the zygote left finds the worker there, and may reap it first."""
    host.install("late", IS_LATE.format(go=str(host.folder / "never")))
    process, watcher = host.spawn(host.write(ECHO), "late")
    await host.until(lambda: process.pid)
    os.kill(host.zygote_pid, signal.SIGKILL)
    await host.until(lambda: host.zygote._life is None)
    os.kill(process.pid, signal.SIGKILL)
    assert gone(process.pid)
    async with asyncio.timeout(PATIENCE_S):
        assert (await watcher.exit).status == -signal.SIGKILL


async def test_a_spare_that_cannot_become_a_worker_reports_why(host: Host) -> None:
    await host.ready(host.write(ECHO), "json")
    spare = await host.a_spare()
    os.kill(spare, signal.SIGSTOP)
    handler = host.write(ECHO, "removed")
    process, watcher = host.spawn(handler, "json")
    assert process.pid == spare
    shutil.rmtree(host.folder / "removed")
    os.kill(spare, signal.SIGCONT)
    ended = await watcher.exit
    assert (ended.status, ended.reason) == (127, "exited with code 127")
    assert ended.log_tail == (f"[Errno 2] No such file or directory: '{host.folder / 'removed'}'",)


@pytest.mark.usefixtures("_it_stays_away")
async def test_nothing_starts_again_while_the_agent_ends(host: Host) -> None:
    await host.ready(host.write(ECHO), "json")
    zygote = host.zygote
    os.kill(host.zygote_pid, signal.SIGKILL)
    await host.until(lambda: zygote._life is None)
    closing = asyncio.create_task(host.spawner.close())
    await asyncio.sleep(0)  # it waits for the worker's end, and just now the zygote's back-off is over
    zygote._step(zygote_machine.Tick(asyncio.get_running_loop().time() + AWAY_S + 1))
    async with asyncio.timeout(PATIENCE_S):
        await closing
    assert zygote._count == 1


@pytest.mark.parametrize(
    "seed", [seed if seed < 3 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(6)]
)
async def test_kills_at_any_moment_leave_nothing(
    host: Host, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, servers = Random(seed), children()
    monkeypatch.setattr(zygote_machine, "FIRST_S", 0.0)
    handler = host.write(ECHO)
    watchers = []
    for _ in range(12):
        watchers += [host.spawn(handler, "json")[1] for _ in range(rng.randrange(3))]
        for _ in range(rng.choice([0, 3, 30, 300, 3000])):
            await asyncio.sleep(0)
        mine = [
            seen
            for seen in process_table().values()
            if marked(seen.pid, "STOKER_AGENT", str(host.folder / "data"))
        ]
        if mine:
            with contextlib.suppress(ProcessLookupError):  # its zygote has reaped it meanwhile
                os.kill(rng.choice(mine).pid, signal.SIGKILL)
    for watcher in watchers:
        await host.until(lambda watcher=watcher: not watcher.frames.empty() or watcher.exits)
    await host.spawner.close()
    assert [watcher.exits[0].status < 0 for watcher in watchers] == [True] * len(watchers)
    assert children() <= servers


AGENT = """
import asyncio, sys
from pathlib import Path
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.zygotes.zygotes import ZygoteSpawner
from stoker.wire.messages import WorkerSpec
class Watcher:
    def on_broken(self, why): raise AssertionError(why)
    def on_frame(self, frame): pass
    def on_exit(self, exit): print(exit, flush=True)
async def main():
    spawner = ZygoteSpawner(LocalSpawner(Path(sys.argv[1]), python=sys.argv[2], module="hears_nothing"))
    worker = spawner.spawn(WorkerSpec("w", "e", 1, "m:h", preload=("json",)), None, Watcher())
    (zygote,) = spawner._sets.values()
    while not (worker.pid and zygote._spare):
        await asyncio.sleep(0)
    print(worker.pid, zygote._spare.pid, zygote._life._child.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_a_killed_agent_takes_all_with_it(gone: Any, tmp_path: Path) -> None:
    """The worker never looks at its socket: only its tie to the agent ends it."""
    become_subreaper()
    before = children()
    site = _interpreter(tmp_path / "venv")
    (site / "hears_nothing.py").write_text("import signal\nwhile True:\n    signal.pause()\n")
    command = [sys.executable, "-P", "-c", AGENT, tmp_path / "other", tmp_path / "venv" / "bin" / "python"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stdout is not None
            logged = agent.stdout.readline().split()
        finally:
            agent.kill()
    pids = [int(pid) for pid in logged]
    assert len(set(pids)) == 3
    left = [pid for pid in pids if not gone(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    while inherited := children() - before:  # by this process; a spare that was just being made, too
        left += [pid for pid in inherited if not gone(pid)]
        for pid in inherited:
            os.waitpid(pid, 0)
    assert left == []


async def test_a_zygote_that_names_a_process_of_somebody_elses_gets_no_hold_on_it(host: Host) -> None:
    await host.ready(host.write(ECHO), "json")
    spare = await host.a_spare()
    life = host.zygote._life
    assert life is not None
    ours, theirs = socket.socketpair()
    with ours:
        life._add_spare(1, theirs)
        assert ours.recv(1) == b"", "what no spare is behind is closed"
    assert await host.a_spare() == spare


async def test_a_dropped_zygote_ends_with_its_spare(host: Host) -> None:
    process, watcher = await host.ready(host.write(ECHO), "json")
    spare, zygote = await host.a_spare(), host.zygote_pid
    process.send(Frame("stop"))
    await watcher.exit
    await host.until(lambda: host.zygote._state.users == 0)
    host.zygote._step(zygote_machine.Tick(asyncio.get_running_loop().time() + zygote_machine.LINGER_S + 1))
    await host.until(lambda: not {spare, zygote} & process_table().keys())
    process, watcher = await host.ready(host.write(ECHO), "json")
    assert await host.answer(process, watcher, 1) == 1


@other_users
async def test_another_user_where_the_agent_may_choose(new_watcher: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "data").mkdir(mode=0o711)
        host = Host(folder, new_watcher, python=SYSTEM_PYTHON, users=WorkerUsers((65534, 65534)))
        source = """
import os
def handler(job):
    return [os.getuid(), os.getgid(), os.getgroups(), len(os.listdir("/proc/self/fd"))]
"""
        assert await host.result_of(source, "json") == [65534, 65534, [], 5]
        spare = await host.a_spare()
        for pid in (spare, host.zygote_pid):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            assert "Uid:\t65534\t65534\t65534\t65534" in lines
            assert Path(f"/proc/{pid}/environ").stat().st_uid == 0, (
                "a handler of that user could look into it"
            )
        await host.spawner.close()


async def test_a_zygotes_home_stays_for_its_workers_and_no_longer(host: Host) -> None:
    """Libraries note as they are imported where their caches lie."""
    host.install("caches", "import os\nCACHE = os.path.expanduser('~/cache')\n")
    source = "import caches, os\ndef handler(job):\n    os.makedirs(caches.CACHE)\n    return caches.CACHE\n"
    process, watcher = await host.ready(host.write(source), "caches")
    cache = Path(await host.answer(process, watcher))
    await host.a_spare()
    os.kill(host.zygote_pid, signal.SIGKILL)
    await host.until(lambda: not host.zygote._lives)
    assert cache.is_dir()
    process.kill()
    await watcher.exit
    await host.until(lambda: not cache.parent.exists())
    await host.spawner.close()
    assert list((host.folder / "data" / "homes").iterdir()) == []


async def test_a_spare_that_was_reaped_as_a_leftover_holds_nothing_up(host: Host) -> None:
    """At the agent's end, whoever looks for orphans may be quicker than the spare's own watch."""
    await host.ready(host.write(ECHO), "json")
    spare = await host.a_spare()
    os.kill(spare, signal.SIGKILL)
    os.waitpid(spare, 0)
    async with asyncio.timeout(PATIENCE_S):
        await host.spawner.close()


async def test_a_pending_worker_that_cannot_be_sent_its_frames_is_killed(new_watcher: Any) -> None:
    class Process:
        killed = False

        def print_to(self, tail: LogTail) -> None:
            pass

        def send(self, frame: Frame) -> None:
            raise OSError("no descriptor is left")

        def kill(self) -> None:
            self.killed = True

    process: Any = Process()
    pending = PendingWorker(WorkerSpec("w1", "e", 1, "h.py:handler"), None, new_watcher(), lambda _: None)
    pending.send(Frame("setup"))
    assert pending.begin(lambda *_: process), "its exit will come"
    assert process.killed
