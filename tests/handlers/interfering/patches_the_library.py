"""Breaks what a runtime needs of the standard library, as careless patches do: json, struct, time."""

import json
import os
import struct
import time


def broken(*args, **kwargs):
    raise NotImplementedError("patched")


def handler(job):
    if job.input == "pid":
        return os.getpid()
    json.loads = json.dumps = json.JSONDecoder.decode = json.JSONEncoder.encode = broken
    struct.pack = struct.unpack = time.sleep = time.monotonic = broken
    return "patched"
