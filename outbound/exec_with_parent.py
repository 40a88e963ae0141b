"""Become another program that ends when its parent does.

    python -I -S <this file> PARENT_PID FD PROGRAM [ARG…]

PR_SET_PDEATHSIG survives exec but not fork, so the process that will be the program must ask for it itself.
Doing so in a `preexec_fn` would run Python between fork and exec of a process with threads, where any
lock may be held for ever; a tiny program in between costs 15 ms and has no such trap. It also hands over
the listening socket FD in the way systemd does, for which LISTEN_PID must be the program's own pid.

The signal comes when the *thread* that spawned us ends: spawn from a thread that lives as long as the program
shall. Standard library only, imported by nobody.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
FIRST_LISTENED = 3


def main() -> None:
    parent, listener, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    if listener == FIRST_LISTENED:
        os.set_inheritable(listener, True)
    else:
        os.dup2(listener, FIRST_LISTENED, inheritable=True)
        os.close(listener)
    environment = {**os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
    os.execve(program[0], program, environment)


if __name__ == "__main__":
    main()
