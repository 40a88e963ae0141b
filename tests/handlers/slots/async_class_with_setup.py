"""An async class whose setup waits for the loop, and whose jobs wait for one another: a pair meets or
hangs."""

import asyncio


class Handler:
    async def setup(self, device):
        self.loop = asyncio.get_running_loop()
        self.arrived = {}

    async def run(self, job):
        assert asyncio.get_running_loop() is self.loop
        pair = job.input["pair"]
        other = self.arrived.pop(pair, None)
        if other is not None:
            other.set_result(job.id)
            return {"met": "a waiting job"}
        self.arrived[pair] = self.loop.create_future()
        return {"met": await self.arrived[pair]}
