"""A synchronous handler with every outcome that one can have; the input says which. AT_ONCE jobs at a
time."""

import os
import sys
import time

import runpod

HOME_AT_IMPORT = os.environ["HOME"]


class Boom(Exception):
    pass


def handler(job):
    given = job["input"]
    match given.get("do"):
        case "return":
            return given["value"]
        case "job":
            return {"job": dict(job)}
        case "raise":
            raise Boom("no such voice: é")
        case "missing":
            return given["prompt"]
        case "unserialisable":
            return {"value": object()}
        case "nan":
            return {"value": float("nan")}
        case "large":
            return {"blob": "x" * given["size"]}
        case "print":
            print("a line of the handler")
            return None
        case "progress":
            for step in range(3):
                runpod.serverless.progress_update(job, {"step": step})
            while not os.path.exists(given["go"]):
                time.sleep(0.01)
            return "done"
        case "sleep":
            time.sleep(given["s"])
            return "slept"
        case "wait":
            with open(given["begun"], "w") as begun:
                begun.write(job["id"])
            while not os.path.exists(given["go"]):
                time.sleep(0.01)
            return "waited"
        case "die":
            os._exit(3)
        case "exit":
            sys.exit(4)
        case "environment":
            return {"environment": dict(os.environ), "folder": os.getcwd(), "home": os.listdir(HOME_AT_IMPORT)}
        case "pid":
            return os.getpid()
    return {"echo": given}


AT_ONCE = int(os.environ.get("AT_ONCE", "1"))
runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: AT_ONCE})
