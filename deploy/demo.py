"""The demo: starts everything on free ports, makes three images and a talking video in out/, stops
everything.

    make demo            or    python deploy/demo.py [--out out]

At a terminal it then waits for Enter, so that its page can be used: the link is printed once it is ready.

Uses what users use: `stoker up` as a process, the API client, the signed URLs. It fails if an image cannot be
opened, if the video (`talking_picture`) is not the requested one, if a cost is not the documented one, or if
a process is left running.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
import talking_picture

from stoker.cli.processes.readiness import parse_ready
from stoker.client import Client, JobRecord

ENDPOINT = "text-to-image"
PROMPTS: list[dict[str, Any]] = [
    {"prompt": "a lighthouse in a storm", "seed": 7, "image_format": "png"},
    {"prompt": "a yellow duck in the sea", "seed": 7, "width": 768, "height": 512},
    {"prompt": "three yellow stars at night", "seed": 7, "width": 512, "height": 512},
]


def print_line(text: str) -> None:
    print(text, flush=True)


@contextmanager
def service(data: Path, key: str) -> Iterator[str]:
    """Runs `stoker up` on free ports and stops it with one Ctrl-C. Fails if one of its processes is left."""
    read, write = os.pipe()
    command = [sys.executable, "-P", "-m", "stoker.cli", "up", "--port", "0", "--data-dir", str(data)]
    up = subprocess.Popen(
        [*command, "--ready-fd", str(write)],
        env={"STOKER_PIPELINE": "flux-mini,talk-mini", **os.environ, "STOKER_API_KEY": key},
        pass_fds=[write],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # the demo passes a Ctrl-C on
    )
    os.close(write)
    try:
        with open(read, "rb") as pipe:
            facts = parse_ready(pipe.readline())
        if facts is None:
            raise SystemExit(f"stoker up ended before it was ready; its logs were in {data / 'logs'}")
        yield facts["http"]
    finally:
        stop(up)


def stop(up: subprocess.Popen[bytes]) -> None:
    started = psutil.Process(up.pid).children(recursive=True) if up.poll() is None else []
    print_line(f"\nstopping stoker up and the {len(started)} processes below it")
    up.send_signal(signal.SIGINT)
    try:
        up.wait(60)
    except subprocess.TimeoutExpired:
        up.kill()
        raise SystemExit("stoker up did not stop") from None
    _, left = psutil.wait_procs(started, timeout=30)
    if left:
        raise SystemExit(f"left running: {', '.join(str(process) for process in left)}")
    print_line("stopped; nothing was left running")


def make_image(stoker: Client, job_input: dict[str, Any], out: Path) -> None:
    print_line(f"\n> {job_input['prompt']}")
    began = time.monotonic()
    job = stoker.run(ENDPOINT, job_input)
    print_line(f"  {job.id} accepted after {1000 * (time.monotonic() - began):.0f} ms")
    for event in stoker.events(ENDPOINT, job.id):
        match event.kind:
            case "progress":
                value = event.value["output"]
                print_line(f"  step {value['step']} of {value['steps']}")
            case "chunk" if "preview" in event.value["output"]:
                preview = event.value["output"]["preview"]
                size = f"{preview['width']}x{preview['height']}"
                print_line(f"  preview after step {preview['step']}, {size}")
            case "end":
                record = JobRecord.read(event.value)
                if not record.succeeded:
                    raise SystemExit(f"the job ended {record.status}: {record.error}")
                check_and_save(record, job_input, out, time.monotonic() - began)


def stay() -> None:
    """Leaves everything running for whoever opens the page, until they have seen enough."""
    print_line("\nMake a picture of your own: open the link behind `page` above.")
    with suppress(EOFError, KeyboardInterrupt):
        input("Enter stops everything. ")


def check_and_save(record: JobRecord, job_input: dict[str, Any], out: Path, seconds: float) -> None:
    output = record.output
    response = httpx2.get(output["image_url"], timeout=60, trust_env=False)
    response.raise_for_status()
    out.write_bytes(response.content)
    with Image.open(out) as image:
        image.load()
        size = image.size
    requested = (job_input.get("width", 1024), job_input.get("height", 1024))
    if size != requested:
        raise SystemExit(f"{out} is {size[0]}x{size[1]}; {requested[0]}x{requested[1]} was requested")
    cost = requested[0] * requested[1] * 20 / 1e9
    if output["cost"] != cost:
        raise SystemExit(f"the cost is {output['cost']}; {cost} is the documented one")
    print_line(f"  URL   {output['image_url'].partition('?')[0]}?… (signed, valid for 7 days)")
    for note in output.get("notes", []):
        print_line(f"  note  {note}")
    print_line(f"  cost  {output['cost']:.8f} USD")
    print_line(
        f"  time  queued {record.delay_time} ms, made in {record.execution_time} ms, {seconds:.2f} s in all"
    )
    print_line(f"  file  {out}, {size[0]}x{size[1]}, {len(response.content)} bytes, seed {output['seed']}")


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--out", type=Path, default=Path("out"))
    out: Path = options.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    key = f"sk_demo{secrets.token_hex(4)}_{secrets.token_hex(32)}"
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stoker-demo-") as data:
        print_line("starting stoker up: object store, control, agent, hosted models")
        with service(Path(data), key) as url, Client(url, key) as stoker:
            for number, job_input in enumerate(PROMPTS, 1):
                kind = "png" if job_input.get("image_format") == "png" else "jpg"
                make_image(stoker, job_input, out / f"{number}.{kind}")
            video = talking_picture.make_video(stoker, out)
            took = time.monotonic() - began
            if sys.stdin.isatty():
                stay()
    print_line(f"\nThree images are in {out}/, and a talking video in {video}. It took {took:.0f} s.")
    if "STOKER_PIPELINE" not in os.environ:
        print_line(
            "The images were made by flux-mini, FLUX's classes at 13 MB, which draws 64 things; the video\n"
            "by talk-mini, a small model that makes any portrait speak on a CPU. To use other pipelines,\n"
            "fetch their weights and set STOKER_PIPELINE."
        )


if __name__ == "__main__":
    main()
