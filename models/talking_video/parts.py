"""The parts of a video that a job emits, and the saves from which a later attempt goes on.

    attempt 1   part 0, part 1, save {frame 50} + the last packets + the pipeline's state       ── lost
    attempt 2   the same file until frame 50 from the kept parts, frames from 50 on, part 2, …

The first save, before any frame, holds back parts of the first chunk until the chunk is saved. Where the kept
parts cannot be had, the video is made from its beginning, and what readers have is not emitted again.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.worker import KeptUnavailable

if TYPE_CHECKING:
    from stoker.models.talking_video.video.read_back import EncodedFrame
    from stoker.models.talking_video.video.video_file import VideoFile
    from stoker.worker import Job


class Parts:
    """The parts of one job. `state` is the pipeline's, where an earlier attempt saved."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._parts = 0
        self._emitted = len(job.kept)
        self.state = b""

    def go_on(self, file: VideoFile) -> int:
        """Adds to the file what an earlier attempt made of it; returns the number of the next frame."""
        from stoker.models.talking_video.video.read_back import CannotGoOn, read_back

        if self._job.saved is None:
            self._save({"frame": 0})
            return 0
        text, _, rest = self._job.saved.partition(b"\n")
        head = json.loads(text)
        if "end" not in head:  # no chunk was made, or another version of this handler saved
            return 0
        end, state = _end_of(head["end"], rest)
        try:
            file.go_on(read_back(self._kept_parts(), end, head["frame"]))
        except (KeptUnavailable, CannotGoOn) as why:
            print(f"the video is made from its beginning: {why}")
            return 0
        self._parts, self.state = self._emitted, state
        return int(head["frame"])

    def _kept_parts(self) -> Path:
        path = self._job.scratch / "kept.mp4"
        with path.open("wb") as file:
            for part in self._job.kept:
                file.write(base64.b64decode(part["video"]["data"]))
        return path

    def emit(self, part: bytes, frame: int) -> None:
        """Emits a part of the file, unless an earlier attempt has."""
        if not part:
            return
        self._parts += 1
        if self._parts > self._emitted:
            data = base64.b64encode(part).decode()
            self._job.emit({"video": {"format": "mp4", "frame": frame, "data": data}})

    def save(self, file: VideoFile, frame: int, state: bytes) -> None:
        """Saves at the end of a chunk, after its last part."""
        if self._parts >= self._emitted:
            end = file.end()
            head = {"frame": frame, "end": [[len(one.data), one.key] for one in end]}
            self._save(head, b"".join(one.data for one in end) + state)

    def _save(self, head: dict[str, Any], rest: bytes = b"") -> None:
        self._job.save(json.dumps(head).encode() + b"\n" + rest)


def _end_of(sizes: list[tuple[int, bool]], rest: bytes) -> tuple[list[EncodedFrame], bytes]:
    """Returns the packets of these sizes that the bytes begin with, and what follows them."""
    from stoker.models.talking_video.video.read_back import EncodedFrame

    end, at = [], 0
    for size, key in sizes:
        end.append(EncodedFrame(rest[at : at + size], bool(key)))
        at += size
    return end, rest[at:]
