"""Prints `lines` numbered lines, the last without its end, one on stderr, and ends as `then` says."""

import os
import signal
import sys


def handler(job):
    print("to stderr", file=sys.stderr)
    for n in range(job.input.get("lines", 3)):
        print("line", n, "x" * job.input.get("width", 0))
    print(os.environ.get("MY_TOKEN", ""), end="")
    match job.input.get("then"):
        case "raise":
            raise ValueError("after its lines")
        case "die":
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        case "stuck":
            sys.stdout.flush()
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            while True:
                signal.pause()
    return {"lines": job.input.get("lines", 3)}
