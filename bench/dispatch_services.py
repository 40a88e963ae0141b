"""The services that `bench/dispatch.py` drives: the echo, Stoker, Stoker at another commit, and its peers.

Each is a context manager that starts a service with a handler that does nothing (or waits), yields a
`Service` when it responds, and ends all its processes. Peers are installed in environments that
`.ci/bench-peers` makes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx2
import psutil
from dispatch_load import Service

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"

KEY = "sk_" + "b" * 12 + "_" + "0" * 48
JOIN = "jt_" + "c" * 12 + "_" + "0" * 48
CONFIG = """
local_roots = ["."]

[rate_limits]
requests_per_worker = 1000000

[[endpoints]]
id = "noop"
name = "noop"
type = "QUEUE"
imageName = "local:noop.py:handler"
workersMin = {workers}
workersMax = {workers}
idleTimeout = 3600
env = {{ {env} }}
"""
HANDLER = """
import os
import time

PID = os.getpid()


def handler(job):
    began = time.monotonic()
    if "chunk" in job.input:
        job.emit(job.input["chunk"])
    elif "save_bytes" in job.input:
        return {"waited_s": sum(waited_s(job, n) for n in range(job.input["saves"]))}
    elif job.input["ms"]:
        time.sleep(job.input["ms"] / 1000)
    return {"began": began, "ended": time.monotonic(), "pid": PID}


def waited_s(job, n):
    time.sleep(0.3)
    if not job.input["save_bytes"]:
        return 0.0
    state = n.to_bytes(4, "big") + bytes(job.input["save_bytes"])
    began = time.monotonic()
    job.save(state)
    return time.monotonic() - began
"""
ECHO = """
from fastapi import FastAPI, Request
from fastapi.responses import Response
app = FastAPI()

@app.post("/echo")
async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")
"""
LITSERVE = """
import litserve

class Noop(litserve.LitAPI):
    def setup(self, device): pass
    def decode_request(self, request): return request["input"]
    def predict(self, x): return {{"output": x}}

if __name__ == "__main__":
    server = litserve.LitServer(Noop(), accelerator="cpu", workers_per_device={workers})
    server.run(host="127.0.0.1", port={port}, log_level="error", generate_client_file=False)
"""
COG = """
from cog import BasePredictor

class Predictor(BasePredictor):
    async def predict(self, ms: int) -> int:
        return ms
"""
CELERY = """
import celery
from fastapi import FastAPI

tasks = celery.Celery("noop", broker="{redis}", backend="{redis}")
app = FastAPI()

@tasks.task(name="noop")
def noop(value):
    return value

@app.post("/run")
def run(body: dict) -> dict:
    return {{"output": noop.delay(body["input"]).get(timeout=30)}}
"""


@contextlib.contextmanager
def echo(folder: Path) -> Iterator[Service]:
    """One POST to a FastAPI route on uvicorn with uvloop and httptools: the limit."""
    (folder / "echo_app.py").write_text(ECHO)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "echo_app:app", "--port", str(port), "--no-access-log"]
    with running([*command, "--log-level", "error"], folder) as process:
        wait_for(f"http://127.0.0.1:{port}/docs", "html")
        group = [psutil.Process(process.pid)]
        yield Service("echo", f"http://127.0.0.1:{port}/echo", "input", lambda: {"echo": group})


@contextlib.contextmanager
def stoker(
    folder: Path,
    workers: int,
    name: str = "stoker",
    source: Path = ROOT,
    inside: Mapping[str, str] | None = None,
) -> Iterator[Service]:
    """HTTP -> store (SQLite, synchronous=FULL) -> gRPC -> agent -> worker process -> back.

    `inside` is added to the environment of all its processes.
    """
    inside = inside or {}
    folder.mkdir()
    declared = ", ".join(f"{variable} = {json.dumps(value)}" for variable, value in inside.items())
    (folder / "stoker.toml").write_text(CONFIG.format(workers=workers, env=declared))
    (folder / "noop.py").write_text(HANDLER)
    command = [sys.executable, "-P", "-m", "stoker.cli"]
    search = os.pathsep.join(filter(None, [inside.get("PYTHONPATH"), str(source / "src")]))
    env = {**inside, "STOKER_JOIN_TOKEN": JOIN, "STOKER_API_KEY": KEY, "PYTHONPATH": search}
    common = ["--data-dir", str(folder / "data"), "--config", str(folder / "stoker.toml")]
    with running([*command, "control", "--port", "0", "--grpc-port", "0", *common], folder, env) as first:
        where = ready_line(first)
        agent = [*command, "agent", "--control", where["grpc"], "--data-dir", str(folder / "agent")]
        with running(agent, folder, env) as second:
            headers = {"Authorization": f"Bearer {KEY}"}
            wait_for(f"{where['http']}/v2/noop/health", rf'"ready":\s*{workers}\b', headers)
            control, agents = psutil.Process(first.pid), psutil.Process(second.pid)
            yield Service(
                name,
                f"{where['http']}/v2/noop/runsync",
                '"COMPLETED"',
                lambda: {
                    "control": [control],
                    "agent": [agents],
                    "workers": agents.children(recursive=True),
                },
                key=f"Bearer {KEY}",
            )


@contextlib.contextmanager
def stoker_at(commit: str, folder: Path, workers: int) -> Iterator[Service]:
    """Another commit's code, with the libraries of this environment."""
    with (
        worktree(commit, folder) as source,
        stoker(folder / "before", workers, f"stoker at {commit}", source) as service,
    ):
        yield service


