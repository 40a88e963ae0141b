"""Yields for ever without ever waiting for anything."""

import itertools


async def handler(job):
    for number in itertools.count():
        yield {"number": number}
