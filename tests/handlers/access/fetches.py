"""Fetches `url` with the limits that it is given, and tells what it found or how it was refused."""

from stoker.worker import InputRefused


def handler(job):
    given = dict(job.input)
    try:
        found = job.fetch(given.pop("url"), **given)
    except InputRefused as refused:
        return {"refused": str(refused), "reason": refused.reason, "retryable": refused.retryable}
    with open(found, "rb") as file:
        body = file.read()
    found.path.write_bytes(b"mine")  # it is the job's own
    below = str(found.path.relative_to(job.scratch))
    return {"path": below, "body": body.decode("latin1"), "size": found.size, "sha256": found.sha256,
            "media_type": found.media_type}


async def handler_async(job):
    import asyncio

    if job.input.get("wrongly"):
        return str(job.fetch("http://a.test/"))
    within = job.input.get("within")
    if within is not None:
        try:
            await asyncio.wait_for(job.fetch_async(job.input["url"]), within)
        except TimeoutError:
            return "left"
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    found = await asyncio.gather(*(job.fetch_async(url) for url in job.input["urls"]))
    ticking.cancel()
    return {"paths": [str(each.path.relative_to(job.scratch)) for each in found], "ticks": ticks,
            "bodies": [each.path.read_text() for each in found]}


def leaves_a_fetch_behind(job):
    """Its thread waits for an answer that nobody gives any more."""
    import threading

    began = threading.Event()

    def fetch():
        began.set()
        job.fetch("http://a.test/")

    threading.Thread(target=fetch, daemon=True).start()
    began.wait()
    return 1


def in_threads(job):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        return [found.path.read_text() for found in pool.map(job.fetch, job.input["urls"])]
