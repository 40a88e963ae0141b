"""The handler of the hosted video model: one job, one talking video.

    set-up   choose the pipeline, verify its weights against the lock, load
    run      check the input ─> fetch picture and voice ─> look at the picture
             ─> chunks (progress, pieces of the film, cancel) ─> the film in the job's scratch folder

Environment: STOKER_PIPELINE and STOKER_WEIGHTS_DIR as for the image model; STOKER_SAFETY_CHECKER names the
entry of weights.lock that holds the safety checker (else the one that is made here); STOKER_VIDEO_LIMITS
changes how large an input may be.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stoker
from stoker.models import registry, weights
from stoker.models.talking_video.chunks import FPS, count
from stoker.models.talking_video.declaration import DECLARATION, METRICS
from stoker.models.talking_video.limits import ENVIRONMENT, Limits
from stoker.models.talking_video.profiles import PROFILES
from stoker.models.talking_video.request import InvalidInput, VideoRequest
from stoker.worker import Device, File, HandlerError, InputRefused, Job

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stoker.models.talking_video.film import Film
    from stoker.models.talking_video.pipeline import Frames, Scene, Step
    from stoker.models.talking_video.sizes import Bucket
    from stoker.models.talking_video.voice import Voice

__all__ = ["TalkingVideo"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """`pixels` (H, W, 3): the picture in the size that the network draws; `bucket`, that of the video."""

    bucket: Bucket
    pixels: NDArray[np.uint8]
    voice: Voice
    sound: Path


class TalkingVideo:
    """Output: `{"video_url": <the file>}`.

    Progress: `{"chunk": 2, "chunks": 4, "step": 3, "steps": 40}` after each step. Partial output, at the end
    of each chunk and each second within it: `{"video": {"format": "mp4", "frame": <the next to be drawn>,
    "data": <base64>}}`, to be played one after the other; a piece may end some frames before that. Measures
    one `videos_480p` or `videos_720p`.
    """

    def setup(self, device: Device) -> None:
        from stoker.models.talking_video import loading, safety

        self.limits = Limits.parse(os.environ.get(ENVIRONMENT, ""))
        folder = weights.weights_folder()
        self.pipeline = registry.choose_pipeline(
            DECLARATION, os.environ.get("STOKER_PIPELINE"), device.kind, lambda name: (folder / name).is_dir()
        )
        self.profile = PROFILES[self.pipeline.profile]
        self.device = device.torch_device
        self._entry, place = weights.ready(self.pipeline.weights, folder)
        self.talker = loading.load(place, self.device, self.profile)
        _, place = weights.ready(os.environ.get("STOKER_SAFETY_CHECKER") or safety.DEFAULT, folder)
        self.checker = safety.load(place, self.device)

    def run(self, job: Job) -> dict[str, Any]:
        try:
            request = VideoRequest.parse(job.input)
        except InvalidInput as error:
            raise HandlerError(str(error)) from error
        if sentence := self.talker.refused.get(request.size):
            raise HandlerError(sentence)
        inputs, seed = self._inputs(job, request), seed_of(job.id)
        if request.enable_safety_checker:
            self._look(inputs.pixels[None], "the image")
        scene = self._scene(request, inputs)
        with self._film(job, request, inputs, seed) as film:
            self._shoot(job, request, inputs, scene, seed, film)
            path, last = film.finish()
        self._emit(job, last, inputs.voice.frames)
        job.measure(METRICS[request.size], 1)
        return {"video_url": File(path, "video/mp4")}

    def _inputs(self, job: Job, request: VideoRequest) -> Inputs:
        from stoker.models.talking_video import picture, voice

        try:
            seen = job.fetch(request.image, max_bytes=self.limits.image_bytes)
            whole = picture.opened(seen.path, self.limits)
            bucket, pixels = picture.cut(whole, request.size, self.profile.shrink)
        except InputRefused as error:
            raise HandlerError(f"Invalid image URL: {error}", retryable=error.retryable) from error
        except picture.InvalidPicture as error:
            raise HandlerError(f"Invalid image: {error}") from error
        try:
            sound = job.fetch(request.audio, max_bytes=self.limits.audio_bytes)
            heard = voice.heard(sound.path, job.scratch, self.limits)
        except InputRefused as error:
            raise HandlerError(f"Invalid audio URL: {error}", retryable=error.retryable) from error
        except voice.InvalidAudio as error:
            raise HandlerError(f"Invalid audio: {error}") from error
        return Inputs(bucket, pixels, heard, sound.path)

    def _scene(self, request: VideoRequest, inputs: Inputs) -> Scene:
        import torch

        from stoker.models.talking_video.pipeline import see

        frame = torch.from_numpy(inputs.pixels.copy()).permute(2, 0, 1).float() / 127.5 - 1.0
        return see(self.talker, request.prompt, frame)

    @contextlib.contextmanager
    def _film(self, job: Job, request: VideoRequest, inputs: Inputs, seed: int) -> Iterator[Film]:
        from stoker.models.talking_video.film import Film

        size, frames = inputs.bucket, inputs.voice.frames
        made = self._made(request, seed)
        film = Film(job.scratch, inputs.sound, size.width, size.height, frames, self.device, made)
        try:
            yield film
        except BaseException:
            film.abandon()
            raise

    def _made(self, request: VideoRequest, seed: int) -> dict[str, Any]:
        """What the film says about itself: enough to make it again, except for what the caller sent."""
        import av

        from stoker.models.text_to_image import flux

        return {
            "seed": seed,
            "size": request.size,
            "pipeline": self.pipeline.name,
            "profile": self.pipeline.profile,
            "weights": f"sha256:{self._entry.digest}",
            "device": self.device,
            "versions": {"stoker": stoker.__version__, "av": av.__version__, **flux.versions()},
        }

    def _shoot(
        self, job: Job, request: VideoRequest, inputs: Inputs, scene: Scene, seed: int, film: Film
    ) -> None:
        from stoker.models.talking_video.pipeline import talk
        from stoker.models.talking_video.sampling import Stopped
        from stoker.models.talking_video.speech import EncodedSpeech

        speech = EncodedSpeech(self.talker.speech_encoder, inputs.voice.samples, inputs.voice.frames)
        chunks = count(speech.frames, self.profile.shape)

        def on_step(step: Step) -> bool:
            told = {"chunk": step.chunk.index + 1, "chunks": chunks, "step": step.number, "steps": step.of}
            job.progress(told)
            return not job.cancelled

        shown = 0
        try:
            given = (self.talker, scene, speech, self.profile, request.size, seed)
            for frames in talk(*given, on_step, lambda: not job.cancelled):
                job.raise_if_cancelled()
                if request.enable_safety_checker:
                    self._look_at(frames)
                film.add(_pixels(frames, inputs.bucket))
                drawn = frames.first + len(frames.pixels)
                if drawn - shown >= FPS or drawn == frames.chunk.given.stop:
                    self._emit(job, film.take(), drawn)
                    shown = drawn
        except Stopped:
            job.raise_if_cancelled()
            raise

    def _look_at(self, frames: Frames) -> None:
        """One frame of each second, before any of it is given out."""
        for number, pixels in enumerate(frames.pixels, start=frames.first):
            if number % FPS == 0:
                self._look(_bytes(pixels.unsqueeze(0)), f"frame {number} of the video")

    def _look(self, pixels: NDArray[np.uint8], what: str) -> None:
        if finding := self.checker.look(pixels):
            raise HandlerError(f"the safety checker flagged {what}: {finding.label} ({finding.score:.2f})")

    def _emit(self, job: Job, piece: bytes, frame: int) -> None:
        if piece:
            data = base64.b64encode(piece).decode()
            job.emit({"video": {"format": "mp4", "frame": frame, "data": data}})


def seed_of(job: str) -> int:
    """A job that is tried again makes the same video; another job, another."""
    return int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big")


def _pixels(frames: Frames, bucket: Bucket) -> NDArray[np.uint8]:
    """At the size of the video."""
    import torch

    pixels = frames.pixels
    if pixels.shape[-2:] != (bucket.height, bucket.width):
        size = (bucket.height, bucket.width)
        pixels = torch.nn.functional.interpolate(pixels, size=size, mode="bicubic", align_corners=False)
    return _bytes(pixels)


def _bytes(pixels: Any) -> NDArray[np.uint8]:
    """(n, 3, H, W) from -1 to 1 to (n, H, W, 3) of bytes."""
    scaled = (pixels.clamp(-1.0, 1.0) + 1.0) * 127.5
    found: NDArray[np.uint8] = scaled.round().byte().permute(0, 2, 3, 1).numpy()
    return found
