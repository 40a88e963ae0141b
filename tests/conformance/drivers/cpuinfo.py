"""Stands before the py-cpuinfo that the SDK imports, which measures the processor for a second of each start.
The SDK reads one word of what it finds."""


def get_cpu_info():
    return {"brand_raw": "a processor"}
