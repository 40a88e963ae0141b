"""Measures long lists of the API, and what a page that stays open costs control and its own process.

    python bench/page.py [--jobs 1000000] [--nodes 125] [--seconds 40] [--json bench/results/page.json]

Control is a process with SQLite; its store is filled with jobs of one endpoint before it starts, over twelve
hours: the first half has FAILED, the second waits. Simulated nodes (fleet.py), 8 workers each, connect over
real gRPC. Each list is asked for over one connection, and the median and the slowest answer are kept: a limit
of 200 ms.

Then `stoker page` runs beside it, and Chromium opens one page after the other. For each, control's CPU time
is counted while the page is open, and before and after that while it is not, since the nodes cost some, too:
a limit of 1 % of a core. The memory of the page's process is its PSS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import psutil

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from dispatch_services import JOIN, KEY, ROOT, ready_line, running
from fleet import GPUS, Node, Seen, cpu_s
from measured_on import machine
from playwright.async_api import async_playwright

LIMIT_MS, LIMIT_CORES = 200.0, 0.01
HOURS = 12
ENDPOINTS = """
[[endpoints]]
id = "busy"
imageName = "local:noop.py:handler"
computeType = "GPU"
workersMin = {workers}
workersMax = {workers}

[[endpoints]]
id = "long"
imageName = "local:noop.py:handler"
computeType = "GPU"
workersMax = 0
"""
LISTS = {
    "jobs, first page": "/v2/long/requests?limit=50",
    "jobs, in the middle": "/v2/long/requests?limit=50&cursor={middle}",
    "jobs, in progress (none)": "/v2/long/requests?limit=50&status=IN_PROGRESS",
    "jobs, failed": "/v2/long/requests?limit=50&status=FAILED",
    "jobs, by error (none)": "/v2/long/requests?limit=50&error=out%20of%20memory&cursor={middle}",
    "jobs, by worker (none)": "/v2/long/requests?limit=50&worker=w-none",
    "jobs, by node (none)": "/v2/long/requests?limit=50&node=n-none",
    "jobs, until 6 hours before": "/v2/long/requests?limit=50&until={before}",
    "health of the queue": "/v1/endpoints/long/health",
    "statistics of the queue": "/v1/endpoints/long/statistics",
    "statistics of the workers": "/v1/endpoints/busy/statistics",
    "endpoints with health": "/v1/endpoints?includeHealth=true&limit=20",
    "workers, first page": "/v1/endpoints/busy/workers?limit=20",
    "workers, last page": "/v1/endpoints/busy/workers?limit=20&after={worker}",
    "workers, by status (none)": "/v1/endpoints/busy/workers?limit=20&status=UNHEALTHY",
    "workers, all": "/v1/endpoints/busy/workers",
    "nodes, first page": "/v1/nodes?limit=20",
    "nodes, silent (none)": "/v1/nodes?limit=20&state=silent",
    "nodes, by name": "/v1/nodes?limit=20&search=node-00",
    "nodes, all": "/v1/nodes",
}
PAGES = ("/", "/jobs?endpoint=long", "/endpoints", "/endpoints/busy", "/fleet", "/billing", "/resources")


def fill(data: Path, jobs: int) -> None:
    """Puts jobs into the store of a control that ended: the first half has failed, the second waits."""
    with closing(sqlite3.connect(data / "stoker.db")) as conn, conn:
        for half, state in enumerate(("FAILED", "IN_QUEUE")):
            _insert(conn, jobs // 2, f"{half}", state, time.time())


def _insert(conn: sqlite3.Connection, number: int, name: str, state: str, now: float) -> None:
    columns = "id, account, endpoint, state, rank, not_before, created_at, expires_at, ttl_at, retention_s"
    conn.execute(
        f"""INSERT INTO jobs ({columns}, sync, low, execution_timeout_ms, delay_ms, execution_ms)
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :number)
        SELECT '{name}-' || i, 'default', 'long', '{state}', 1, 0,
               {now} - {HOURS * 1800} * (2 - {name} - 1.0 * i / :number),
               {now + 86400}, {now + 86400}, 86400, 0, 0, 600000, 12, 345 FROM n""",
        {"number": number},
    )
    conn.execute(
        "INSERT INTO inputs (seq, body) SELECT seq, CAST('{}' AS BLOB) FROM jobs WHERE state = :s",
        {"s": state},
    )
    failed = "SELECT seq, 'ValueError: the width of ' || id || ' is wrong' FROM jobs WHERE state = 'FAILED'"
    if state == "FAILED":
        conn.execute(f"INSERT INTO results (seq, error) {failed}")


async def ask(url: str, jobs: int, rounds: int = 20) -> dict[str, Any]:
    """Asks for each list, and returns its times in milliseconds and its size."""
    found: dict[str, Any] = {}
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        workers = (await client.get("/v1/endpoints/busy/workers")).json()
        before = round(1000 * (time.time() - 3600 * HOURS / 2))
        places = {"middle": jobs // 2, "worker": workers[-10]["id"], "before": before}
        for name, path in LISTS.items():
            took = []
            for _ in range(rounds):
                began = time.perf_counter()
                answer = (await client.get(path.format(**places))).raise_for_status()
                took.append(1000 * (time.perf_counter() - began))
                await asyncio.sleep(0.05)
            body = answer.json()
            found[name] = {
                "p50_ms": round(statistics.median(took), 1),
                "slowest_ms": round(max(took), 1),
                "bytes": len(answer.content),
                "records": len(body.get("requests", body) if isinstance(body, dict) else body),
            }
            print(f"{name:28} {found[name]}", flush=True)
    return found


async def opened(
    page: dict[str, str], of_page: psutil.Process, control: psutil.Process, seconds: float
) -> Any:
    """Opens each page in turn, and returns the cores that it takes of control, and its process's memory."""
    found: dict[str, Any] = {"memory_mib": {"no browser": mib(of_page)}, "cores": {}}

    async def cores() -> float:
        before, began = cpu_s(control), time.monotonic()
        await asyncio.sleep(seconds)
        return (cpu_s(control) - before) / (time.monotonic() - began)

    async with async_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        context = await browser.new_context()
        tab = await context.new_page()
        await tab.goto(page["link"])
        before = await cores()
        for path in PAGES:
            await tab.goto(page["page"] + path)
            await asyncio.sleep(2)
            during = await cores()
            await tab.goto("about:blank")
            await asyncio.sleep(5)
            before, after = await cores(), before
            found["cores"][path] = round(during - (before + after) / 2, 4)
            print(f"{path:28} {found['cores'][path]:.4f} cores beside {before:.4f}", flush=True)
        tabs = [await context.new_page() for _ in range(10)]
        for number, one in enumerate(tabs):
            await one.goto(page["page"] + PAGES[number % len(PAGES)])
            if number == 0:
                found["memory_mib"]["1 page"] = mib(of_page)
        found["memory_mib"]["10 pages"] = mib(of_page)
        await browser.close()
    print(found["memory_mib"])
    return found


