"""Counts the functions and files of Stoker that one warm no-op job enters, in control, agent and worker: by
`/runsync`, and by `/run` with a chunk that `/stream` delivers.

    python bench/hops.py [--requests 7] [--list] [--against COMMIT]

A real control, agent and worker run under a profiler (`hops_inside`), which records each function that is
entered between the request and its response. A function that fewer than half of the requests enter (of a
heartbeat, for example) is left out. A reader of the code has to follow these functions, so there is a limit
for their number and that of their files: the exit status is 1 where it is passed by over 5 %, and a test
fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2
from dispatch_load import Service
from dispatch_services import ROOT, stoker, worktree

INSIDE = Path(__file__).resolve().parent / "hops_inside"
SLACK = 1.05
"""How far a count may be over its limit: most requests enter a few functions less or more in each run."""

ROLES = ("control", "agent", "workers")
QUIET_S = 0.3  # between requests: the work after a response is done by then

Function = tuple[str, str]  # its file and its name
Ask = Callable[[httpx2.Client, str], str]
"""Makes a client run one job at an endpoint; returns the last answer."""


def runsync(client: httpx2.Client, endpoint: str) -> str:
    return client.post(f"{endpoint}/runsync", content=b'{"input": {"ms": 0}}').text


def run_and_stream(client: httpx2.Client, endpoint: str) -> str:
    job = client.post(f"{endpoint}/run", content=b'{"input": {"chunk": "part"}}').json()["id"]
    while '"IN_' in (polled := client.get(f"{endpoint}/stream/{job}").text):
        pass
    return polled


@dataclass(frozen=True)
class Way:
    """A way to run a job, and the most functions and files that it may enter."""

    ask: Ask
    functions: int
    files: int


WAYS = {
    "/runsync": Way(runsync, 146, 51),
    "/run, and /stream of a chunk": Way(run_and_stream, 198, 62),
}


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
        found = count(folder, source, chosen.requests)
    for name, entered in found.items():
        _print(name, entered, listed=chosen.list)
    if not all(within_limit(WAYS[name], entered) for name, entered in found.items()):
        raise SystemExit(1)


Entered = Mapping[str, Sequence[Function]]
"""Functions by role."""


def count(folder: Path, source: Path, requests: int) -> dict[str, Entered]:
    """The functions that most of the requests entered, by the way to run a job, in the order of the first."""
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
        spans = {name: _spans(service, way.ask, notes / "counting", requests) for name, way in WAYS.items()}
        pids = {process.pid: role for role, group in service.processes().items() for process in group}
    texts = [(pids.get(int(file.stem), "workers"), file.read_text()) for file in notes.glob("*.entered")]
    return {name: _by_role(texts, times, requests) for name, times in spans.items()}


def _by_role(texts: Sequence[tuple[str, str]], spans: Sequence[tuple[int, int]], requests: int) -> Entered:
    found: dict[str, list[list[Function]]] = defaultdict(list)
    for role, text in texts:
        found[role] += _by_request(text, spans)
    return {role: _usual(found[role], requests) for role in ROLES}


def within_limit(way: Way, entered: Entered) -> bool:
    every = {function for functions in entered.values() for function in functions}
    return len(every) <= way.functions * SLACK and _files(every) <= way.files * SLACK


def _spans(service: Service, ask: Ask, counting: Path, requests: int) -> list[tuple[int, int]]:
    """The times of each request and its response, in nanoseconds of the clock that all processes share."""
    spans = []
    headers = {"Authorization": service.key or "", "Content-Type": "application/json"}
    endpoint = service.url.removesuffix("/runsync")
    with httpx2.Client(headers=headers) as client, _flag(counting) as flag:
        for number in range(requests + 2):
            time.sleep(QUIET_S)
            begun = time.monotonic_ns()
            flag[0] = 0 < number <= requests  # the first request warms up; after the last, all is written
            answered = ask(client, endpoint)
            flag[0] = 0
            spans.append((begun, time.monotonic_ns()))
            if json.loads(answered)["status"] != "COMPLETED":
                raise SystemExit(f"the job did not complete: {answered}")
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


def _print(way: str, entered: Entered, *, listed: bool) -> None:
    print(way)
    for role, functions in entered.items():
        print(f"{role:<8} {len(functions):>4} functions in {_files(functions):>3} files")
        for path, name in functions if listed else ():
            print(f"    {path:<48} {name}")
    every = {function for functions in entered.values() for function in functions}
    files, most = _files(every), WAYS[way]
    print(
        f"{'in sum':<8} {len(every):>4} functions in {files:>3} files; the limit is {most.functions} in"
        f" {most.files}: {len(every) / most.functions:.2f} x and {files / most.files:.2f} x"
    )


def _files(functions: Sequence[Function] | set[Function]) -> int:
    return len({path for path, _ in functions})


if __name__ == "__main__":
    main()
