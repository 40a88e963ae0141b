"""Emits the numbers below `count` (3 unless told) as chunks and returns their sum."""


def handler(job):
    count = job.input.get("count", 3)
    for number in range(count):
        job.emit({"number": number})
    return {"sum": sum(range(count))}
