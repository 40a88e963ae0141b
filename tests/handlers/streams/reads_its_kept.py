"""A handler that returns the chunks that are kept."""

from stoker.worker import Job


def handler(job: Job) -> list[object]:
    return list(job.kept)
