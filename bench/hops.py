"""Counts the functions and files of Stoker that one warm no-op `/runsync` enters, in control, agent and
worker.

    python bench/hops.py [--requests 7] [--list] [--against COMMIT]

A real control, agent and worker run under a profiler (`hops_inside`), which records each function that is
entered between the request and its response. A function that fewer than half of the requests enter (of a
heartbeat, for example) is left out. A reader of the code has to follow these functions, so there is a limit
for their number and that of their files: the exit status is 1 where it is passed, and a test fails.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx2
from dispatch_services import ROOT, stoker, worktree

INSIDE = Path(__file__).resolve().parent / "hops_inside"
FUNCTIONS, FILES = 136, 47
ROLES = ("control", "agent", "workers")
QUIET_S = 0.3  # between requests: the work after a response is done by then

Function = tuple[str, str]  # its file and its name


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--requests", type=int, default=7)
    options.add_argument("--list", action="store_true", help="print the functions in the order of entry")
    options.add_argument("--against", help="a commit of this repository, counted instead of the work tree")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        folder.chmod(0o755)
        source = stack.enter_context(worktree(chosen.against, folder)) if chosen.against else ROOT
        entered = count(folder, source, chosen.requests)
    _print(entered, listed=chosen.list)
    if not within_limit(entered):
        raise SystemExit(1)


def count(folder: Path, source: Path, requests: int) -> dict[str, list[Function]]:
    """The functions by role that most of the requests entered, in the order of the first request."""
    notes = folder / "notes"
    notes.mkdir()
    notes.chmod(0o777)  # workers may be another user's
    (notes / "counting").write_bytes(b"\0")
    inside = {
        "STOKER_HOPS": str(notes),
        "STOKER_HOPS_SOURCE": str(source.resolve()),
        "PYTHONPATH": str(INSIDE),
    }
    with stoker(folder / "stoker", 1, source=source, inside=inside) as service:
        spans = _spans(service.url, service.key, service.body, notes / "counting", requests)
        pids = {process.pid: role for role, group in service.processes().items() for process in group}
    found: dict[str, list[list[Function]]] = defaultdict(list)
    for file in notes.glob("*.entered"):
        role = pids.get(int(file.stem), "workers")
        found[role] += _by_request(file.read_text(), spans)
    return {role: _usual(found[role], requests) for role in ROLES}


def within_limit(entered: Mapping[str, Sequence[Function]]) -> bool:
    every = {function for functions in entered.values() for function in functions}
    return len(every) <= FUNCTIONS and _files(every) <= FILES


def _spans(url: str, key: str | None, body: str, counting: Path, requests: int) -> list[tuple[int, int]]:
    """The times of each request and its response, in nanoseconds of the clock that all processes share."""
    spans = []
    headers = {"Authorization": key or "", "Content-Type": "application/json"}
    with httpx2.Client(headers=headers) as client, _flag(counting) as flag:
        for number in range(requests + 2):
            time.sleep(QUIET_S)
            begun = time.monotonic_ns()
            flag[0] = 0 < number <= requests  # the first request warms up; after the last, all is written
            response = client.post(url, content=body)
            flag[0] = 0
            spans.append((begun, time.monotonic_ns()))
            if response.json()["status"] != "COMPLETED":
                raise SystemExit(f"the job did not complete: {response.text}")
    return spans[1:-1]


@contextlib.contextmanager
def _flag(path: Path) -> Iterator[mmap.mmap]:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1) as flag:
        yield flag


def _by_request(text: str, spans: Sequence[tuple[int, int]]) -> list[list[Function]]:
    entered: list[list[Function]] = [[] for _ in spans]
    for line in text.splitlines():
        at, path, name = line.split(" ", 2)
        for number, (begun, ended) in enumerate(spans):
            if begun <= int(at) <= ended and (path, name) not in entered[number]:
                entered[number].append((path, name))
    return entered


def _usual(entered: Sequence[Sequence[Function]], requests: int) -> list[Function]:
    times = Counter(function for one in entered for function in one)
    return [function for function, count in times.items() if count * 2 > requests]


def _print(entered: Mapping[str, Sequence[Function]], *, listed: bool) -> None:
    for role, functions in entered.items():
        print(f"{role:<8} {len(functions):>4} functions in {_files(functions):>3} files")
        for path, name in functions if listed else ():
            print(f"    {path:<48} {name}")
    every = {function for functions in entered.values() for function in functions}
    files = _files(every)
    print(
        f"{'in sum':<8} {len(every):>4} functions in {files:>3} files; the limit is {FUNCTIONS} in {FILES}:"
        f" {len(every) / FUNCTIONS:.2f} x and {files / FILES:.2f} x"
    )


def _files(functions: Sequence[Function] | set[Function]) -> int:
    return len({path for path, _ in functions})


if __name__ == "__main__":
    main()
