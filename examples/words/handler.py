"""Streams the words of a text, one at a time."""

import time


def handler(job):
    for word in job.input["text"].split():
        if job.cancelled:
            return
        yield word
        time.sleep(job.input.get("pause", 0.2))
