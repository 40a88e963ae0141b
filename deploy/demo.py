"""The demo: everything started on free ports, three pictures and a talking video in out/, everything stopped.

    make demo            or    python deploy/demo.py [--out out]

Uses what users use: `stoker up` as a process, the API client, the signed URLs. It fails when a picture does
not open, when the video (`talking_picture`) is not what was asked for, when a cost is not the documented one,
or when a process is left running.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
import talking_picture

from stoker.cli.readiness import understand
from stoker.client import Client, JobRecord

ENDPOINT = "text-to-image"
PROMPTS: list[dict[str, Any]] = [
    {"prompt": "a lighthouse in a storm", "seed": 7, "num_inference_steps": 8, "image_format": "png"},
    {"prompt": "a paper boat on a puddle", "width": 768, "height": 512, "num_inference_steps": 6},
    {
        "prompt": "a fox asleep under a fern",
        "negative_prompt": "blurry",
        "width": 512,
        "height": 512,
        "num_inference_steps": 10,
    },
]


def say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def service(data: Path, key: str) -> Iterator[str]:
    """`stoker up` on free ports, stopped with one Ctrl-C. Fails if anything it started outlives it."""
    read, write = os.pipe()
    command = [sys.executable, "-P", "-m", "stoker.cli", "up", "--port", "0", "--data-dir", str(data)]
    up = subprocess.Popen(
        [*command, "--ready-fd", str(write)],
        env={**os.environ, "STOKER_API_KEY": key},
        pass_fds=[write],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C at the demo is passed on by the demo
    )
    os.close(write)
    try:
        with open(read, "rb") as pipe:
            facts = understand(pipe.readline())
        if facts is None:
            raise SystemExit(f"stoker up ended before it was ready; its logs were in {data / 'logs'}")
        yield facts["http"]
    finally:
        stop(up)


def stop(up: subprocess.Popen[bytes]) -> None:
    started = psutil.Process(up.pid).children(recursive=True) if up.poll() is None else []
    say(f"\nstopping stoker up and the {len(started)} processes below it")
    up.send_signal(signal.SIGINT)
    try:
        up.wait(60)
    except subprocess.TimeoutExpired:
        up.kill()
        raise SystemExit("stoker up did not stop") from None
    _, left = psutil.wait_procs(started, timeout=30)
    if left:
        raise SystemExit(f"left running: {', '.join(str(process) for process in left)}")
    say("stopped; nothing was left running")


def make_picture(stoker: Client, given: dict[str, Any], out: Path) -> None:
    say(f"\n> {given['prompt']}")
    began = time.monotonic()
    job = stoker.run(ENDPOINT, given)
    say(f"  {job.id} accepted after {1000 * (time.monotonic() - began):.0f} ms")
    for event in stoker.events(ENDPOINT, job.id):
        match event.kind:
            case "progress":
                value = event.value["output"]
                say(f"  step {value['step']} of {value['steps']}")
            case "chunk" if "preview" in event.value["output"]:
                preview = event.value["output"]["preview"]
                size = f"{preview['width']}x{preview['height']}"
                say(f"  preview after step {preview['step']}, {size}")
            case "end":
                record = JobRecord.read(event.value)
                if not record.succeeded:
                    raise SystemExit(f"the job ended {record.status}: {record.error}")
                keep(record, given, out, time.monotonic() - began)


def keep(record: JobRecord, given: dict[str, Any], out: Path, seconds: float) -> None:
    output = record.output
    answer = httpx.get(output["image_url"], timeout=60, trust_env=False)
    answer.raise_for_status()
    out.write_bytes(answer.content)
    with Image.open(out) as picture:
        picture.load()
        size = picture.size
    wanted = (given.get("width", 1024), given.get("height", 1024))
    if size != wanted:
        raise SystemExit(f"{out} is {size[0]}x{size[1]}; {wanted[0]}x{wanted[1]} was asked for")
    cost = wanted[0] * wanted[1] * 20 / 1e9
    if output["cost"] != cost:
        raise SystemExit(f"the cost is {output['cost']}; {cost} is the documented one")
    say(f"  URL   {output['image_url'].partition('?')[0]}?… (signed, valid for 7 days)")
    say(f"  cost  {output['cost']:.8f} USD")
    say(f"  time  queued {record.delay_time} ms, made in {record.execution_time} ms, {seconds:.2f} s in all")
    say(f"  file  {out}, {size[0]}x{size[1]}, {len(answer.content)} bytes, seed {output['seed']}")


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--out", type=Path, default=Path("out"))
    out: Path = options.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    key = f"sk_demo{secrets.token_hex(4)}_{secrets.token_hex(32)}"
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stoker-demo-") as data:
        say("starting stoker up: object store, control, agent, hosted models")
        with service(Path(data), key) as url, Client(url, key) as stoker:
            for number, given in enumerate(PROMPTS, 1):
                kind = "png" if given.get("image_format") == "png" else "jpg"
                make_picture(stoker, given, out / f"{number}.{kind}")
            video = talking_picture.make_video(stoker, out)
    took = time.monotonic() - began
    say(f"\nThree pictures are in {out}/, and a talking video in {video}. It took {took:.0f} s.")
    if not os.environ.get("STOKER_PIPELINE"):
        say(
            "Without a GPU and real weights they were made by flux-tiny and talk-tiny: the real models'\n"
            "own classes and the same path with small made-up weights. So the pictures are patterns and\n"
            "not what the prompts say, and the video is the face, coarse, with a mouth that opens as the\n"
            "voice gets louder."
        )


if __name__ == "__main__":
    main()
