"""Returns nothing, at once."""


def handler(job):
    return None
