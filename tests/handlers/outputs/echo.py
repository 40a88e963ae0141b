"""Returns its input."""


def handler(job):
    return job.input
