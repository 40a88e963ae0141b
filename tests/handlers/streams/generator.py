"""Yields the numbers below `count` (3 unless told); its output is empty."""


def handler(job):
    for number in range(job.input.get("count", 3)):
        yield {"number": number}