@contextlib.contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    source = folder / f"source-{commit.replace('/', '-')}"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--detach", str(source), commit], check=True, capture_output=True)
    try:
        yield source
    finally:
        subprocess.run([*git, "remove", "--force", str(source)], check=True, capture_output=True)


@contextlib.contextmanager
def litserve(folder: Path, workers: int) -> Iterator[Service]:
    """Stores nothing."""
    port = free_port()
    (folder / "lit.py").write_text(LITSERVE.format(workers=workers, port=port))
    with running([str(PEERS / "litserve/bin/python"), "lit.py"], folder) as process:
        wait_for(f"http://127.0.0.1:{port}/health", "ok")
        yield Service(
            "LitServe", f"http://127.0.0.1:{port}/predict", "output", lambda: {"all": family(process.pid)}
        )


@contextlib.contextmanager
def cog(folder: Path, workers: int) -> Iterator[Service]:
    """Stores nothing. Has one worker, which takes up to 64 concurrent jobs. It refuses a few below that."""
    port = free_port()
    subfolder = folder / "cog"
    subfolder.mkdir()
    (subfolder / "predict.py").write_text(COG)
    (subfolder / "cog.yaml").write_text('predict: "predict.py:Predictor"\n')
    command = [str(PEERS / "cog/bin/python"), "-m", "cog.server.http", "--host", "127.0.0.1"]
    env = {"PORT": str(port), "COG_PREDICT_TYPE_STUB": "predict.py:Predictor", "COG_MAX_CONCURRENCY": "64"}
    env["PATH"] = f"{PEERS / 'cog/bin'}:{os.environ['PATH']}"  # it starts `python` for its worker
    with running(command, subfolder, env) as process:
        wait_for(f"http://127.0.0.1:{port}/health-check", "READY")
        yield Service(
            "Cog, 1 worker",
            f"http://127.0.0.1:{port}/predictions",
            '"succeeded"',
            lambda: {"all": family(process.pid)},
            refusal="At capacity",
        )


@contextlib.contextmanager
def celery(folder: Path, workers: int) -> Iterator[Service]:
    """Celery and Redis behind FastAPI: queues in memory, stores nothing durably."""
    redis_port, port = free_port(), free_port()
    subfolder = folder / "celery"
    subfolder.mkdir()
    (subfolder / "noop_app.py").write_text(CELERY.format(redis=f"redis://127.0.0.1:{redis_port}/0"))
    python = str(PEERS / "celery/bin/python")
    redis = ["redis-server", "--port", str(redis_port), "--bind", "127.0.0.1", "--save", "", "--loglevel"]
    worker = [python, "-m", "celery", "-A", "noop_app.tasks", "worker", "-c", str(workers), "-l", "ERROR"]
    http = [python, "-m", "uvicorn", "noop_app:app", "--port", str(port), "--no-access-log"]
    with (
        running([*redis, "warning"], subfolder) as store,
        running(worker, subfolder) as workers_of,
        running([*http, "--log-level", "error"], subfolder) as api,
    ):
        wait_for(f"http://127.0.0.1:{port}/docs", "html")
        groups = [store.pid, workers_of.pid, api.pid]
        yield Service(
            "Celery + Redis",
            f"http://127.0.0.1:{port}/run",
            "output",
            lambda: {"all": [one for pid in groups for one in family(pid)]},
        )


PEER_SERVICES = {"litserve": litserve, "cog": cog, "celery": celery}


def installed_peers() -> list[str]:
    """The installed peers; prints why others are left out."""
    installed = []
    for name in PEER_SERVICES:
        if not (PEERS / name / "bin/python").exists():
            print(f"left out: {name} is not installed (.ci/bench-peers installs it)")
        elif name == "celery" and shutil.which("redis-server") is None:
            print("left out: celery needs redis-server (Debian: apt-get install redis-server)")
        else:
            installed.append(name)
    return installed


def family(pid: int) -> list[psutil.Process]:
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


@contextlib.contextmanager
def running(
    command: list[str], cwd: Path, env: dict[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Runs a process; prints the end of its stderr if the benchmark fails."""
    with tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            pass_fds=pass_fds,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        with _ended(process):
            try:
                yield process
            except SystemExit:
                stderr.seek(0)
                print("".join(stderr.readlines()[-20:]), file=sys.stderr)
                raise


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Ends the process and all its children."""
    try:
        yield
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def ready_line(process: subprocess.Popen[str]) -> dict[str, str]:
    """The line of JSON that `stoker control` prints when it is ready."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            got: dict[str, str] = json.loads(line)
            return got
    raise SystemExit("control ended before it was ready")


def wait_for(url: str, accept: str, headers: dict[str, str] | None = None) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx2.HTTPError):
            if re.search(accept, httpx2.get(url, headers=headers).text):
                return
        time.sleep(0.05)
    raise SystemExit(f"{url} did not answer with {accept!r} in 90 s")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
