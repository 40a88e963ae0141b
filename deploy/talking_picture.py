"""The demo's talking video: a face drawn here and the spoken file beside this one become a film.

As any caller does it: both are brought along (`POST files`), a job is queued, its events are heard, the film
is downloaded. It fails when the film is not exactly what was asked for, or is not paid for as documented.
"""

from __future__ import annotations

import base64
import io
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import httpx
from PIL import Image, ImageDraw

from stoker.client import Client, Event, JobRecord

ENDPOINT = "talking-video"
VOICE = Path(__file__).with_name("voice.flac")
SIDE, FINER = 640, 4
FPS, COST = 25, 0.25

BACKGROUND, HAIR, SKIN, SHIRT = (112, 150, 168), (72, 48, 40), (232, 190, 160), (64, 84, 132)
WHITE, IRIS, LIPS, SHADE = (250, 248, 244), (60, 90, 70), (186, 84, 84), (206, 158, 130)


def draw_face(out: Path) -> None:
    """A plain face in the middle of SIDE x SIDE pixels, drawn finer and scaled down."""
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
    """The checked film in `folder`."""
    face, out = folder / "face.png", folder / "talking.mp4"
    draw_face(face)
    say(f"\n> {face.name} says what is spoken in {VOICE.name}")
    began = time.monotonic()
    given = {
        "prompt": "a person talks to the camera",
        "image": stoker.upload(ENDPOINT, face, "image/png"),
        "audio": stoker.upload(ENDPOINT, VOICE, "audio/flac"),
        "size": "480p",
    }
    job = stoker.run(ENDPOINT, given)
    say(f"  {job.id} accepted; its worker starts now, for this is its first job")
    pieces = bytearray()
    for event in stoker.events(ENDPOINT, job.id):
        if event.kind == "end":
            break
        hear(event, pieces, time.monotonic() - began)
    record = JobRecord.read(event.value)
    if not record.succeeded:
        raise SystemExit(f"the job ended {record.status}: {record.error}")
    keep(record, out, bytes(pieces), time.monotonic() - began)
    return out


def hear(event: Event, pieces: bytearray, seconds: float) -> None:
    """Shows a step, or a piece of the film: all pieces so far are a film that plays."""
    told = event.value.get("output") if event.kind in {"progress", "chunk"} else None
    match told:
        case {"chunk": chunk, "chunks": chunks, "step": step, "steps": steps}:
            say(f"  chunk {chunk} of {chunks}, step {step} of {steps}")
        case {"video": {"data": data}}:
            piece = base64.b64decode(data)
            pieces += piece
            frames = frames_of(io.BytesIO(pieces))
            say(f"  piece of {len(piece)} bytes after {seconds:.2f} s: {frames / FPS:.2f} s can be played")


def frames_of(film: Any) -> int:
    with av.open(film) as opened:
        return sum(1 for _ in opened.decode(video=0))


def keep(record: JobRecord, out: Path, pieces: bytes, seconds: float) -> None:
    output = record.output
    answer = httpx.get(output["video_url"], timeout=60, trust_env=False)
    answer.raise_for_status()
    out.write_bytes(answer.content)
    frames = check(out)
    if (streamed := frames_of(io.BytesIO(pieces))) != frames:
        raise SystemExit(f"the pieces have {streamed} frames; the film has {frames}")
    if output["cost"] != COST:
        raise SystemExit(f"the cost is {output['cost']}; {COST} is the documented one")
    say(f"  URL   {output['video_url'].partition('?')[0]}?… (signed, valid for 7 days)")
    say(f"  cost  {output['cost']:.2f} USD")
    say(f"  time  queued {record.delay_time} ms, made in {record.execution_time} ms, {seconds:.2f} s in all")
    say(f"  file  {out}, {frames} frames, {frames / FPS:.2f} s with sound, {len(answer.content)} bytes")


def check(out: Path) -> int:
    """How many frames it has. It must have `floor(seconds x 25)`, at 25 a second, and as much sound."""
    wanted = int(seconds_of(VOICE) * FPS)
    with av.open(str(out)) as film:
        video, sound = film.streams.video[0], film.streams.audio[0]
        found = video.average_rate, video.codec_context.name, sound.codec_context.name
        lasts = Fraction(video.duration or 0) * (video.time_base or 0)
    if found != (Fraction(FPS), "h264", "aac") or lasts != Fraction(wanted, FPS):
        raise SystemExit(f"{out} is {found}, {float(lasts)} s; 25 a second, h264, aac and {wanted / FPS} s")
    if (frames := frames_of(str(out))) != wanted:
        raise SystemExit(f"{out} has {frames} frames; {wanted} were expected")
    if abs(seconds_of(out) - wanted / FPS) > 0.05:
        raise SystemExit(f"{out} has {float(seconds_of(out)):.3f} s of sound; {wanted / FPS} were expected")
    return frames


def seconds_of(sound: Path) -> Fraction:
    with av.open(str(sound)) as opened:
        rate = opened.streams.audio[0].rate
        return Fraction(sum(frame.samples for frame in opened.decode(audio=0)), rate)


def say(text: str) -> None:
    print(text, flush=True)
