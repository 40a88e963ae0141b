"""The first thing a worker process runs: `python -P -m stoker.agent.launch PARENT MODULE ARGUMENT…`, or
`python launch.py PARENT -- COMMAND ARGUMENT…`.

Ties the process's life to the agent's, then becomes MODULE or COMMAND; the tie outlives an exec. Standard
library only; it runs in the user's interpreter. Why here: PR_SET_PDEATHSIG must be set by the process itself;
a `preexec_fn` would run Python in a fork of an agent that has threads; an extra program (setpriv) may not be
there. Measured: 2.5 ms, the import of ctypes.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, module = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the tie was made
        os._exit(1)
    if module == "--":
        _become(sys.argv[3:])
    sys.argv[1:] = sys.argv[3:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _become(command: list[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, and an exec would pass that on
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]} cannot be run: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)


if __name__ == "__main__":
    main()
