"""The shape of language model workers: an async generator, several jobs at once, the chunks aggregated."""

import asyncio

import runpod


async def handler(job):
    given = job["input"]
    for number in range(given["tokens"]):
        await asyncio.sleep(given.get("pause", 0.0))
        yield {"text": f"token {number}", "filler": "x" * given.get("filler", 0)}
        if number == given.get("raise_after"):
            raise ValueError("the engine died")


def grows(current):
    return min(current + 1, 4)


runpod.serverless.start({"handler": handler, "concurrency_modifier": grows, "return_aggregate_stream": True})
