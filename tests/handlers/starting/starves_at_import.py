"""Calls something that is not there, at import, in a thread, and then waits for it: nobody comes."""

import threading

done = threading.Event()


def load():
    raise RuntimeError("the licence server does not answer")
    done.set()


threading.Thread(target=load, daemon=True).start()
done.wait()


def handler(job):
    return None
