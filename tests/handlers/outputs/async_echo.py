"""Returns its input, from a coroutine."""


async def handler(job):
    return job.input
