"""Takes `ms`, and writes one line to the file `runs` as it begins and one as it ends."""

import time


def handler(job):
    def note(word):
        with open(job.input["runs"], "a") as runs:
            runs.write(f"{job.id} {word}\n")

    note("begins")
    time.sleep(job.input["ms"] / 1000)
    note("ends")
    return {"attempt": job.attempt}
