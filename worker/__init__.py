"""The handler runtime and SDK. Standard library only; runs in the user's own interpreter.

    from stoker.worker import File, HandlerError, Job

    def handler(job: Job) -> dict:
        path = job.scratch / "hello.txt"
        path.write_text(f"hello, {job.input['name']}")
        return {"greeting": File(path)}

See `sdk` for what a handler may be, and `testing.LocalJob` for running one with no platform.
"""

from stoker.worker.errors import (
    Cancelled,
    FileRefused,
    FitnessError,
    HandlerError,
    InputRefused,
    KeptUnavailable,
    OutputError,
    RegistrationError,
    RetryableError,
    Yielded,
)
from stoker.worker.job.job import Job
from stoker.worker.sdk import Device, File, handler
from stoker.worker.setup.fitness import fitness_check

__all__ = [
    "Cancelled",
    "Device",
    "File",
    "FileRefused",
    "FitnessError",
    "HandlerError",
    "InputRefused",
    "Job",
    "KeptUnavailable",
    "OutputError",
    "RegistrationError",
    "RetryableError",
    "Yielded",
    "fitness_check",
    "handler",
]
