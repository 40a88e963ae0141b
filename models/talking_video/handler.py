"""The handler of the hosted video model: one job, one talking video.

    set-up   choose the pipeline, verify its weights against the lock, load
    run      check the input ─> fetch image and audio ─> check the image's safety
             ─> chunks (progress, parts of the video, cancel) ─> the video file in the job's scratch folder

Environment: what `stoker.models.selection` reads; STOKER_SAFETY_CHECKER names the entry of weights.lock that
holds the safety checker (by default the one that Stoker makes); STOKER_VIDEO_LIMITS changes how large an
input may be.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stoker
from stoker.models import finite, interface, libraries, selection, weights
from stoker.models.checked_input import InvalidInput
from stoker.models.cold_start import ColdStart, stage
from stoker.models.interface import TalkingVideoPipeline, VideoFrames, VideoParameters, VideoStep
from stoker.models.memory_gauge import MemoryGauge
from stoker.models.speed_ups import profiles, warm_sizes
from stoker.models.talking_video.declaration import DECLARATION, METRICS, SCHEMA
from stoker.models.talking_video.infinitetalk import InfiniteTalk
from stoker.models.talking_video.limits import ENVIRONMENT, VideoLimits
from stoker.models.talking_video.parts import Parts
from stoker.models.talking_video.request import VideoRequest
from stoker.models.talking_video.sampling.chunks import FPS
from stoker.worker import Device, File, HandlerError, InputRefused, Job

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stoker.models.talking_video.audio.normalization import NormalizedAudio
    from stoker.models.talking_video.video.sizes import Bucket
    from stoker.models.talking_video.video.video_file import VideoFile


SIZES = ((640, 640),)
"""Width and height of the videos that are quick from the first job on; STOKER_WARM_SIZES names others."""


@dataclass(frozen=True, slots=True)
class VideoInputs:
    """The inputs of a video. `pixels` (H, W, 3): the image in the size that the network generates; `bucket`:
    the size of the video; `audio_file`: the caller's file."""

    bucket: Bucket
    pixels: NDArray[np.uint8]
    audio: NormalizedAudio
    audio_file: Path


