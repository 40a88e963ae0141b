"""Yields twice, then raises."""


def handler(job):
    yield {"number": 0}
    yield {"number": 1}
    raise ValueError("no third number")
