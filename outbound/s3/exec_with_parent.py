"""Replaces itself with another program, which then ends when its parent does.

    python -I -S <this file> PARENT_PID FD PROGRAM [ARG…]

PR_SET_PDEATHSIG survives exec but not fork, so the process that becomes the program must set it. Setting it
in a `preexec_fn` would run Python between fork and exec of a process with threads, where any lock may be held
without end; this small program in between costs 15 ms and avoids that. It also passes the listening socket FD
as systemd does, which needs LISTEN_PID to be the program's own pid.

The kernel sends the signal when the *thread* that spawned this process ends: spawn it from a thread that
lives as long as the program should. Standard library only; no module imports it.
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
    if os.getppid() != parent:  # the parent died before prctl
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
