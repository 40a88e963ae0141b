"""Tasks that `emit`, `wait` for a word or `tell` one, then `raise`, have a `task` do so, or return."""

import asyncio
import builtins
import contextvars
from collections import defaultdict

OWNER = contextvars.ContextVar("OWNER", default="nobody")


class Handler:
    async def setup(self, device):
        OWNER.set("setup")
        self.words = defaultdict(asyncio.Event)

    async def run(self, job):
        before = OWNER.get()
        OWNER.set(job.id)
        if "emit" in job.input:
            job.emit("x" * job.input["emit"])
        if "wait" in job.input:
            job.progress("waits")
            await self.words[job.input["wait"]].wait()
        self.words[job.input.get("tell")].set()
        if "raise" in job.input:
            self._raise(job)
        if "task" in job.input:
            await asyncio.create_task(self._raise_later(job))
        return {"before": before, "after": OWNER.get(), "name": asyncio.current_task().get_name()}

    def _raise(self, job):
        raise getattr(builtins, job.input.get("raise") or job.input["task"])("on purpose")

    async def _raise_later(self, job):
        self._raise(job)
