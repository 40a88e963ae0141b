"""Yields one number and returns an output of its own."""


def handler(job):
    yield {"number": 0}
    return {"total": 1}
