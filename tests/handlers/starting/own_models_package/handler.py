"""Imports the user's own `models`, `worker` and `agent`."""

import agent
import models
import worker


def handler(job):
    return {"models": models.NAME, "worker": worker.NAME, "agent": agent.NAME}
