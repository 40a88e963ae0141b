"""Compares requests through the gateway with the same requests at the bare worker, in turns of one second.

    python bench/gateway.py [--rounds 5] [--json FILE]

The worker is a FastAPI app on uvicorn that echoes a POST: once started by hand, and once as the one worker of
a load-balancing endpoint, behind control and the node's gateway port. If nginx is installed, it is a third
service: a proxy that keeps its connections, before the bare worker. wrk makes the load on the same machine,
with 1 and 32 connections. All services run at once and take turns, so a busy machine affects them alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from dispatch_load import Service, Turns, drive, in_turns
from dispatch_services import ECHO, JOIN, KEY, ROOT, echo, family, free_port, ready_line, running, wait_for
from measured_on import machine

CONNECTIONS = (1, 32)
PING = """
@app.get("/ping")
async def ping() -> Response:
    return Response()

if __name__ == "__main__":
    import os, uvicorn
    uvicorn.run(app, port=int(os.environ["PORT"]), access_log=False, log_level="error")
"""
CONFIG = """
local_roots = ["."]

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
    options.add_argument("--json", type=Path, help="write the figures here")
    chosen = options.parse_args()
    if shutil.which("wrk") is None:
        print("skipped: wrk is not installed (Debian: apt-get install wrk)")
        return
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        services = [stack.enter_context(echo(folder)), stack.enter_context(gateway(folder / "stoker"))]
        if shutil.which("nginx") is None:
            print("left out: nginx is not installed (Debian: apt-get install nginx-light)")
        else:
            services.append(stack.enter_context(nginx(folder / "nginx", services[0])))
        for service in services:
            drive(service, 8, 2)
        figures = [one for count in CONNECTIONS for one in compared(in_turns(services, count, chosen.rounds))]
    if chosen.json:
        chosen.json.write_text(json.dumps(machine("../control", "../agent") | {"figures": figures}, indent=2))


@contextlib.contextmanager
def gateway(folder: Path) -> Iterator[Service]:
    """wrk -> control -> the node's gateway port -> the worker."""
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "server.py").write_text(ECHO + PING)
    (folder / "stoker.toml").write_text(CONFIG.format(python=json.dumps(sys.executable)))
    command = [sys.executable, "-P", "-m", "stoker.cli"]
    env = {"STOKER_JOIN_TOKEN": JOIN, "STOKER_API_KEY": KEY, "PYTHONPATH": str(ROOT / "src")}
    common = ["--data-dir", str(folder / "data"), "--config", str(folder / "stoker.toml")]
    with running([*command, "control", "--port", "0", "--grpc-port", "0", *common], folder, env) as first:
        where = ready_line(first)
        agent = [*command, "agent", "--control", where["grpc"], "--data-dir", str(folder / "agent")]
        with running(agent, folder, env) as second:
            wait_for(f"{where['http']}/v2/echo/health", r'"ready":\s*1\b', {"Authorization": f"Bearer {KEY}"})
            control, agents = psutil.Process(first.pid), psutil.Process(second.pid)
            processes = {"control": [control], "agent": [agents], "worker": agents.children(recursive=True)}
            url = f"{where['http']}/v2/echo/echo"
            yield Service("gateway", url, "input", lambda: processes, key=f"Bearer {KEY}")


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
