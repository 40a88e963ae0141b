"""Becomes a daemon while it is imported: the process that was started ends, and a child in a session of its
own goes on."""

import os
import time

if os.fork():
    os._exit(0)
os.setsid()
time.sleep(3600)
