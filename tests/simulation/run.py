"""Tells stories until one goes wrong: `make simulate N=10000 FIRST=0`, or this program with `--help`.

Each seed is one story, the same on every machine. Both cores are used; the first seed that fails is told
again with a trace, and the exact command that does so is printed. Exit status 1 then.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

LINES = 60
EVERY_S = 10.0


def fixed_hashes() -> None:
    """The order of a set of strings is drawn anew by each start of Python: with this one it is not."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-P", str(HERE), *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})


def one(seed: int, *, spare: bool = False) -> tuple[int, str | None]:
    from tests.simulation.story import play

    return seed, play(seed, spare=spare).violation


def search(first: int, number: int, processes: int, *, spare: bool) -> int | None:
    """The first seed that fails, as far as the order of the answers tells."""
    from tests.simulation import story  # noqa: F401  # once, for all processes

    began = reported_at = time.monotonic()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for done, (seed, violation) in enumerate(
            pool.imap(partial(one, spare=spare), range(first, first + number), 4), 1
        ):
            now = time.monotonic()
            if violation is not None:
                pool.terminate()
                return seed
            if now - reported_at > EVERY_S:
                reported_at = now
                print(f"{done} of {number} seeds hold, {done / (now - began):.1f} seeds/s", flush=True)
    took = time.monotonic() - began
    print(f"{number} seeds from {first} on hold; {number / took:.1f} seeds/s, {took:.1f} s", flush=True)
    return None


def show(seed: int, word: str | None, lines: int, *, spare: bool) -> bool:
    """Tells one story with its trace; `word` picks the lines. Whether it held."""
    from tests.simulation.story import play

    result = play(seed, spare=spare, tracing=True)
    picked = [line for line in result.lines if word is None or word in line]
    print("\n".join(picked[-lines:]))
    print(f"seed {seed}: {result.steps} steps, {result.seconds:.1f} s of its time")
    if result.violation is not None:
        print(f"\nSEED {seed} FAILS: {result.violation}")
        with_spare = " SPARE=--spare" if spare else ""
        print(f"once more: make simulate N=1 FIRST={seed}{with_spare}")
    return result.violation is None


def prove(number: int, only: str | None) -> int:
    """Plants every bug and tells stories until one shows it; how many were not found."""
    from tests.simulation.plants import PLANTS
    from tests.simulation.two_controls import plants  # noqa: F401 - they are among PLANTS then

    names = [name for name in PLANTS if only in (None, name)]
    with multiprocessing.get_context("fork").Pool(os.cpu_count() or 1) as pool:
        missed = 0
        for name, seed, violation in pool.imap_unordered(found_by, [(name, number) for name in names]):
            missed += violation is None
            print(f"{name}: " + (f"NOT FOUND in {number} seeds" if violation is None
                                 else f"seed {seed}: {violation[:160]}"), flush=True)  # fmt: skip
    return missed


def found_by(plant_and_seed: tuple[str, int]) -> tuple[str, int, str | None]:
    """The first seed that finds a planted bug, with what it says."""
    from tests.simulation.plants import plant
    from tests.simulation.two_controls.plants import OF_TWO_CONTROLS

    name, number = plant_and_seed
    for seed in range(number):
        with plant(name):
            _, violation = one(seed, spare=name in OF_TWO_CONTROLS)
        if violation is not None:
            return name, seed, violation
    return name, number, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plants", action="store_true", help="plant every known bug: each must be found")
    parser.add_argument(
        "--spare", action="store_true", help="with a second control, which waits to take over"
    )
    parser.add_argument("--plant", help="plant this one bug")
    parser.add_argument("--word", help="of the trace, only the lines with this in them")
    parser.add_argument("--lines", type=int, default=LINES, help="how much of the trace is shown")
    options = parser.parse_args()
    logging.getLogger("stoker").setLevel(logging.ERROR)
    logging.getLogger("stoker").propagate = False
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # tasks of killed processes end unheard
    if options.plants or (options.plant and options.number > 1):
        return 1 if prove(options.number, options.plant) else 0
    if options.number == 1:
        return 0 if show(options.first, options.word, options.lines, spare=options.spare) else 1
    failed = search(options.first, options.number, options.processes, spare=options.spare)
    if failed is None:
        return 0
    show(failed, options.word, options.lines, spare=options.spare)
    return 1


if __name__ == "__main__":
    fixed_hashes()
    sys.exit(main())
