"""Reports `steps` steps (3 unless told) and returns how many there were."""


def handler(job):
    steps = job.input.get("steps", 3)
    for step in range(1, steps + 1):
        job.progress({"step": step, "of": steps})
    return {"steps": steps}
