"""Changes what the whole process shares, and leaves it so; tells what it finds."""

import os
import resource
import signal

FILES = resource.RLIMIT_NOFILE


def seen():
    old = os.umask(0)
    os.umask(old)
    return {
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "handlers": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "umask": old,
        "folder": os.getcwd(),
        "files": resource.getrlimit(FILES),
    }


def rings(number, frame):
    raise TimeoutError("the alarm of another job")


def change(job):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.kill(os.getpid(), signal.SIGUSR1)  # stays pending
    signal.signal(signal.SIGALRM, rings)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 1000)
    os.umask(0o777)
    os.chdir(job.scratch)
    soft, hard = resource.getrlimit(FILES)
    resource.setrlimit(FILES, (soft // 2, hard - 1 if job.input == "change for good" else hard))


def handler(job):
    if job.input == "pid":
        return os.getpid()
    if job.input == "look":
        return seen()
    if job.input == "ring at the end":
        signal.signal(signal.SIGALRM, rings)
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
        return "rung"
    change(job)
    if job.input == "change and fail":
        raise ValueError("it failed")
    return "changed"
