"""Uploads by itself: it says where to, and prints and raises what must not be read."""


def handler(job):
    bucket = job.s3_config
    if bucket is None:
        return None
    print("with", bucket)
    if job.input.get("raise"):
        raise RuntimeError(f"{bucket['endpointUrl']} refused {bucket}")
    return {"bucket": bucket["bucketName"], "path": bucket.get("objectPath"), "known": len(bucket["accessSecret"])}


async def async_handler(job):
    return handler(job)
