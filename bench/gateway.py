"""Compares requests through the gateway with the same requests at the bare worker, in turns of one second.

    python bench/gateway.py [--rounds 5] [--way local] [--way direct] [--way tunnel] [--json FILE]

The worker is a FastAPI app on uvicorn that echoes a POST: once started by hand, and once for each way in
which control may reach it as the one worker of a load-balancing endpoint: the agent's port on this host, its
gateway port over TLS, and its tunnel. If nginx is installed, it is a further service: a proxy that keeps its
connections, before the bare worker. wrk makes the load on the same machine, with 1 and 32 connections. All
services run at once and take turns, so a busy machine affects them alike. Before that 25 MiB are sent in each
way, and what control and the agent grew by meanwhile is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
from dispatch_load import Service, Turns, drive, in_turns
from dispatch_services import ECHO, JOIN, KEY, ROOT, echo, family, free_port, ready_line, running, wait_for
from measured_on import machine

CONNECTIONS = (1, 32)
WAYS = ("local", "direct", "tunnel")
UPLOADED_BYTES = 25 * 1024 * 1024
PING = """
from fastapi import Request

@app.post("/upload")
async def upload(request: Request) -> int:
    return sum([len(piece) async for piece in request.stream()])

@app.get("/ping")
async def ping() -> Response:
    return Response()

if __name__ == "__main__":
    import os, uvicorn
    uvicorn.run(app, port=int(os.environ["PORT"]), access_log=False, log_level="error")
"""
CONFIG = """
local_roots = ["."]
gateway_ways = ["{way}"]

[[endpoints]]
id = "echo"
type = "LOAD_BALANCER"
imageName = "local:app"
dockerStartCmd = [{python}, "server.py"]
workersMin = 1
workersMax = 1
idleTimeout = 3600
"""
NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
  upstream worker {{ server {worker}; keepalive 64; }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://worker; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
}}
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5, help="turns of one second for each service")
    options.add_argument("--way", action="append", choices=WAYS, help="only this one; may be repeated")
    options.add_argument("--json", type=Path, help="write the figures here")
    chosen = options.parse_args()
    if shutil.which("wrk") is None:
        print("skipped: wrk is not installed (Debian: apt-get install wrk)")
        return
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        services = [stack.enter_context(echo(folder))]
        ways = [stack.enter_context(gateway(folder / way, way)) for way in chosen.way or WAYS]
        services += ways
        if shutil.which("nginx") is None:
            print("left out: nginx is not installed (Debian: apt-get install nginx-light)")
        else:
            services.append(stack.enter_context(nginx(folder / "nginx", services[0])))
        for service in services:
            drive(service, 8, 2)
        uploads = [uploaded(way) for way in ways]
        figures = [one for count in CONNECTIONS for one in compared(in_turns(services, count, chosen.rounds))]
    if chosen.json:
        chosen.json.write_text(
            json.dumps(machine("../control", "../agent") | {"figures": figures, "uploads": uploads}, indent=2)
        )


@contextlib.contextmanager
def gateway(folder: Path, way: str) -> Iterator[Service]:
    """wrk -> control -> the agent, in this way -> the worker."""
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "server.py").write_text(ECHO + PING)
    (folder / "stoker.toml").write_text(CONFIG.format(python=json.dumps(sys.executable), way=way))
    command = [sys.executable, "-P", "-m", "stoker.cli"]
    env = {"STOKER_JOIN_TOKEN": JOIN, "STOKER_API_KEY": KEY, "PYTHONPATH": str(ROOT / "src")}
    common = ["--data-dir", str(folder / "data"), "--config", str(folder / "stoker.toml")]
    with running([*command, "control", "--port", "0", "--grpc-port", "0", *common], folder, env) as first:
        where = ready_line(first)
        agent = [*command, "agent", "--control", where["grpc"], "--data-dir", str(folder / "agent")]
        agent += ["--gateway-listen", "127.0.0.1:0"] if way == "direct" else []
        with running(agent, folder, env) as second:
            wait_for(
                f"{where['http']}/v1/endpoints/echo/health",
                r'"ready":\s*1\b',
                {"Authorization": f"Bearer {KEY}"},
            )
            control, agents = psutil.Process(first.pid), psutil.Process(second.pid)
            processes = {"control": [control], "agent": [agents], "worker": agents.children(recursive=True)}
            url = f"{where['http']}/v2/echo/echo"
            yield Service(way, url, "input", lambda: processes, key=f"Bearer {KEY}")


def uploaded(service: Service) -> dict[str, Any]:
    """What control and the agent grew by while 25 MiB passed through them, after a first small upload."""
    url, headers = service.url.rpartition("/")[0] + "/upload", {"Authorization": service.key}

    def resident() -> dict[str, int]:
        found = service.processes()
        return {name: found[name][0].memory_info().rss for name in ("control", "agent")}

    def send(size: int) -> int:
        chunk = bytes(64 * 1024)
        chunks = (chunk for _ in range(size // len(chunk)))
        answer = httpx2.post(url, content=chunks, headers=headers, timeout=120, trust_env=False)
        return int(answer.text)

    send(1024 * 1024)
    before, began = resident(), time.monotonic()
    taken = send(UPLOADED_BYTES)
    assert taken == UPLOADED_BYTES, f"the worker got {taken} bytes of {UPLOADED_BYTES}"
    seconds, after = time.monotonic() - began, resident()
    grown = {name: (after[name] - before[name]) / 2**20 for name in after}
    text = ", ".join(f"{name} +{mib:.1f} MiB" for name, mib in grown.items())
    print(f"25 MiB uploaded  {service.name:8} {taken / 2**20 / seconds:6.0f} MiB/s  {text}")
    return {"service": service.name, "mib_per_second": taken / 2**20 / seconds, "grown_mib": grown}


@contextlib.contextmanager
def nginx(folder: Path, behind: Service) -> Iterator[Service]:
    folder.mkdir()
    port, worker = free_port(), behind.url.split("/")[2]
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, worker=worker, port=port))
    with running(["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)], folder) as process:
        wait_for(f"http://127.0.0.1:{port}/docs", "html")
        processes = {"nginx": family(process.pid), **behind.processes()}
        yield Service("nginx", f"http://127.0.0.1:{port}/echo", "input", lambda: processes)


def compared(turns: list[Turns]) -> list[dict[str, Any]]:
    """The figures of each service, compared with the bare worker, which is the first."""
    bare, found = turns[0], []
    for one in turns:
        figure = {
            "service": one.service,
            "connections": one.connections,
            "p50_ms": one.p50,
            "p99_ms": one.p99,
            "added_p50_ms": one.p50 - bare.p50,
            "added_p99_ms": one.p99 - bare.p99,
            "per_second": one.per_second,
            "cpu_us_by_process": one.cpu_by_process,
        }
        cpu = ", ".join(f"{name} {value:.0f}" for name, value in one.cpu_by_process.items())
        print(
            f"{one.connections:3} connections  {one.service:8}"
            f" p50 {one.p50:6.2f} ms (+{figure['added_p50_ms']:.2f})"
            f"  p99 {one.p99:6.2f} ms (+{figure['added_p99_ms']:.2f})"
            f"  {one.per_second:7.0f}/s  CPU us: {cpu}"
        )
        found.append(figure)
    return found


if __name__ == "__main__":
    print(f"{os.cpu_count()} cores")
    main()
