"""Threads that `wait` for a word or `tell` one, then `raise` or return what they saw of their neighbours."""

import builtins
import contextvars
import threading
from collections import defaultdict

OWNER = contextvars.ContextVar("OWNER", default="nobody")
PATIENCE_S = 100.0


class Handler:
    def setup(self, device):
        OWNER.set("setup")
        self.words = defaultdict(threading.Event)

    def run(self, job):
        before = OWNER.get()
        OWNER.set(job.id)
        (job.scratch / "mine").write_text(job.id)
        if "wait" in job.input:
            job.progress("waits")
            assert self.words[job.input["wait"]].wait(PATIENCE_S)
        if "raise" in job.input:
            self.words[job.input.get("tell")].set()
            raise getattr(builtins, job.input["raise"])("on purpose")
        self.words[job.input.get("tell")].set()
        name = threading.current_thread().name
        return {"before": before, "after": OWNER.get(), "name": name, "threads": threading.active_count()}
