"""The handler of the hosted image model: one job, one picture.

    set-up   choose the pipeline, verify its weights against the lock, load, fit the previews
    run      check the input ─> steps (progress, previews, cancel) ─> picture in the job's scratch folder

Environment: STOKER_PIPELINE names a pipeline of `stoker.models.registry` (else the best that is there). It is
obeyed on any device; one that is made for a GPU runs on a CPU too, slowly, and the log says so.
STOKER_WEIGHTS_DIR is the folder that holds one folder of weights a model (else the user's cache). Weights
that Stoker makes itself (`flux-tiny`) are made there when they are missing; others must have been fetched.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

import stoker
from stoker.models import registry, weights
from stoker.models.text_to_image import flux, metadata, previews
from stoker.models.text_to_image.declaration import DECLARATION
from stoker.models.text_to_image.request import ImageRequest, InvalidInput
from stoker.worker import Device, File, HandlerError, Job

__all__ = ["TextToImage"]

log = logging.getLogger(__name__)

SEEDS = 2**32
"""-1 draws a seed below this: as many as torch's CPU generator tells apart, and exact in any JSON parser."""


class TextToImage:
    """Output: `{"image_url": <the file>, "seed": <the seed it was made with>}`.

    Progress: `{"step": 3, "steps": 28}` after each step. Partial output: `{"preview": {"step", "format",
    "width", "height", "data"}}`, a small JPEG in base64; for the first and the last step always, and for
    those between at most every 0.2 s. Measures `output_pixels`.
    """

    def setup(self, device: Device) -> None:
        folder = weights.weights_folder()
        self.pipeline = registry.choose_pipeline(
            DECLARATION, os.environ.get("STOKER_PIPELINE"), device.kind, lambda name: (folder / name).is_dir()
        )
        self._entry, place = weights.ready(self.pipeline.weights, folder)
        if self.pipeline.wants_gpu and device.kind == "cpu":
            log.warning(
                "the pipeline %s is made for a GPU, and this worker was given none; asked for by name, it"
                " runs on the CPU all the same: minutes a picture, and twice its weights' size in memory",
                self.pipeline.name,
            )
        self.device = device.torch_device
        self.pipe = flux.load(place, self.device)
        self._previewer = previews.fit(self.pipe, self.pipeline.text_tokens)

    def run(self, job: Job) -> dict[str, Any]:
        try:
            request = ImageRequest.parse(job.input)
        except InvalidInput as error:
            raise HandlerError(str(error)) from error
        seed = secrets.randbelow(SEEDS) if request.seed == -1 else request.seed
        try:
            image = flux.generate(
                self.pipe,
                request,
                seed=seed,
                text_tokens=self.pipeline.text_tokens,
                on_step=self._reporter(job, request),
            )
        except flux.Interrupted:
            job.raise_if_cancelled()
            raise
        path = job.scratch / f"image.{request.image_format}"
        path.write_bytes(metadata.encode(image, request.image_format, self._made(request, seed)))
        job.measure("output_pixels", image.width * image.height)
        return {"image_url": File(path, metadata.MEDIA_TYPES[request.image_format]), "seed": seed}

    def _reporter(self, job: Job, request: ImageRequest) -> Callable[[flux.Step], bool]:
        throttle = previews.Throttle()

        def on_step(step: flux.Step) -> bool:
            if job.cancelled:
                return False
            job.progress({"step": step.number, "steps": step.of})
            if throttle.due(step, time.monotonic()):
                job.emit(self._previewer.chunk(self.pipe, step, request.height, request.width))
            return True

        return on_step

    def _made(self, request: ImageRequest, seed: int) -> dict[str, Any]:
        """What the file says about itself; see `metadata`."""
        return {
            "seed": seed,
            "steps": request.num_inference_steps,
            "guidance": request.guidance,
            "width": request.width,
            "height": request.height,
            "pipeline": self.pipeline.name,
            "profile": self.pipeline.profile,
            "weights": f"sha256:{self._entry.digest}",
            "device": self.device,
            "versions": {"stoker": stoker.__version__, **flux.versions()},
        }
