"""Lifts the recursion limit and recurses through C: the stack of the process overflows."""

import os
import sys


def deeper(_):
    return list(map(deeper, [0]))


def handler(job):
    if job.input == "pid":
        return os.getpid()
    sys.setrecursionlimit(10**9)
    deeper(0)
