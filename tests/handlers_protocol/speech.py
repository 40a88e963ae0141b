"""The shape of the field's speech workers: timers, a download folder that is made in the folder it starts in,
files that lie beside it, and the SDK's cleaning up by name."""

import os

import runpod
from runpod.serverless.utils import rp_cleanup, rp_debugger
from runpod.serverless.utils.rp_validator import validate

SCHEMA = {"audio": {"type": str, "required": True}}


@rp_debugger.FunctionTimer
def handler(job):
    with rp_debugger.LineTimer("validation_step"):
        result = validate(job["input"], SCHEMA)
    if "errors" in result:
        return {"error": result["errors"]}
    folder = os.path.abspath(os.path.join("jobs", job["id"], "downloaded_files"))
    os.makedirs(folder)
    with open(f"{folder}/audio", "w") as file:
        file.write(result["validated_input"]["audio"])
    os.makedirs("input_objects", exist_ok=True)
    with rp_debugger.LineTimer("cleanup_step"):
        rp_cleanup.clean(["output_objects"])
    with open("lines.py") as beside, open(f"{folder}/audio") as file:
        return {"text": file.read().upper(), "beside": beside.readline(), "left": sorted(os.listdir("jobs"))}


runpod.serverless.start({"handler": handler})
