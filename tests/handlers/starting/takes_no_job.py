"""A handler with the wrong shape."""


def handler():
    return None
