"""Tells how seldom garbage is collected while it is imported, while it is set up, and in a job."""

import gc

IMPORTED = gc.get_threshold()


class Handler:
    def setup(self, device):
        self.set_up = gc.get_threshold()

    def run(self, job):
        return [IMPORTED, self.set_up, gc.get_threshold()]


class Asynchronous(Handler):
    async def setup(self, device):
        self.set_up = gc.get_threshold()

    async def run(self, job):
        return [IMPORTED, self.set_up, gc.get_threshold()]