class TalkingVideo:
    """The handler of talking videos. Its output is `{"video_url": <the file>, "pipeline": <its name>}`, and
    `"made_up_weights": true` if the pipeline has made-up weights; and what else the pipeline notes, as
    `"face": "assumed"` of talk-mini.

    Progress: `{"chunk": 2, "chunks": 4, "step": 3, "steps": 40}` after each step. Partial output, at the end
    of each chunk and each second within it: `{"video": {"format": "mp4", "frame": <the next frame>,
    "data": <base64>}}`. The parts are played one after the other; a part may end some frames before `frame`.
    Measures one `videos_480p` or `videos_720p`. Saves at the end of each chunk: a later attempt goes on with
    the next one, and its video is the same as one made without a break.
    """

    @functools.cached_property
    def _results(self) -> finite.Results:
        return finite.Results()

    @classmethod
    def input_schema(cls) -> Mapping[str, Any]:
        """Returns the schema of its jobs' input, which an endpoint of stoker.toml may narrow."""
        return SCHEMA

    def setup(self, device: Device) -> None:
        with ColdStart() as start:
            self._set_up(device)
        self.cold_start_s = start.stages_s

    def _set_up(self, device: Device) -> None:
        from stoker.models.talking_video import safety

        self.limits = VideoLimits.parse(os.environ.get(ENVIRONMENT, ""))
        with stage("verify"):
            selected = selection.select(DECLARATION, device)
        self.entry, self._weights = selected.pipeline, selected.weights
        self.serves = self.entry.description
        self.device = device.torch_device
        self.pipeline: TalkingVideoPipeline = interface.load(
            self.entry,
            selected.folder,
            self.device,
            profiles.chosen(self.entry),
            InfiniteTalk,
            reading=selected.reading,
        )
        if hasattr(self.pipeline, "warm"):
            with stage("warm up"):
                self.pipeline.warm(warm_sizes.chosen(SIZES), self.entry.defaults)
        self.serves += profiles.without(getattr(self.pipeline, "left_out", {}))
        self.memory = MemoryGauge(self.device)
        with stage("safety checker"):
            chosen = os.environ.get("STOKER_SAFETY_CHECKER") or safety.DEFAULT
            _, folder = weights.ready(chosen, weights.weights_folder())
            self.checker = safety.load(folder, self.device)

    def run(self, job: Job) -> dict[str, Any]:
        with self.memory.job(), self._results.of(job):
            return self._run(job)

    def _run(self, job: Job) -> dict[str, Any]:
        try:
            request = VideoRequest.parse(job.input)
        except InvalidInput as error:
            raise HandlerError(str(error)) from error
        if message := self.pipeline.refused.get(request.size):
            raise HandlerError(message)
        inputs, seed = self._inputs(job, request), seed_of(job.id)
        if request.enable_safety_checker:
            self._check_safety(inputs.pixels[None], "the image")
        parts = Parts(job)
        with self._video_file(job, request, inputs, seed) as file:
            notes = self._generate(job, request, inputs, seed, file, parts)
            path, last = file.finish()
        parts.emit(last, inputs.audio.frames)
        job.measure(METRICS[request.size], 1)
        return {"video_url": File(path, "video/mp4"), **self.entry.output_fields, **notes}

    def _inputs(self, job: Job, request: VideoRequest) -> VideoInputs:
        from stoker.models import input_image
        from stoker.models.talking_video.audio import normalization
        from stoker.models.talking_video.video import image

        try:
            fetched = job.fetch(request.image, max_bytes=self.limits.image_bytes)
            whole = input_image.opened(fetched.path, self.limits.image_least, self.limits.image_most)
            bucket, pixels = image.cut(whole, request.size, self.pipeline.shrink)
        except InputRefused as error:
            raise HandlerError(f"Invalid image URL: {error}", retryable=error.retryable) from error
        except input_image.InvalidImage as error:
            raise HandlerError(f"Invalid image: {error}") from error
        try:
            fetched = job.fetch(request.audio, max_bytes=self.limits.audio_bytes)
            audio = normalization.normalized(fetched.path, job.scratch, self.limits)
        except InputRefused as error:
            raise HandlerError(f"Invalid audio URL: {error}", retryable=error.retryable) from error
        except normalization.InvalidAudio as error:
            raise HandlerError(f"Invalid audio: {error}") from error
        return VideoInputs(bucket, pixels, audio, fetched.path)

    @contextlib.contextmanager
    def _video_file(
        self, job: Job, request: VideoRequest, inputs: VideoInputs, seed: int
    ) -> Iterator[VideoFile]:
        from stoker.models.talking_video.video.video_file import VideoFile

        size, frames = inputs.bucket, inputs.audio.frames
        about = self._about(request, seed)
        file = VideoFile(job.scratch, inputs.audio_file, size.width, size.height, frames, self.device, about)
        try:
            yield file
        except BaseException:
            file.abandon()
            raise

    def _about(self, request: VideoRequest, seed: int) -> dict[str, Any]:
        """Returns the comment of the video file: all that is needed to make the video again, except for the
        caller's inputs."""
        import av

        return {
            "seed": seed,
            "size": request.size,
            **self.entry.output_fields,
            "sampling": self.entry.options.get("sampling", "published"),
            **interface.profile_of(self.pipeline),
            "weights": f"sha256:{self._weights.digest}",
            "device": self.device,
            "versions": {"stoker": stoker.__version__, "av": av.__version__, **libraries.versions()},
        }

    def _generate(
        self, job: Job, request: VideoRequest, inputs: VideoInputs, seed: int, file: VideoFile, parts: Parts
    ) -> dict[str, Any]:
        """Adds all frames to the file, from those on that an earlier attempt made; returns their notes."""
        from stoker.models.talking_video.sampling.sampling import Stopped

        begun = parts.go_on(file)

        parameters = VideoParameters(
            request.prompt,
            request.size,
            seed,
            inputs.pixels,
            inputs.audio.samples,
            inputs.audio.frames,
            assume_face=request.face == "assume",
            begun=begun,
            state=parts.state,
        )

        def on_step(step: VideoStep) -> None:
            job.progress({"chunk": step.chunk, "chunks": step.chunks, "step": step.number, "steps": step.of})

        emitted, notes = begun, dict[str, Any]()
        try:
            for frames in self.pipeline.generate(parameters, on_step, lambda: not job.cancelled):
                job.raise_if_cancelled()
                if request.enable_safety_checker:
                    self._check_frames(frames)
                file.add(_pixels(frames, inputs.bucket))
                notes |= frames.notes
                added = frames.first + len(frames.pixels)
                if frames.ends_chunk:
                    file.end_chunk()
                if added - emitted >= FPS or frames.ends_chunk:
                    parts.emit(file.take(), added)
                    emitted = added
                if frames.state is not None and added < inputs.audio.frames:
                    parts.save(file, added, frames.state)
        except Stopped:
            job.raise_if_cancelled()
            raise
        job.raise_if_cancelled()
        return notes

    def _check_frames(self, frames: VideoFrames) -> None:
        """Checks one frame of each second, before any of them is sent."""
        for number, pixels in enumerate(frames.pixels, start=frames.first):
            if number % FPS == 0:
                self._check_safety(_bytes(pixels.unsqueeze(0)), f"frame {number} of the video")

    def _check_safety(self, pixels: NDArray[np.uint8], what: str) -> None:
        if finding := self.checker.check(pixels):
            raise HandlerError(f"the safety checker flagged {what}: {finding.label} ({finding.score:.2f})")


def seed_of(job: str) -> int:
    """Returns the same seed for each attempt at a job, so that a retry makes the same video."""
    return int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big")


def _pixels(frames: VideoFrames, bucket: Bucket) -> NDArray[np.uint8]:
    """Returns the frames as bytes, in the size of the video."""
    import torch

    pixels = frames.pixels
    if pixels.shape[-2:] != (bucket.height, bucket.width):
        size = (bucket.height, bucket.width)
        pixels = torch.nn.functional.interpolate(pixels, size=size, mode="bicubic", align_corners=False)
    return _bytes(pixels)


def _bytes(pixels: Any) -> NDArray[np.uint8]:
    """Converts (n, 3, H, W) from -1 to 1 to (n, H, W, 3) of bytes."""
    scaled = pixels.clamp(-1.0, 1.0).add_(1.0).mul_(127.5).round_()
    found: NDArray[np.uint8] = scaled.byte().permute(0, 2, 3, 1).numpy()
    return found
