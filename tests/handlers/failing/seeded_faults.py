"""Faults as handlers have them, each by its name in the input: `test_faults_replayed` counts which come again
in a replay."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from typing import Any

import numpy as np

from stoker.worker import HandlerError

JOBS: list[str] = []
"""What earlier jobs of this process have left."""


def missing_key(job: Any) -> Any:
    return job.input["prompt"]


def wrong_type(job: Any) -> Any:
    return job.input["steps"] + 1


def not_a_number(job: Any) -> Any:
    total = sum(float("inf") * weight for weight in job.input["weights"])
    if total != total:
        raise FloatingPointError(f"the loss is {total} at step {len(job.input['weights'])}")
    return total


def shapes(_job: Any) -> Any:
    return float((np.ones((2, 3)) @ np.ones((2, 3))).sum())


def division(job: Any) -> Any:
    return 1 / job.input["guidance"]


def index(job: Any) -> Any:
    return job.input["frames"][job.input["at"]]


def refused_by_handler(job: Any) -> Any:
    raise HandlerError(f"the prompt has {len(job.input['prompt'])} characters; at most 4 are allowed")


def broken_file(job: Any) -> Any:
    return json.loads(job.fetch(job.input["url"]).path.read_text())


def wrong_file_type(job: Any) -> Any:
    with open(job.fetch(job.input["url"]).path, "rb") as file:
        if file.read(8) != b"\x89PNG\r\n\x1a\n":
            raise ValueError(f"{file.name} is no PNG")
    return None


file_that_changed = broken_file
"""Its server has other bytes afterwards."""


def memory(_job: Any) -> Any:
    return len(bytearray(1 << 60))


def too_slow(_job: Any) -> Any:
    while True:
        time.sleep(0.01)


def order(_job: Any) -> Any:
    if len(JOBS) > 1:
        raise RuntimeError(f"the cache is full after {', '.join(JOBS[:1])}")
    return JOBS


def variable_missing(_job: Any) -> Any:
    return os.environ["FAULTS_TOKEN"]


def variable_of_the_endpoint(_job: Any) -> Any:
    if os.environ["FAULTS_MODE"] == "fast":
        raise NotImplementedError("there is no fast mode")
    return None


def seed_of_the_input(job: Any) -> Any:
    return _drawn(random.Random(job.input["seed"]))


def seed_that_is_reported(job: Any) -> Any:
    seed = job.input.get("seed", random.randrange(1 << 30))
    job.progress({"seed": seed})
    return _drawn(random.Random(seed))


def no_seed(_job: Any) -> Any:
    return _drawn(random.Random())


def _drawn(source: random.Random) -> None:
    raise ArithmeticError(f"{source.random()} is outside of the range")


def clock(_job: Any) -> Any:
    raise TimeoutError(f"the token has expired at {time.time_ns()}")


def race(_job: Any) -> Any:
    ended: list[int] = []

    def work(number: int) -> None:
        time.sleep(random.random() / 100)
        ended.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise RuntimeError(f"the parts came in the order {ended}")


def killed(_job: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def recursion(job: Any) -> Any:
    return recursion(job)


def module_missing(_job: Any) -> Any:
    import no_such_sampler  # type: ignore[import-not-found]

    return no_such_sampler


def scratch_of_its_own(job: Any) -> Any:
    return (job.scratch / "latents.bin").read_bytes()


def after_a_save(job: Any) -> Any:
    """Its third part fails, and the two before it are saved."""
    done = [] if job.saved is None else json.loads(job.saved)
    for part in range(len(done), 4):
        job.progress({"part": part, "from": len(done)})
        if part == 3:
            raise KeyError(f"part {part}")
        done.append(part)
        job.save(json.dumps(done).encode())
    return done


def handler(job: Any) -> Any:
    JOBS.append(job.input["fault"])
    return globals()[job.input["fault"]](job)
