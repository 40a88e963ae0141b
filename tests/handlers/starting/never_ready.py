"""Waits for ever while it is imported, as one that downloads from a host that does not answer."""

import time

time.sleep(3600)


def handler(job):
    return None
