"""Yields for ever, and knows nothing of cancelling."""

import itertools


def handler(job):
    for number in itertools.count():
        yield {"number": number}
