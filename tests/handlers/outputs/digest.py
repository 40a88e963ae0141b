"""Tells the length and the sha256 of the text that it was given."""

import hashlib


def handler(job):
    text = job.input["text"]
    return {"length": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
