import os


def handler(job):
    return os.getuid()
