"""Measures the memory and the start-up time of Stoker's processes, and of commands.

    python bench/footprint.py [--rounds 3] [--against COMMIT] [--json FILE]

`stoker up --no-hosted` serves one endpoint with one worker. After one job and some seconds of rest: PSS and
anonymous memory of each process (MB), and the CPU time of control until its port is open and of the agent
until it rests; then control's memory after a job whose input is a file of the object store. The figure of
several rounds is their least. PSS counts shared pages in parts, so other Stoker processes on the machine
lower it; anonymous memory is the robust figure. With --against, the same of another commit in turns, and the
ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
from dispatch_services import HANDLER, KEY, ROOT, running, worktree
from measured_on import machine

REST_S = 7.0
FILE_BYTES = 2 << 20  # over 1 MB, an input is a file of the object store
CONFIG = """
local_roots = ["."]

[[endpoints]]
id = "noop"
type = "QUEUE"
imageName = "local:noop.py:handler"
workersMin = 1
workersMax = 1
"""
COMMANDS = {
    "stoker --version": ["--version"],
    "stoker --help": ["--help"],
    "stoker job list --help": ["job", "list", "--help"],
    "stoker job list, refused": ["job", "list", "noop", "--url", "http://127.0.0.1:9"],
}
ROLES = {
    "rclone serve": "object store",
    "reaper.py": "reaper",
    "-m stoker.worker": "worker",
    "stoker.cli.daemons agent": "agent",
    "stoker.cli.daemons control": "control",
    "stoker.cli agent": "agent",
    "stoker.cli control": "control",
}
AFTER_A_FILE = "control after a job with a file"
Figures = dict[str, float]


def environment(source: Path) -> dict[str, str]:
    """Returns the variables of a process of this checkout. It keeps its bytecode, as an installed one does:
    without that, compiling takes a fifth of a start."""
    return {"PYTHONPATH": str(source / "src"), "STOKER_API_KEY": KEY, "PYTHONDONTWRITEBYTECODE": ""}


def commands(source: Path, folder: Path) -> Figures:
    """Returns the CPU seconds of each command."""
    took = {}
    for name, arguments in COMMANDS.items():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-P", "-m", "stoker.cli", *arguments],
            env={**os.environ, **environment(source)},
            cwd=folder,
            capture_output=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took[f"{name}, CPU s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took


@contextlib.contextmanager
def platform(source: Path, folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Runs `stoker up`; yields the address of control, and the process."""
    (folder / "stoker.toml").write_text(CONFIG)
    (folder / "noop.py").write_text(HANDLER)
    read, write = os.pipe()
    options = ["--no-hosted", "--no-page", "--port", "0", "--config", "stoker.toml", "--data-dir", "data"]
    command = [sys.executable, "-P", "-m", "stoker.cli", "up", *options, "--ready-fd", str(write)]
    # An agent looks at the weights of its host, and there are none.
    variables = environment(source) | {"XDG_CACHE_HOME": str(folder / "cache")}
    with running(command, folder, variables, (write,)) as process:
        os.close(write)
        with open(read) as pipe:
            facts = json.loads(pipe.readline())
        yield facts["http"], psutil.Process(process.pid)


def processes(source: Path, folder: Path) -> Figures:
    """Returns the memory of each process at rest, and the CPU time of those that start."""
    with platform(source, folder) as (http, up):
        named = {_role(child): child for child in up.children(recursive=True)}
        figures = {"control until its port is open, CPU s": _cpu(named["control"])}
        run_job(http, {"ms": 0})
        time.sleep(REST_S)
        named = {"up": up} | {_role(child): child for child in up.children(recursive=True)}
        figures["agent until it rests, CPU s"] = _cpu(named["agent"])
        for role in ("up", "control", "agent", "reaper", "worker", "object store"):
            pss, own = _memory(named[role].pid)
            figures |= {f"{role}, PSS MB": pss, f"{role}, anonymous MB": own}
        parts = ("control", "agent", "reaper", "worker")
        for kind in ("PSS", "anonymous"):
            figures[f"control, agent, reaper and worker, {kind} MB"] = sum(
                figures[f"{part}, {kind} MB"] for part in parts
            )
        run_job(http, {"ms": 0, "ballast": "x" * FILE_BYTES})
        time.sleep(REST_S)
        pss, own = _memory(named["control"].pid)
        return figures | {f"{AFTER_A_FILE}, PSS MB": pss, f"{AFTER_A_FILE}, anonymous MB": own}


def run_job(http: str, given: dict[str, object]) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    answer = httpx2.post(f"{http}/v2/noop/runsync", json={"input": given}, headers=headers, timeout=90)
    assert answer.json()["status"] == "COMPLETED", answer.text


def _role(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    return next((role for word, role in ROLES.items() if word in line), "another")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _memory(pid: int) -> tuple[float, float]:
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, size = line.partition(":")
        fields[name] = int(size.split()[0]) / 1024
    return fields["Pss"], fields["Anonymous"]


def measure(source: Path, folder: Path) -> Figures:
    folder.mkdir()
    return processes(source, folder) | commands(source, folder)


def least(rounds: list[Figures]) -> Figures:
    return {name: round(min(figures[name] for figures in rounds), 3) for name in rounds[0]}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--against", help="a commit of this repository, measured in turns")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        folder.chmod(0o755)
        sources = {"now": ROOT}
        if chosen.against:
            sources[chosen.against] = stack.enter_context(worktree(chosen.against, folder))
        found: dict[str, list[Figures]] = {name: [] for name in sources}
        for number in range(chosen.rounds):
            for at, (name, source) in enumerate(sources.items()):
                found[name].append(measure(source, folder / f"{number}-{at}"))
    figures = {name: least(rounds) for name, rounds in found.items()}
    before = figures.get(chosen.against or "", {})
    for name, value in figures["now"].items():
        ratio = f"   {before[name]:8.2f} before, {value / before[name]:.2f} x" if before else ""
        print(f"{name:55} {value:8.2f}{ratio}")
    if chosen.json:
        chosen.json.write_text(
            json.dumps(machine("../agent", "../cli", "../control") | figures, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
