"""kill -9 of the worker, the agent and control while a talking video is made: it goes on where it was. Its
reader sees each part once, its frames are those of a video that was made without a break, 0 of 255, and a
kill costs little of the work."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import httpx2
import numpy as np
import psutil
import pytest
import soundfile
from PIL import Image

from stoker.client import Client
from stoker.models.talking_video import handler
from stoker.worker import Device
from stoker.worker.testing import LocalJob
from tests.system.stack import Stack, fetched, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ENDPOINT = "talking-video"
VICTIMS = ("worker", "agent", "control")
VOICE = Path(__file__).parents[3] / "deploy" / "voice.flac"
PATIENCE_S = 240.0


@dataclass(frozen=True)
class Story:
    """A video of so many seconds, and one kill after each so many new parts. `more`: of the job's input."""

    pipeline: str
    seconds: int
    kills: int
    parts: int
    more: dict[str, str] = field(default_factory=dict)


STORIES = (
    Story("talk-tiny", 6, 6, 2),
    Story("talk-mini", 60, 20, 2, {"face": "assume"}),
)
LOST = 1
"""A kill sets the work back by so many chunks at most: the one that is being made is begun again in any case,
and the save of the one before it may be on its way."""


class Reader:
    """A reader of the job's events, on a thread, who comes back with the last id that it has seen."""

    def __init__(self, stack: Stack, job: str) -> None:
        self._url = f"{stack.facts['http']}/v2/{ENDPOINT}/stream/{job}"
        self._key = stack.key
        self.ids: list[str] = []
        self.parts: list[bytes] = []
        self.kinds: set[str] = set()
        self.chunks: list[int] = []
        """The chunk that each progress report names, from 1."""
        self.end: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def has(self, parts: int) -> bool:
        """Waits for so many parts; returns whether the job still runs."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.parts) < parts and not self.end:
            assert time.monotonic() < deadline, f"{len(self.parts)} parts, {parts} awaited"
            threading.Event().wait(0.02)
        return not self.end

    def ends(self) -> dict[str, Any]:
        self._thread.join(PATIENCE_S)
        assert self.end, f"no end after {len(self.parts)} parts"
        return self.end

    def _read(self) -> None:
        while not self.end:
            headers = {"Authorization": f"Bearer {self._key}", "Accept": "text/event-stream"}
            if self.ids:
                headers["Last-Event-ID"] = self.ids[-1]
            try:
                with httpx2.stream("GET", self._url, headers=headers, trust_env=False, timeout=60) as answer:
                    if answer.status_code == 200:
                        self._take(answer.iter_lines())
            except httpx2.TransportError:
                pass
            threading.Event().wait(0.2)

    def _take(self, lines: Iterator[str]) -> None:
        kind = number = ""
        for line in lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind, number = value, ""
            elif name == "id":
                number = value
            elif name == "data":
                self.kinds.add(kind)
                if kind == "chunk":
                    self.parts.append(base64.b64decode(json.loads(value)["output"]["video"]["data"]))
                    self.ids.append(number)
                elif kind == "progress":
                    self.chunks.append(json.loads(value)["output"]["chunk"])
                elif kind == "end":
                    self.end = json.loads(value)


def kill(stack: Stack, victim: str) -> None:
    if victim == "worker":
        for child in psutil.Process(stack.agent.pid).children(recursive=True):
            if "stoker.worker" in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)
        return
    stack.kill(victim)
    if victim == "agent":
        stack.start_agent()
    else:
        stack.start_control()


def frames_of(video: bytes) -> Iterator[Any]:
    with av.open(io.BytesIO(video)) as opened:
        yield from (frame.to_ndarray(format="rgb24") for frame in opened.decode(video=0))


def spoken_for(seconds: int, path: Path) -> None:
    """Writes the demo's voice, again and again."""
    samples, rate = soundfile.read(VOICE, dtype="float32")
    soundfile.write(path, np.resize(samples, seconds * rate), rate)


def unbroken(
    pipeline: str, job: str, job_input: dict[str, Any], folder: Path, patch: pytest.MonkeyPatch
) -> bytes:
    """Returns the same video, made here in one go."""
    patch.setenv("STOKER_WEIGHTS_DIR", str(folder))
    patch.setenv("STOKER_PIPELINE", pipeline)
    patch.setattr(handler, "seed_of", lambda _, real=handler.seed_of: real(job))
    model = handler.TalkingVideo()
    model.setup(Device())
    local = LocalJob(model.run, job_input, network=True, scratch=folder / "scratch").run()
    path: Path = local.output["video_url"].path
    return path.read_bytes()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.pipeline)
def test_a_video_goes_on_through_kills_of_everything(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought = tmp_path / "brought"
    brought.mkdir()
    rows, columns = np.mgrid[0:320, 0:320]
    pixels = np.stack([columns * 0.6 + 30, rows * 0.5 + 60, columns * 0 + 120], -1).astype(np.uint8)
    Image.fromarray(pixels).save(brought / "face.png")
    spoken_for(story.seconds, brought / "voice.wav")
    (tmp_path / "stack").mkdir()
    with running(tmp_path / "stack", hosted=(ENDPOINT,), pipelines=story.pipeline) as stack:
        with Client(stack.facts["http"], stack.key) as stoker:
            files = {path.stem: stoker.upload(ENDPOINT, path) for path in brought.iterdir()}
        job_input = {"prompt": "a person talks", "size": "480p", **story.more}
        job_input |= {"image": files["face"], "audio": files["voice"]}
        job = stack.run(ENDPOINT, job_input)
        reader = Reader(stack, job)
        for n, victim in enumerate(itertools.islice(itertools.cycle(VICTIMS), story.kills), 1):
            assert reader.has(story.parts * n), f"it was over before kill {n}"
            kill(stack, victim)
        record = reader.ends()
        assert record["status"] == "COMPLETED", record
        made = fetched(record["output"]["video_url"]).raise_for_status().content
        wanted = unbroken(story.pipeline, job, job_input, tmp_path, monkeypatch)
    frames = moved = 0
    before = None
    for one, *others in zip(*map(frames_of, (wanted, made, b"".join(reader.parts))), strict=True):
        assert all(np.array_equal(one, other) for other in others), f"frame {frames}"
        frames += 1
        moved += before is not None and not np.array_equal(one, before)
        before = one
    assert frames == story.seconds * 25
    assert moved > frames / 4, "a still picture would be equal without any work"
    check(reader, record, story)


def check(reader: Reader, record: dict[str, Any], story: Story) -> None:
    assert "reset" not in reader.kinds
    assert reader.ids == [f"1-{n}" for n in range(len(reader.ids))], "no gap, no repeat"
    assert record["output"]["cost"] == 0.25
    lost = [before - after for before, after in itertools.pairwise(reader.chunks) if after < before]
    assert max(lost, default=0) <= LOST, f"a kill cost {max(lost)} chunks"
    print(f"\n{story.pipeline}: {story.kills} kills, {len(reader.parts)} parts, {max(reader.chunks)} chunks,")
    print(f"{record.get('retries', 0)} retries, {len(lost)} chunks that readers saw begun again")
