"""A plain generator whose chunks are not aggregated, and that may yield an error."""

import runpod


def handler(job):
    yield from job["input"]["yields"]


runpod.serverless.start({"handler": handler})
