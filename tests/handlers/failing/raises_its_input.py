"""Prints the text of its input, and raises it."""


def handler(job):
    print(job.input["text"], flush=True)
    raise ValueError(job.input["text"])
