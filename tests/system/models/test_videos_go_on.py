"""kill -9 of the worker, the agent and control while a talking video is made: it goes on where it was. Its
reader sees each part once, and its frames are those of a video that was made without a break, 0 of 255."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import httpx2
import numpy as np
import psutil
import pytest
from PIL import Image

from stoker.client import Client
from stoker.models.talking_video import handler
from stoker.worker import Device
from stoker.worker.testing import LocalJob
from tests.media_files import tone, write_sound
from tests.system.stack import Stack, fetched, running

pytestmark = pytest.mark.slow
ENDPOINT, RATE = "talking-video", 16_000
SECONDS = 6.0
KILLS = ("worker", "agent", "control", "worker", "agent", "control")
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("goes-on"), hosted=(ENDPOINT,)) as made:
        yield made


class Reader:
    """A reader of the job's events, on a thread, who comes back with the last id that it has seen."""

    def __init__(self, stack: Stack, job: str) -> None:
        self._url = f"{stack.facts['http']}/v2/{ENDPOINT}/stream/{job}"
        self._key = stack.key
        self.ids: list[str] = []
        self.parts: list[bytes] = []
        self.kinds: set[str] = set()
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


def frames_of(video: bytes) -> list[Any]:
    with av.open(io.BytesIO(video)) as opened:
        return [frame.to_ndarray(format="rgb24") for frame in opened.decode(video=0)]


def unbroken(job: str, job_input: dict[str, Any], folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """The same video, made here in one go."""
    patch.setenv("STOKER_WEIGHTS_DIR", str(folder))
    patch.setenv("STOKER_PIPELINE", "talk-tiny")
    patch.setattr(handler, "seed_of", lambda _, real=handler.seed_of: real(job))
    model = handler.TalkingVideo()
    model.setup(Device())
    local = LocalJob(model.run, job_input, network=True, scratch=folder / "scratch").run()
    path: Path = local.output["video_url"].path
    return path


def test_a_video_goes_on_through_kills_of_everything(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, columns = np.mgrid[0:320, 0:320]
    pixels = np.stack([columns * 0.6 + 30, rows * 0.5 + 60, columns * 0 + 120], -1).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "face.png")
    write_sound(tmp_path / "voice.wav", tone(round(SECONDS * RATE), RATE), RATE)
    with Client(stack.facts["http"], stack.key) as stoker:
        files = {path.stem: stoker.upload(ENDPOINT, path) for path in tmp_path.iterdir()}
    job_input = {"prompt": "a person talks", "size": "480p", "image": files["face"], "audio": files["voice"]}
    job = stack.run(ENDPOINT, job_input)
    reader = Reader(stack, job)
    kills = 0
    for n, victim in enumerate(KILLS, 1):
        if not reader.has(2 * n):
            break
        kill(stack, victim)
        kills += 1
    record = reader.ends()
    assert record["status"] == "COMPLETED", record
    assert kills == len(KILLS), "it was over before all were killed"
    assert "reset" not in reader.kinds
    assert reader.ids == [f"1-{n}" for n in range(len(reader.ids))], "no gap, no repeat"
    assert record["output"]["cost"] == 0.25
    whole = unbroken(job, job_input, tmp_path, monkeypatch).read_bytes()
    wanted = frames_of(whole)
    made = fetched(record["output"]["video_url"]).raise_for_status().content
    for found in (frames_of(made), frames_of(b"".join(reader.parts))):
        assert len(found) == len(wanted) == round(SECONDS * 25)
        assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))
    print(f"\n{kills} kills, {len(reader.parts)} parts, {record.get('retries', 0)} retries")
