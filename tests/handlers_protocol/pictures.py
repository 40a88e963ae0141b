"""The shape of the field's image workers: a model in a class that is loaded once, a schema for the input,
progress, logs by the SDK, base64 out, checks of fitness, a fresh process when the model is in a bad way."""

import base64
import os

import runpod
from runpod.serverless.utils.rp_validator import validate

SCHEMA = {
    "prompt": {"type": str, "required": True},
    "steps": {"type": int, "required": False, "default": 2},
    "worker_refresh": {"type": bool, "required": False, "default": False},
}
checked = []
log = runpod.RunPodLogger()


@runpod.serverless.register_fitness_check
def weights_are_there():
    checked.append("weights")


@runpod.serverless.register_fitness_check
async def device_answers():
    checked.append("device")


class Pipeline:
    def load(self):
        self.loaded_in = os.getpid()
        return self

    def __call__(self, job, prompt, steps):
        for step in range(steps):
            runpod.serverless.progress_update(job, f"step {step + 1} of {steps}")
        return f"a picture of {prompt}".encode()


pipeline = Pipeline().load()


def handler(job):
    result = validate(job["input"], SCHEMA)
    if "errors" in result:
        return {"error": result["errors"]}
    given = result["validated_input"]
    log.info("drawing", job["id"])
    picture = pipeline(job, given["prompt"], given["steps"])
    answer = {
        "image": base64.b64encode(picture).decode(),
        "loaded_in": pipeline.loaded_in,
        "checked": checked,
    }
    if given["worker_refresh"]:
        answer["refresh_worker"] = True
    return answer


runpod.serverless.start({"handler": handler})
