"""Speaks for the runtime: says twice that its job is done, and that another's is."""

import json
import os
import stat
import struct


def frame(kind, body, **fields):
    header = json.dumps({"t": kind, **fields}).encode()
    return struct.pack(">II", len(header), len(body)) + header + body


def handler(job):
    if job.input == "pid":
        return os.getpid()
    about = {"job": job.id, "attempt": job.attempt, "has_output": True, "metrics": {}}
    text = frame("done", b'"forged"', **{**about, "job": "another"}) + frame("done", b'"forged"', **about) * 2
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), text)
        except OSError:
            pass
    return "real"
