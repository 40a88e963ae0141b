"""The handler of the hosted image model: one job, one image.

    set-up   choose the pipeline, verify its weights against the lock, load, fit the previews
    run      check the input ─> steps (progress, previews, cancel) ─> image in the job's scratch folder

The environment chooses the pipeline and the folder of its weights: see `stoker.models.selection`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

import stoker
from stoker.models import libraries, selection
from stoker.models.text_to_image import flux, metadata, previews
from stoker.models.text_to_image.declaration import DECLARATION
from stoker.models.text_to_image.recipes import RECIPES, Drawing
from stoker.models.text_to_image.request import ImageRequest, InvalidInput
from stoker.worker import Device, File, HandlerError, Job

__all__ = ["TextToImage"]

SEEDS = 2**32
"""-1 draws a seed below this: torch's CPU generator distinguishes no more, and any JSON parser reads it
exactly."""


class TextToImage:
    """Output: `{"image_url": <the file>, "seed": <the seed it was made with>, "pipeline": <its name>}`, and
    `"made_up_weights": true` if the pipeline has made-up weights.

    Progress: `{"step": 3, "steps": 28}` after each step. Partial output: `{"preview": {"step", "format",
    "width", "height", "data"}}`, a small JPEG in base64, for the first and the last step and at most every
    0.2 s in between. Measures `output_pixels`.
    """

    def setup(self, device: Device) -> None:
        selected = selection.select(DECLARATION, device)
        self.pipeline, self._entry = selected.pipeline, selected.weights
        self.serves = self.pipeline.description
        self.device = device.torch_device
        self.pipe = flux.load(selected.folder, self.device)
        self._previewer = previews.fit(self.pipe, self.pipeline.text_tokens)

    def run(self, job: Job) -> dict[str, Any]:
        try:
            request = ImageRequest.parse(job.input)
        except InvalidInput as error:
            raise HandlerError(str(error)) from error
        drawing = RECIPES[self.pipeline.name].drawing(request)
        seed = secrets.randbelow(SEEDS) if request.seed == -1 else request.seed
        try:
            image = flux.generate(
                self.pipe,
                request,
                drawing,
                seed=seed,
                text_tokens=self.pipeline.text_tokens,
                on_step=self._reporter(job, request),
            )
        except flux.Interrupted:
            job.raise_if_cancelled()
            raise
        path = job.scratch / f"image.{request.image_format}"
        path.write_bytes(metadata.encode(image, request.image_format, self._made(request, drawing, seed)))
        job.measure("output_pixels", image.width * image.height)
        file = File(path, metadata.MEDIA_TYPES[request.image_format])
        return {"image_url": file, "seed": seed, **self.pipeline.output_fields}

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

    def _made(self, request: ImageRequest, drawing: Drawing, seed: int) -> dict[str, Any]:
        """How the image was made, for the file; see `metadata`."""
        return {
            "seed": seed,
            "steps": drawing.steps,
            "guidance": drawing.guidance,
            **({} if drawing.factor is None else {"negative_prompt_factor": drawing.factor}),
            "width": request.width,
            "height": request.height,
            **self.pipeline.output_fields,
            "profile": self.pipeline.profile,
            "weights": f"sha256:{self._entry.digest}",
            "device": self.device,
            "versions": {"stoker": stoker.__version__, **libraries.versions()},
        }
