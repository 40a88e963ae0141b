"""A worker whose own fitness check fails before its first job."""

import runpod


@runpod.serverless.register_fitness_check
def no_driver():
    raise RuntimeError("no driver on this host")


runpod.serverless.start({"handler": lambda job: job})
