"""Prints on both streams and returns what it printed."""

import sys


def handler(job):
    print("to stdout")
    print("to stderr", file=sys.stderr)
    return {"printed": 2}
