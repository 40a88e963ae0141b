"""Sets a time limit for every socket to come, and puts a wrapper in the place of the class of sockets."""

import os
import socket


class Wrapped(socket.socket):
    def __init__(self, *args, **kwargs):
        raise OSError("no more sockets")


def handler(job):
    if job.input == "pid":
        return os.getpid()
    socket.setdefaulttimeout(0.001)
    socket.socket = Wrapped
    return "patched"
