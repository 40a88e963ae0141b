"""Uploads what it made to the caller's own bucket, as the SDK's helper does it."""

import runpod
from runpod.serverless.utils import rp_upload


def handler(job):
    bucket = job["s3Config"]
    made = job["input"]["text"].encode()
    url = rp_upload.upload_in_memory_object("a.txt", made, bucket, bucket["bucketName"], prefix=job["id"])
    return {"url": url}


runpod.serverless.start({"handler": handler})
