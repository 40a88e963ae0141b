"""The handler of the hosted image model: one job, one image, or as many as it requests.

    set-up   choose the pipeline, verify its weights against the lock, load, fit the previews or read them
    run      check the input ─> fetch the images that it names
             ─> steps (progress, previews, cancel) ─> image in the job's scratch folder

The environment chooses the pipeline and the folder of its weights: see `stoker.models.selection`.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import stoker
from stoker.models import finite, interface, libraries, registry, selection
from stoker.models.checked_input import InvalidInput
from stoker.models.cold_start import ColdStart, stage
from stoker.models.interface import ImageParameters, ImagePipeline, OnStep, PipelineEntry, Step
from stoker.models.memory_gauge import MemoryGauge
from stoker.models.speed_ups import profiles, warm_sizes
from stoker.models.text_to_image import metadata, previews, saves, start_image
from stoker.models.text_to_image.declaration import DECLARATION, schema_for, schema_of_any
from stoker.models.text_to_image.notes import noted
from stoker.models.text_to_image.request import ImageRequest
from stoker.worker import Device, File, HandlerError, Job

if TYPE_CHECKING:
    from stoker.models.text_to_image.batching.batches import Batches

log = logging.getLogger(__name__)

SEEDS_MOST = 2**63
"""The seed after the last is 0."""

SEEDS = 2**32
"""-1 draws a seed below this: torch's CPU generator distinguishes no more, and any JSON parser reads it
exactly."""


SIZES = ((1024, 1024),)
"""Width and height of the images that are quick from the first job on; STOKER_WARM_SIZES names others."""


class TextToImage:
    """A handler for one pipeline is a subclass with a `PIPELINE`; without one the environment chooses it.

    Output: `{"image_url": <the file>, "seed": <the seed it was made with>, "pipeline": <its name>}`, and
    `"made_up_weights": true` if the pipeline has made-up weights. Of several images it is the first, and
    `"images"` lists all of them, each `{"image_url", "seed"}`. `"no_effect"` lists inputs that the pipeline
    takes no notice of, as `["guidance"]`, and a pipeline may have fields of its own; `"notes"` says all of
    that in sentences.

    Progress: `{"step": 3, "steps": 28}` after each step. Partial output: `{"preview": {"step", "steps",
    "format", "width", "height", "data"}}`, a small JPEG in base64, for the first and the last step and at
    most every 0.2 s in between. Both have `"image": 2` for the second of several images. Measures
    `output_pixels`, those of all images.
    """

    PIPELINE: ClassVar[PipelineEntry | None] = None

    _batches: Batches | None = None
    """Only where the endpoint allows several jobs at once."""

    @functools.cached_property
    def _results(self) -> finite.Results:
        return finite.Results()

    @classmethod
    def input_schema(cls) -> Mapping[str, Any]:
        """Returns the schema of its jobs' input, which an endpoint of stoker.toml may narrow. A subclass
        whose `run` takes other inputs replaces it."""
        requested = registry.requested_for(DECLARATION.id, os.environ.get("STOKER_PIPELINE"))
        entry = cls.PIPELINE or next(iter(requested), None)
        return schema_of_any() if entry is None else schema_for(entry)

    def setup(self, device: Device) -> None:
        with ColdStart() as start:
            self._set_up(device)
        self.cold_start_s = start.stages_s

    def _set_up(self, device: Device) -> None:
        only = self.PIPELINE
        with stage("verify"):
            selected = selection.select(DECLARATION, device) if only is None else selection.ready(only)
        self.entry = selected.pipeline
        self._digests = {name: locked.digest for name, (locked, _) in selected.loras.items()}
        self._weights = selected.weights
        self.serves = self.entry.description
        self.device = device.torch_device
        loras = {name: folder for name, (_, folder) in selected.loras.items()}
        profile = profiles.chosen(self.entry)
        self.pipeline: ImagePipeline = interface.load(
            self.entry, selected.folder, self.device, profile, loras=loras, reading=selected.reading
        )
        if hasattr(self.pipeline, "warm"):
            with stage("warm up"):
                self.pipeline.warm(warm_sizes.chosen(SIZES), self.entry.defaults)
        self.serves += profiles.without(getattr(self.pipeline, "left_out", {}))
        self.memory = MemoryGauge(self.device)
        with stage("previews"):
            self._previewer = previews.of(self.pipeline, self.entry)

    def concurrency_modifier(self, current: int) -> int:
        """Returns as many jobs as make a batch, where batches pay. That is measured by the first call: before
        the first job, and only where the endpoint allows several at once."""
        if self._batches is None:
            from stoker.models.text_to_image.batching import batches, measured

            self._batches = batches.Batches(self.pipeline, measured.measure(self.pipeline, self.entry))
            log.info("batches: %s", self._batches.batching.reason)
        return self._batches.slots()

    def run(self, job: Job) -> dict[str, Any]:
        with self.memory.job(), self._results.of(job):
            return self._run(job)

    def _run(self, job: Job) -> dict[str, Any]:
        try:
            request = ImageRequest.parse(job.input, schema_for(self.entry), self.entry.choices)
        except InvalidInput as error:
            raise HandlerError(str(error)) from error
        start = start_image.made(job, request.image, request.mask_image, (request.width, request.height))
        references = start_image.references(job, request.images)
        begun = saves.unpacked(job.saved, self._maker)
        if begun is None:
            begun = saves.Begun(secrets.randbelow(SEEDS) if request.seed == -1 else request.seed)
        kept = saves.Saves(job, self._maker, begun, request.num_images)
        made = []
        for number in range(request.num_images):
            seed = (begun.seed + number) % SEEDS_MOST
            parameters = request.parameters(self.entry.defaults, seed, *start, references)
            if number == len(begun.images):
                parameters = replace(parameters, state=begun.state)
            file = self._file_of(job, request, number, parameters, kept)
            made.append({"image_url": file, "seed": parameters.seed})
        job.measure("output_pixels", request.num_images * request.width * request.height)
        several = {"images": made} if request.num_images > 1 else {}
        return {**made[0], **several, **self.entry.output_fields, **self._notes(request, parameters)}

    def _notes(self, request: ImageRequest, parameters: ImageParameters) -> dict[str, Any]:
        of_pipeline: dict[str, Any] = getattr(self.pipeline, "notes", lambda _: {})(parameters)
        return noted(self.entry, request.without_effect(self.entry.defaults), of_pipeline)

    def _file_of(
        self, job: Job, request: ImageRequest, number: int, parameters: ImageParameters, kept: saves.Saves
    ) -> File:
        """Returns the file of one image, whose `number` counts from 0: made by an earlier attempt, or now."""
        several = request.num_images > 1
        if number == len(kept.images):
            on_step = self._reporter(job, {"image": number + 1} if several else {}, kept)
            kept.images.append(self._made(job, request, parameters, on_step))
        path = job.scratch / f"image{f'-{number + 1}' if several else ''}.{request.image_format}"
        path.write_bytes(kept.images[number])
        return File(path, metadata.MEDIA_TYPES[request.image_format])

    def _made(self, job: Job, request: ImageRequest, parameters: ImageParameters, on_step: OnStep) -> bytes:
        """Makes an image; returns the bytes of its file."""
        alone = request.strict or request.num_images > 1
        if self._batches is None:
            image, together = self.pipeline.generate(parameters, on_step), 1
        else:
            image, together = self._batches.make(parameters, on_step, job.raise_if_cancelled, alone=alone)
        about = self._about(parameters) | ({"batch": together} if together > 1 else {})
        return metadata.encode(image, request.image_format, about)

    def _reporter(self, job: Job, which: dict[str, int], kept: saves.Saves) -> OnStep:
        throttle = previews.Throttle()

        def on_step(step: Step) -> None:
            job.raise_if_cancelled()
            job.progress({"step": step.number, "steps": step.of, **which})
            if throttle.due(step, time.monotonic()):
                job.emit({**self._previewer.chunk(step), **which})
            if self._batches is None:
                kept.after(step)

        return on_step

    @functools.cached_property
    def _maker(self) -> str:
        """The makers of the states in its saves: of another one, their bytes may mean something else."""
        made = {"stoker": stoker.__version__, "weights": self._weights.digest, **libraries.versions()}
        return json.dumps({**made, **interface.profile_of(self.pipeline)}, sort_keys=True)

    def _about(self, parameters: ImageParameters) -> dict[str, Any]:
        """Returns how the image was made, for the file; see `metadata`."""
        return {
            "seed": parameters.seed,
            "steps": parameters.steps,
            "guidance": parameters.guidance,
            **self._chosen(parameters),
            "width": parameters.width,
            "height": parameters.height,
            **self.entry.output_fields,
            **interface.profile_of(self.pipeline),
            "weights": f"sha256:{self._weights.digest}",
            "device": self.device,
            "versions": {"stoker": stoker.__version__, **libraries.versions()},
        }

    def _chosen(self, parameters: ImageParameters) -> dict[str, Any]:
        """Returns the fields that are there only if the job chose them."""
        loras = [
            {"name": lora.name, "scale": lora.scale, "weights": f"sha256:{self._digests[lora.name]}"}
            for lora in parameters.loras
        ]
        found = {
            "negative_prompt_factor": parameters.factor,
            "scheduler": parameters.scheduler,
            "loras": loras or None,
            "strength": None if parameters.image is None else parameters.strength,
            "masked": None if parameters.mask is None else True,
            "references": len(parameters.references) or None,
        }
        return {name: value for name, value in found.items() if value is not None}
