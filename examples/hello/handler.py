"""Greets whoever the job names."""

from stoker.worker import HandlerError


def handler(job):
    name = job.input.get("name", "")
    if not name:
        raise HandlerError("name is missing: give the name of somebody to greet")
    return {"greeting": f"Hello, {name}!"}
