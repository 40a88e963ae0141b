"""Yields each line that a test writes into the named pipe `pipe`, as it comes; ends when the test closes
it."""


def handler(job):
    with open(job.input["pipe"]) as lines:
        for line in lines:
            yield {"line": line.strip()}
