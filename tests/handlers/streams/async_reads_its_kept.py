"""An asynchronous handler that returns the chunks that are kept."""

from stoker.worker import Job


async def handler(job: Job) -> list[object]:
    return [value async for value in job.kept]
