"""A no-op job through the whole platform against a raw FastAPI echo, by the same load generator in one run.

    make bench            or    python bench/dispatch.py [--seconds 5] [--workers 4]

The path measured: HTTP -> store (SQLite, synchronous=FULL) -> gRPC -> agent -> worker process -> back; each
answer is given after the fsync of its outcome. The limit is one POST to a FastAPI route that echoes its body,
on uvicorn with uvloop and httptools. Load by wrk on the same machine. Prints p50, p99, jobs per second, the
CPU time per job of every process, and the ratios to the echo.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil
from measured_on import commit, hardware

KEY = "sk_" + "b" * 12 + "_" + "0" * 48
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
"""
HANDLER = "def handler(job):\n    return job.input\n"
ECHO = """
from fastapi import FastAPI, Request
from fastapi.responses import Response
app = FastAPI()

@app.post("/echo")
async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")
"""
WRK = """
wrk.method = "POST"
wrk.body = '{"input":{"x":1}}'
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = os.getenv("BENCH_KEY")
local bad = 0
function response(status, headers, body)
  if status ~= 200 or (os.getenv("BENCH_EXPECT") and not body:find(os.getenv("BENCH_EXPECT"), 1, true)) then
    bad = bad + 1
    if bad == 1 then io.stderr:write("unexpected answer: " .. status .. " " .. body .. "\\n") end
  end
end
"""


@dataclass(frozen=True)
class Load:
    """What wrk measured; latencies in milliseconds. `cpu_us` is CPU time per request by process."""

    connections: int
    p50: float
    p99: float
    per_second: float
    requests: int
    cpu_us: dict[str, float]


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def drive(
    url: str, connections: int, seconds: int, processes: dict[str, list[psutil.Process]], env: dict[str, str]
) -> Load:
    """One run of wrk; every answer is checked, and the CPU time of the given processes is taken around it."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(WRK)
        script.flush()
        before = {name: sum(map(cpu_seconds, group)) for name, group in processes.items()}
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", script.name, url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **env})
        after = {name: sum(map(cpu_seconds, group)) for name, group in processes.items()}
    if "unexpected answer" in done.stderr or "Non-2xx" in done.stdout:
        raise SystemExit(f"the load did not get what it asked for:\n{done.stderr}{done.stdout}")
    requests = int(found(r"(\d+) requests in", done.stdout))
    cpu = {name: (after[name] - before[name]) / requests * 1e6 for name in processes}
    return Load(
        connections,
        milliseconds(found(r"\n\s+50%\s+(\S+)", done.stdout)),
        milliseconds(found(r"\n\s+99%\s+(\S+)", done.stdout)),
        float(found(r"Requests/sec:\s+(\S+)", done.stdout)),
        requests,
        cpu,
    )


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"wrk printed nothing like {pattern!r}:\n{text}")
    return match.group(1)


def milliseconds(text: str) -> float:
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise SystemExit(f"wrk printed {text!r} where a duration belongs")


@contextlib.contextmanager
def running(command: list[str], cwd: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ready_line(process: subprocess.Popen[str]) -> dict[str, str]:
    """The line of JSON that `stoker control` prints once it listens."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            got: dict[str, str] = json.loads(line)
            return got
    raise SystemExit("control ended before it was ready")


def wait_for(url: str, accept: str, headers: dict[str, str]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if re.search(accept, httpx.get(url, headers=headers).text):
                return
        time.sleep(0.05)
    raise SystemExit(f"{url} did not answer with {accept!r} in 60 s")


def measure_echo(folder: Path, seconds: int) -> list[Load]:
    (folder / "echo_app.py").write_text(ECHO)
    with socket.socket() as listener:  # a port that is free
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "echo_app:app",
        "--port",
        str(port),
        "--no-access-log",
        "--log-level",
        "error",
    ]
    with running(command, folder, dict(os.environ)) as process:
        wait_for(f"http://127.0.0.1:{port}/docs", "html", {})
        group = {"echo": [psutil.Process(process.pid)]}
        return [
            drive(f"http://127.0.0.1:{port}/echo", c, seconds, group, {"BENCH_KEY": "none"}) for c in (1, 32)
        ]


def measure_platform(folder: Path, seconds: int, workers: int) -> list[Load]:
    (folder / "stoker.toml").write_text(CONFIG.format(workers=workers))
    (folder / "noop.py").write_text(HANDLER)
    stoker = [sys.executable, "-P", "-m", "stoker.cli"]
    env = {**os.environ, "STOKER_JOIN_TOKEN": "jt_" + "c" * 12 + "_" + "0" * 48, "STOKER_API_KEY": KEY}
    common = ["--data-dir", str(folder / "data"), "--config", str(folder / "stoker.toml")]
    control = [*stoker, "control", "--port", "0", "--grpc-port", "0", *common]
    with running(control, folder, env) as first:
        where = ready_line(first)
        agent = [*stoker, "agent", "--control", where["grpc"], "--data-dir", str(folder / "agent")]
        with running(agent, folder, env) as second:
            headers = {"Authorization": f"Bearer {KEY}"}
            wait_for(f"{where['http']}/v2/noop/health", rf'"ready":\s*{workers}', headers)
            agent_process = psutil.Process(second.pid)
            group = {
                "control": [psutil.Process(first.pid)],
                "agent": [agent_process],
                "workers": agent_process.children(recursive=True),
            }
            url = f"{where['http']}/v2/noop/runsync"
            checks = {"BENCH_KEY": f"Bearer {KEY}", "BENCH_EXPECT": '"COMPLETED"'}
            drive(url, 8, 2, group, checks)
            return [drive(url, c, seconds, group, checks) for c in (1, 32)]


def report(name: str, load: Load) -> None:
    cpu = ", ".join(f"{part} {value:.0f}" for part, value in load.cpu_us.items())
    total = sum(load.cpu_us.values())
    print(
        f"{name:>9} {load.connections:>3} conn  p50 {load.p50:7.2f} ms  p99 {load.p99:7.2f} ms  "
        f"{load.per_second:8.0f}/s  CPU per job {total:5.0f} us ({cpu})"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--seconds", type=int, default=5)
    options.add_argument("--workers", type=int, default=4)
    options.add_argument("--json", type=Path, help="write the figures here")
    chosen = options.parse_args()
    if shutil.which("wrk") is None:
        print("skipped: wrk is not installed (Debian: apt-get install wrk)")
        return
    with tempfile.TemporaryDirectory() as place:
        echo = measure_echo(Path(place), chosen.seconds)
        ours = measure_platform(Path(place), chosen.seconds, chosen.workers)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for name, loads in (("echo", echo), ("stoker", ours)):
        for load in loads:
            report(name, load)
    ratios = {
        "p50_at_1": ours[0].p50 / echo[0].p50,
        "rate_at_32": ours[1].per_second / echo[1].per_second,
    }
    print(f"p50 at 1 connection: {ratios['p50_at_1']:.1f} x echo   (first stop 10, goal 5)")
    print(f"rate at 32 connections: {ratios['rate_at_32']:.3f} x echo   (first stop 0.18, goal 0.30)")
    if chosen.json:
        figures = {
            "commit": commit("../agent", "../control", "../wire", "../worker", "dispatch.py"),
            "hardware": hardware(),
            "workers": chosen.workers,
            "echo": [asdict(x) for x in echo],
            "stoker": [asdict(x) for x in ours],
            "ratios": ratios,
        }
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
