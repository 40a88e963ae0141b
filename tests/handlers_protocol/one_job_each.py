"""Asks for a fresh process after each job: by its configuration, or by what it returns."""

import os

import runpod


def handler(job):
    pid = os.getpid()
    return {"refresh_worker": True, "pid": pid} if job["input"].get("asks") else {"pid": pid}


by_config = os.environ.get("BY_CONFIG") == "yes"
runpod.serverless.start({"handler": handler, "refresh_worker": by_config})
