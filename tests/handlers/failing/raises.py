"""Raises: a plain error, an error for the caller, or a retryable one, as `kind` says."""

from stoker.worker import HandlerError, RetryableError


def handler(job):
    kind = job.input.get("kind")
    if kind == "handler":
        raise HandlerError("the prompt names nobody")
    if kind == "retryable":
        raise RetryableError("the other service is busy")
    if kind == "exit":
        raise SystemExit(7)
    raise ValueError("seven is too many")
