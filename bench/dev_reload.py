"""Measures how soon changed code gives a new result: from the save of a file to the answer of the next call.

    python -P bench/dev_reload.py [--rounds 20] [--json bench/results/dev-reload.json]

`stoker dev --local` in a folder of its own, with one function on one worker, which is warm. After each save
the client calls until the answer is that of the new code. Milliseconds:

    reload  from the save to the first answer of the new code: the notice of the change, the scan, and a call
    call    a call of code that did not change, as the limit of it
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT)]
from measured_on import machine  # noqa: E402

from tests.system.dev.dev_server import DevServer, serving  # noqa: E402

SOURCE = """from stoker.client import endpoint

@endpoint(name="counted", cpu=True)
def counted() -> int:
    return {}
"""
FILE, PATH = "counted.py", "/counted/runsync"


def reload_s(server: DevServer, number: int) -> float:
    server.write(FILE, SOURCE.format(number))
    saved = time.perf_counter()
    while server.output(PATH) != number:
        pass
    return time.perf_counter() - saved


def call_s(server: DevServer) -> float:
    began = time.perf_counter()
    server.output(PATH)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as here:
        folder = Path(here, "app")
        folder.mkdir()
        (folder / FILE).write_text(SOURCE.format(0))
        with serving(folder, "--local") as server:
            server.output(PATH)
            calls = [call_s(server) for _ in range(options.rounds)]
            reloads = [reload_s(server, number) for number in range(1, options.rounds + 1)]
    found = {
        name: {"median_ms": round(statistics.median(times) * 1000, 1), "most_ms": round(max(times) * 1000, 1)}
        for name, times in (("reload", reloads), ("call", calls))
    }
    print(json.dumps(found, indent=2))
    if options.json is not None:
        measured = machine("../cli/dev", "../client/apps", "../worker/functions")
        options.json.write_text(
            json.dumps({"machine": measured, "rounds": options.rounds, **found}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
