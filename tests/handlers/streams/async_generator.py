"""Yields the numbers below `count` (3 unless told) from an async generator; its output is the list of
them."""

from stoker import worker


@worker.handler(aggregate=True)
async def handler(job):
    for number in range(job.input.get("count", 3)):
        yield {"number": number}
