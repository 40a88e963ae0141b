"""The parts of a video that a job emits, and the saves from which a later attempt goes on.

    attempt 1   part 0, part 1, save {frame 50, parts 2} + the encoded video + the pipeline's state   ── lost
    attempt 2   the same file until frame 50, frames from 50 on, part 2, …

The first save, before any frame, holds back parts of the first chunk until the chunk is saved. A video that
has become too long for a save is saved without its bytes: then a later attempt makes it from the beginning,
and does not emit again what readers have.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from stoker.worker.frames import SAVE_MAX

if TYPE_CHECKING:
    from stoker.models.talking_video.video.video_file import VideoFile
    from stoker.worker import Job


class Parts:
    """The parts of one job. `state` is the pipeline's, where an earlier attempt saved."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._parts = 0
        self._emitted = 0
        self.state = b""

    def go_on(self, file: VideoFile) -> int:
        """Adds to the file what an earlier attempt made of it; returns the number of the next frame."""
        if self._job.saved is None:
            self._save({"frame": 0, "parts": 0})
            return 0
        text, _, rest = self._job.saved.partition(b"\n")
        head = json.loads(text)
        self._emitted = head["parts"]
        if not head["frame"]:
            return 0
        self._parts = self._emitted
        self.state = rest[head["video"] :]
        file.go_on(rest[: head["video"]])
        file.take()
        return int(head["frame"])

    def emit(self, part: bytes, frame: int) -> None:
        """Emits a part of the file, unless an earlier attempt has."""
        if not part:
            return
        self._parts += 1
        if self._parts > self._emitted:
            data = base64.b64encode(part).decode()
            self._job.emit({"video": {"format": "mp4", "frame": frame, "data": data}})

    def save(self, file: VideoFile, frame: int, state: bytes) -> None:
        """Saves at the end of a chunk, after its last part. A job that could only begin anew does not save
        once it is asked to yield: it runs on."""
        if self._parts < self._emitted:
            return
        video = file.so_far()
        if video is None or len(video) + len(state) > SAVE_MAX - 1000:
            if not self._job.asked_to_yield:
                self._save({"frame": 0, "parts": self._parts})
        else:
            self._save({"frame": frame, "parts": self._parts, "video": len(video)}, video + state)

    def _save(self, head: dict[str, Any], rest: bytes = b"") -> None:
        self._job.save(json.dumps(head).encode() + b"\n" + rest)
