"""The handler of the hosted image model: one job, one image.

    set-up   choose the pipeline, verify its weights against the lock, load, fit the previews
    run      check the input ─> steps (progress, previews, cancel) ─> image in the job's scratch folder

The environment chooses the pipeline and the folder of its weights: see `stoker.models.selection`.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, ClassVar

import stoker
from stoker.models import interface, libraries, selection
from stoker.models.checked_input import InvalidInput
from stoker.models.interface import ImageParameters, ImagePipeline, OnStep, PipelineEntry, Step
from stoker.models.text_to_image import metadata, previews
from stoker.models.text_to_image.declaration import DECLARATION, schema_for
from stoker.models.text_to_image.request import ImageRequest
from stoker.worker import Device, File, HandlerError, Job

SEEDS = 2**32
"""-1 draws a seed below this: torch's CPU generator distinguishes no more, and any JSON parser reads it
exactly."""


class TextToImage:
    """A handler for one pipeline is a subclass with a `PIPELINE`; without one the environment chooses it.

    Output: `{"image_url": <the file>, "seed": <the seed it was made with>, "pipeline": <its name>}`, and
    `"made_up_weights": true` if the pipeline has made-up weights.

    Progress: `{"step": 3, "steps": 28}` after each step. Partial output: `{"preview": {"step", "format",
    "width", "height", "data"}}`, a small JPEG in base64, for the first and the last step and at most every
    0.2 s in between. Measures `output_pixels`.
    """

    PIPELINE: ClassVar[PipelineEntry | None] = None

    def setup(self, device: Device) -> None:
        only = self.PIPELINE
        selected = selection.select(DECLARATION, device) if only is None else selection.ready(only)
        self.entry, self._weights = selected.pipeline, selected.weights
        self.serves = self.entry.description
        self.device = device.torch_device
        self.pipeline: ImagePipeline = interface.load(self.entry, selected.folder, self.device)
        self._previewer = previews.fit(self.pipeline, self.entry)

    def run(self, job: Job) -> dict[str, Any]:
        try:
            request = ImageRequest.parse(job.input, schema_for(self.entry))
        except InvalidInput as error:
            raise HandlerError(str(error)) from error
        seed = secrets.randbelow(SEEDS) if request.seed == -1 else request.seed
        parameters = request.parameters(self.entry.defaults, seed)
        image = self.pipeline.generate(parameters, self._reporter(job))
        path = job.scratch / f"image.{request.image_format}"
        path.write_bytes(metadata.encode(image, request.image_format, self._made(parameters)))
        job.measure("output_pixels", image.width * image.height)
        file = File(path, metadata.MEDIA_TYPES[request.image_format])
        return {"image_url": file, "seed": seed, **self.entry.output_fields}

    def _reporter(self, job: Job) -> OnStep:
        throttle = previews.Throttle()

        def on_step(step: Step) -> None:
            job.raise_if_cancelled()
            job.progress({"step": step.number, "steps": step.of})
            if throttle.due(step, time.monotonic()):
                job.emit(self._previewer.chunk(step))

        return on_step

    def _made(self, parameters: ImageParameters) -> dict[str, Any]:
        """How the image was made, for the file; see `metadata`."""
        factor = parameters.factor
        return {
            "seed": parameters.seed,
            "steps": parameters.steps,
            "guidance": parameters.guidance,
            **({} if factor is None else {"negative_prompt_factor": factor}),
            "width": parameters.width,
            "height": parameters.height,
            **self.entry.output_fields,
            "profile": self.entry.profile,
            "weights": f"sha256:{self._weights.digest}",
            "device": self.device,
            "versions": {"stoker": stoker.__version__, **libraries.versions()},
        }
