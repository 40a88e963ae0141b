"""The demo's talking video, made from a face drawn here and from voice.flac.

Works like any caller: uploads both files (`POST files`), queues a job, follows its events, downloads the
video. It fails if the video is not exactly the requested one, or if its cost is not the documented one.
"""

from __future__ import annotations

import base64
import io
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import httpx2
from PIL import Image, ImageDraw

from stoker.client import Client, Event, JobRecord

ENDPOINT = "talking-video"
SPEECH = Path(__file__).with_name("voice.flac")
SIDE, FINER = 640, 4
FPS, COST = 25, 0.25

BACKGROUND, HAIR, SKIN, SHIRT = (112, 150, 168), (72, 48, 40), (232, 190, 160), (64, 84, 132)
WHITE, IRIS, LIPS, SHADE = (250, 248, 244), (60, 90, 70), (186, 84, 84), (206, 158, 130)


def draw_face(out: Path) -> None:
    """Draws a simple face in SIDE x SIDE pixels, at a higher resolution that is scaled down."""
    image = Image.new("RGB", (SIDE * FINER, SIDE * FINER), BACKGROUND)
    pen = ImageDraw.Draw(image)

    def oval(x: int, y: int, width: int, height: int, colour: tuple[int, int, int]) -> None:
        box = (x - width // 2, y - height // 2, x + width // 2, y + height // 2)
        pen.ellipse([side * FINER for side in box], fill=colour)

    oval(320, 660, 520, 320, SHIRT)
    oval(320, 500, 120, 160, SHADE)
    oval(320, 270, 330, 390, HAIR)
    oval(320, 310, 270, 350, SKIN)
    for x in (258, 382):
        oval(x, 226, 70, 14, HAIR)
        oval(x, 270, 58, 34, WHITE)
        oval(x, 270, 30, 30, IRIS)
    oval(320, 342, 34, 56, SHADE)
    oval(320, 414, 98, 34, LIPS)
    oval(320, 414, 78, 6, HAIR)
    image.resize((SIDE, SIDE), Image.Resampling.LANCZOS).save(out)


def make_video(stoker: Client, folder: Path) -> Path:
    """Makes and checks the video in `folder`."""
    face, out = folder / "face.png", folder / "talking.mp4"
    draw_face(face)
    print_line(f"\n> {face.name} speaks the text of {SPEECH.name}")
    began = time.monotonic()
    job_input = {
        "prompt": "a person talks to the camera",
        "image": stoker.upload(ENDPOINT, face, "image/png"),
        "audio": stoker.upload(ENDPOINT, SPEECH, "audio/flac"),
        "size": "480p",
    }
    job = stoker.run(ENDPOINT, job_input)
    print_line(f"  {job.id} accepted; its worker starts now, since this is its first job")
    data = bytearray()
    for event in stoker.events(ENDPOINT, job.id):
        if event.kind == "end":
            break
        show_event(event, data, time.monotonic() - began)
    record = JobRecord.read(event.value)
    if not record.succeeded:
        raise SystemExit(f"the job ended {record.status}: {record.error}")
    check_and_save(record, out, bytes(data), time.monotonic() - began)
    return out


def show_event(event: Event, data: bytearray, seconds: float) -> None:
    """Prints a step, or a chunk of the video: the chunks so far are a video that can be played."""
    output = event.value.get("output") if event.kind in {"progress", "chunk"} else None
    match output:
        case {"chunk": chunk, "chunks": chunks, "step": step, "steps": steps}:
            print_line(f"  chunk {chunk} of {chunks}, step {step} of {steps}")
        case {"video": {"data": encoded}}:
            part = base64.b64decode(encoded)
            data += part
            frames = frames_of(io.BytesIO(data))
            print_line(
                f"  chunk of {len(part)} bytes after {seconds:.2f} s: {frames / FPS:.2f} s can be played"
            )


def frames_of(video_file: Any) -> int:
    with av.open(video_file) as opened:
        return sum(1 for _ in opened.decode(video=0))


def check_and_save(record: JobRecord, out: Path, data: bytes, seconds: float) -> None:
    output = record.output
    response = httpx2.get(output["video_url"], timeout=60, trust_env=False)
    response.raise_for_status()
    out.write_bytes(response.content)
    frames = check(out)
    if (streamed := frames_of(io.BytesIO(data))) != frames:
        raise SystemExit(f"the chunks have {streamed} frames; the video has {frames}")
    if output["cost"] != COST:
        raise SystemExit(f"the cost is {output['cost']}; {COST} is the documented one")
    print_line(f"  URL   {output['video_url'].partition('?')[0]}?… (signed, valid for 7 days)")
    print_line(f"  cost  {output['cost']:.2f} USD")
    print_line(
        f"  time  queued {record.delay_time} ms, made in {record.execution_time} ms, {seconds:.2f} s in all"
    )
    print_line(
        f"  file  {out}, {frames} frames, {frames / FPS:.2f} s with audio, {len(response.content)} bytes"
    )


def check(out: Path) -> int:
    """The number of frames. It must be `floor(seconds x 25)`, at 25 a second, with as much audio."""
    expected = int(seconds_of(SPEECH) * FPS)
    with av.open(str(out)) as video_file:
        video, audio = video_file.streams.video[0], video_file.streams.audio[0]
        found = video.average_rate, video.codec_context.name, audio.codec_context.name
        lasts = Fraction(video.duration or 0) * (video.time_base or 0)
    if found != (Fraction(FPS), "h264", "aac") or lasts != Fraction(expected, FPS):
        raise SystemExit(f"{out} is {found}, {float(lasts)} s; 25 a second, h264, aac and {expected / FPS} s")
    if (frames := frames_of(str(out))) != expected:
        raise SystemExit(f"{out} has {frames} frames; {expected} were expected")
    if abs(seconds_of(out) - expected / FPS) > 0.05:
        raise SystemExit(f"{out} has {float(seconds_of(out)):.3f} s of audio; {expected / FPS} were expected")
    return frames


def seconds_of(audio: Path) -> Fraction:
    with av.open(str(audio)) as opened:
        rate = opened.streams.audio[0].rate
        return Fraction(sum(frame.samples for frame in opened.decode(audio=0)), rate)


def print_line(text: str) -> None:
    print(text, flush=True)
