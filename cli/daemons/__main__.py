"""The start of control or the agent: `python -m stoker.cli.daemons NAME OPTIONS [--ready-fd N]`."""

from __future__ import annotations

import atexit
import gc
import sys
from dataclasses import replace

from stoker.cli.daemons.options import options_of
from stoker.cli.daemons.start import run
from stoker.cli.ending import explained


def main(arguments: list[str]) -> None:
    atexit.register(gc.freeze)  # no collection at exit: it takes seconds in control
    name, text, *ready = arguments
    options = options_of(name, text)
    if ready:
        options = replace(options, ready_fd=int(ready[1]))
    with explained([name]):
        run(options)


if __name__ == "__main__":
    main(sys.argv[1:])
