"""The shape of most public workers: a class that loads its model once, an async handler, base64 output."""

import asyncio
import base64
import os

import runpod


class Model:
    def __init__(self):
        self.loaded_in = os.getpid()

    async def picture(self, prompt):
        await asyncio.sleep(0.01)
        return base64.b64encode(prompt.encode() * 3).decode()


MODEL = Model()
ENDED = []


async def handler(job):
    given = job["input"]
    if given.get("openai_route"):
        return {"route": given["openai_route"], "model": given["openai_input"]["model"]}
    if "wait" in given:
        if "begun" in given:
            open(given["begun"], "w").close()
        try:
            await asyncio.sleep(given["wait"])
        finally:
            ENDED.append(job["id"])
    if "ended" in given:
        return ENDED
    return {"image": await MODEL.picture(given.get("prompt", "")), "loaded_in": MODEL.loaded_in}


AT_ONCE = int(os.environ.get("AT_ONCE", "1"))
runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: AT_ONCE})
