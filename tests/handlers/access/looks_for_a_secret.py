"""Looks everywhere that it can for a secret, which it is given in two halves and never puts together.

It says what it found: its job, its environment, its own memory, its open files, its parent's memory.
"""

import os
import re


def handler(job):
    first, rest = job.input["first"].encode(), job.input["rest"].encode()[::-1]  # `rest` comes backwards
    found = [name for name in ("environ", "cmdline") if holds(read(f"/proc/self/{name}"), first, rest)]
    found += [f"{name}={value}" for name, value in os.environ.items() if value.startswith(job.input["first"])]
    if memory_holds("/proc/self", first, rest):
        found.append("memory")
    found += [name for name in vars(type(job)).get("__slots__", ()) if "s3" in name]
    given = job.input.get("announce")
    if given:
        job.progress("looked")
        while not os.path.exists(given):
            os.sched_yield()
    return {"found": found, "readable": bool(read("/proc/self/maps"))}


def memory_holds(process, first, rest):
    with open(f"{process}/maps") as maps, open(f"{process}/mem", "rb", 0) as memory:
        for line in maps:
            if re.search(r" rw", line) and "[v" not in line:
                begin, end = (int(number, 16) for number in line.split()[0].split("-"))
                try:
                    memory.seek(begin)
                    if holds(memory.read(end - begin), first, rest):
                        return True
                except OSError:
                    continue
    return False


def holds(text, first, rest):
    at = text.find(first)
    while at >= 0:
        after = at + len(first)
        if all(text[after + n : after + n + 1] == rest[n : n + 1] for n in range(len(rest))):
            return True
        at = text.find(first, at + 1)
    return False


def read(path):
    with open(path, "rb") as file:
        return file.read()
