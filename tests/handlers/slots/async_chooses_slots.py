"""Takes as many jobs at once as its last job said with `slots`; a list of them is told one after another."""

from stoker import worker

NEXT = [3]


def modifier(current):
    answer = NEXT.pop(0) if len(NEXT) > 1 else NEXT[0]
    if answer == "raise":
        raise SystemExit("no number today")
    return current + 1 if answer == "more" else answer


@worker.handler(concurrency_modifier=modifier)
async def handler(job):
    NEXT[:] = job.input["slots"]
    return job.input