def mib(process: psutil.Process) -> float:
    return round(process.memory_full_info().pss / 2**20, 1)


@asynccontextmanager
async def fleet(grpc: str, nodes: int, workers: int) -> AsyncIterator[None]:
    """Simulated nodes with all workers ready, during the block."""
    seen, joined = Seen(), asyncio.Semaphore(4)
    async with asyncio.TaskGroup() as tasks:
        running_ = [tasks.create_task(Node(number, seen).run(grpc, joined)) for number in range(nodes)]
        while seen.ready < workers:  # noqa: ASYNC110  # the nodes count, and tell nobody
            await asyncio.sleep(0.5)
        await asyncio.sleep(10)
        yield
        for node in running_:
            node.cancel()


async def measure(stack: ExitStack, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    workers = options.nodes * GPUS
    (folder / "stoker.toml").write_text(
        f'local_roots = ["{folder}"]\n{ENDPOINTS.format(workers=workers)}\n[rate_limits]\nenabled = false\n'
        "[prices]\n"
    )
    (folder / "noop.py").write_text("def handler(job):\n    return None\n")
    stoker = [sys.executable, "-P", "-m", "stoker.cli"]
    command = [*stoker, "control", "--port", "0", "--grpc-port", "0", "--data-dir", str(folder / "data")]
    env = {"STOKER_JOIN_TOKEN": JOIN, "STOKER_API_KEY": KEY, "PYTHONPATH": str(ROOT / "src")}
    command += ["--config", str(folder / "stoker.toml")]
    with running(command, folder, env) as control:
        ready_line(control)  # its tables and its endpoints are there
    fill(folder / "data", options.jobs)
    control = stack.enter_context(running(command, folder, env))
    where = ready_line(control)
    of_page = stack.enter_context(
        running([*stoker, "page", "--url", where["http"], "--port", "0", "--ready-fd", "1"], folder, env)
    )
    page = ready_line(of_page)
    async with fleet(where["grpc"], options.nodes, workers):
        lists = await ask(where["http"], options.jobs)
        processes = psutil.Process(of_page.pid), psutil.Process(control.pid)
        costs = await opened(page, *processes, options.seconds)
    return {"jobs": options.jobs, "nodes": options.nodes, "workers": workers, "lists": lists, **costs}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=125)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = asyncio.run(measure(stack, Path(folder), options))
    slow = [name for name, one in found["lists"].items() if one["slowest_ms"] > LIMIT_MS]
    dear = [path for path, cores in found["cores"].items() if cores > LIMIT_CORES]
    print(f"over {LIMIT_MS:.0f} ms: {slow or 'none'}; over {LIMIT_CORES:.0%} of a core: {dear or 'none'}")
    if options.json:
        described = {"machine": machine("page.py", "../control", "../page"), **found}
        options.json.write_text(json.dumps(described, indent=2) + "\n")


if __name__ == "__main__":
    main()
