"""Writes into its scratch folder until it has written `size` bytes, or the disk is full."""


def handler(job):
    with open(job.scratch / "much", "wb") as file:
        for _ in range(job.input["size"] >> 20):
            file.write(bytes(1 << 20))
    return "written"
