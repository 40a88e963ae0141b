"""Returns `size` characters (2 MiB unless told)."""


def handler(job):
    return {"text": "x" * job.input.get("size", 2 * 1024 * 1024)}
