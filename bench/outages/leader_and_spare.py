"""Measures what callers of a leader and a spare see while something is killed or stands still for 70 s.

    python -P bench/outages/leader_and_spare.py [--jobs 5000] [--pause 70]
                                                [--json bench/results/leader-and-spare.json]

Two controls on one PostgreSQL, two agents, and 8 callers of both addresses whose calls end after 4 s and are
made again. Each job is checked to have ended once and to have been billed once. Seconds of each stage:

    new job    until a job that was submitted after the kill, or after the pause of a database, had run; after
               a pause of the leader, from its begin
    usual      what the same job takes at the same load, right before
    503        from the first 503 that a caller got to the last one
    no answer  from the first call without an answer in 4 s, or cut off, to the last one
    none       the longest time in which no job was accepted
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT)]
from measured_on import machine  # noqa: E402

from tests.servers.postgres_server import PostgresServer  # noqa: E402
from tests.system.faults.pair.checked_story import told  # noqa: E402
from tests.system.faults.pair.story import Stage  # noqa: E402


def show(stages: Sequence[Stage]) -> None:
    print(f"{'':<26}{'new job':>10}{'usual':>10}{'503':>10}{'no answer':>11}{'none':>10}")
    for one in stages:
        times = f"{one.resumed_s:>10.1f}{one.usual_s:>10.1f}{one.refused_s:>10.1f}"
        print(f"{one.name:<26}{times}{one.unanswered_s:>11.1f}{one.unserved_s:>10.1f}")


def rounded(stage: Stage) -> dict[str, str | float]:
    found = dataclasses.asdict(stage)
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in found.items()}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--pause", type=float, default=70.0, help="seconds")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    with closing(PostgresServer()) as server, tempfile.TemporaryDirectory() as folder:
        stages = told(Path(folder), server, options.jobs, options.pause)
    show(stages)
    if options.json:
        about = machine("../control", "../agent", "../cli", "outages")
        result = {"machine": about, "jobs": options.jobs, "pause_s": options.pause}
        options.json.write_text(
            json.dumps(result | {"stages": [rounded(one) for one in stages]}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
