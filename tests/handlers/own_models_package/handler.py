"""Imports the user's own `models` and `worker`."""

import models
import worker


def handler(job):
    return {"models": models.NAME, "worker": worker.NAME}
