"""Opens files until no more can be opened, and keeps them."""

import os
import resource

KEPT = []


def handler(job):
    if job.input == "pid":
        return os.getpid()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        while True:
            KEPT.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return "no more"
