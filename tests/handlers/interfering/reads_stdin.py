"""Asks a question on the terminal and waits for the answer."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    return input("continue? ")
