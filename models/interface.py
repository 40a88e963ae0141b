"""The interface of pipelines: their descriptions, and the methods that the hosted models call. Imports no
torch.

    PipelineEntry      plain data: the pipeline's name, the hosted model that it runs, weights, defaults
       │ load          its class, called with the folder of the verified weights
       v
    ImagePipeline      generate(parameters, on_step) ──> image
                                │ after each step: Step(number, of, estimate)
                                └─ on_step raises to stop, and generate passes that exception on

    TalkingVideoPipeline   generate(parameters, on_step, go_on) ──> frames, as they are made

The handlers and the previews know a pipeline by these types only. The inputs of a job, their
bounds and their price are the hosted model's (its `declaration`): they stay the same when the pipeline
changes, and each pipeline fills in its own defaults. `docs/swap-a-pipeline.md` adds one step by step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stoker.models.cold_start import stage
from stoker.models.weights.reading import Reading

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from PIL import Image


@dataclass(frozen=True, slots=True)
class ImageDefaults:
    """An image pipeline's use of the steps, the guidance and the negative prompt of a request.

    `steps`: how many, if the request names none. `guidance`: how closely the image follows the prompt, if the
    request does not say; None if the pipeline has no guidance, and a request's is ignored. `negative_prompt`:
    whether the pipeline uses one. `factor`: the weight of the negative prompt's forward where that is not the
    guidance itself: FLUX.1-dev takes its guidance as an input of the network, and its factor must be small.
    """

    steps: int
    guidance: float | None = None
    negative_prompt: bool = False
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class ImageChoices:
    """Choices that a job has with an image pipeline, besides the inputs that all of them take.

    `schedulers`: their names. `from_image`: those which can start from the caller's image; empty if the
    pipeline cannot. `masks`: it can keep a part of that image as it is. `references`: how many images it can
    look at while it makes another; 0 if it cannot.
    """

    schedulers: tuple[str, ...] = ()
    from_image: tuple[str, ...] = ()
    masks: bool = False
    references: int = 0


@dataclass(frozen=True, slots=True)
class Lora:
    """A LoRA that a job uses: its entry in the lock, and how much of it."""

    name: str
    scale: float


@dataclass(frozen=True, slots=True)
class ImageParameters:
    """A single image, with nothing left to choose: within the bounds of the interface, and with the
    pipeline's defaults. `guidance` and `negative_prompt` are None where the pipeline does not use them or
    there is none; `factor` is set only beside a negative prompt. `scheduler` is None for the pipeline's own.
    Sampling starts from `image`, if there is one, which has the width and the height; `strength`, over 0 and
    at most 1, says how much of the image is made again; with a `mask`, of the same size, only where that is
    white. `references`: the images that the prompt is about, each in a size of its own. `more` has the inputs
    that only this pipeline takes. `state`: what an earlier attempt's
    `Step.state` returned, to go on after that step; empty: from the beginning.
    """

    prompt: str
    width: int
    height: int
    steps: int
    seed: int
    guidance: float | None = None
    negative_prompt: str | None = None
    factor: float | None = None
    scheduler: str | None = None
    loras: tuple[Lora, ...] = ()
    image: Image.Image | None = None
    strength: float = 1.0
    mask: Image.Image | None = None
    references: tuple[Image.Image, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    state: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step, counted from 1. `estimate()` returns the latents of the final image as they can be
    reported after this step, exactly after the last step: (1, channels, rows, columns), in any scale, so that
    a linear map of a pixel's channels gives a colour. `state()` returns what it takes to go on after this
    step, to the same image; to be called within `on_step`. None where the pipeline cannot."""

    number: int
    of: int
    estimate: Callable[[], torch.Tensor]
    state: Callable[[], bytes] | None = None


OnStep: TypeAlias = Callable[[Step], None]
"""Called after each step. It raises to stop the pipeline, which then makes no image."""


class ImagePipeline(Protocol):
    """A pipeline on its device, for one job at a time. The class is called with the folder of the weights,
    the torch device ("cpu" or "cuda"), the `options` of its entry, and as `loras` the folders of the entry's
    LoRAs, if it has any; it downloads nothing. The class may have a `choices()` that returns ImageChoices,
    and a pipeline a `notes(parameters)`: what the job's output says of an image, besides the image, with
    sentences for people as `notes`; and a `preview_matrix`: the file of what previews would fit at set-up.

    A class with `has_profiles = True` is also called with `profile=`, the speed-ups to run with, and has the
    attributes and the method of `HasProfiles`. One without runs one way, `exact`."""

    def generate(self, parameters: ImageParameters, on_step: OnStep) -> Image.Image:
        """Returns an image of the requested width and height. The noise depends on the seed only, not on the
        device. Raises what `on_step` raises."""


class BatchPipeline(ImagePipeline, Protocol):
    """An ImagePipeline that also makes several images at once, where its class has this method."""

    def generate_batch(
        self, batch: Sequence[ImageParameters], on_step: Callable[[int, Step], None]
    ) -> list[Image.Image]:
        """Images which differ in their texts and seeds only, and of which none starts from an image. Each has
        the noise that it has alone. `on_step` is called for each, with its position."""


class HasProfiles(Protocol):
    """A pipeline that speed-ups are applied to. `speed_ups`: what was applied, and how."""

    profile: str
    speed_ups: Mapping[str, str]

    def warm(self, sizes: Sequence[tuple[int, int]], defaults: ImageDefaults) -> None:
        """Applies the speed-ups, and runs what is run once for each size (width and height in pixels) that is
        to be quick from the first job on. Called once, after the pipeline was made and before its first job.
        """


@dataclass(frozen=True, slots=True)
class VideoParameters:
    """A single talking video. `image` (H, W, 3): bytes, already in the size that the pipeline generates.
    `samples`: the normalized audio on disk, mono, 16 kHz, with its level (`Samples` of the talking video's
    `audio.speech`). `frames`: how many the video has, 25 a second. `assume_face`: where a pipeline needs a
    face and finds none, it is to take an average one. `begun`: the frames before this one were made by an
    earlier attempt, whose last frames had this `state`."""

    prompt: str
    size: str
    seed: int
    image: NDArray[np.uint8]
    samples: Any
    frames: int
    assume_face: bool = False
    begun: int = 0
    state: bytes = b""


@dataclass(frozen=True, slots=True)
class VideoStep:
    """A finished step of a chunk of the video, both counted from 1."""

    chunk: int
    chunks: int
    number: int
    of: int


@dataclass(frozen=True, slots=True)
class VideoFrames:
    """Frames of the video: (n, 3, H, W) from -1 to 1, on the CPU. `first` is the number of the first;
    `ends_chunk`: these are the last of their chunk. `notes` stand in the job's output. `state`: what it takes
    to make the frames that follow, and no others than without a break; None where that cannot be."""

    first: int
    pixels: torch.Tensor
    ends_chunk: bool
    notes: Mapping[str, Any] = field(default_factory=dict)
    state: bytes | None = None


class TalkingVideoPipeline(Protocol):
    """A pipeline on its device, for one job at a time; made like an ImagePipeline."""

    @property
    def shrink(self) -> int:
        """The sides of the video divided by those of the frames that it generates."""

    @property
    def refused(self) -> Mapping[str, str]:
        """A message for each size that does not fit on this device."""

    def generate(
        self,
        parameters: VideoParameters,
        on_step: Callable[[VideoStep], None],
        go_on: Callable[[], bool],
    ) -> Iterator[VideoFrames]:
        """Yields all frames in order, as they are made. Raises what `on_step` raises; ends early once `go_on`
        returns False, which it may ask within a step."""


@dataclass(frozen=True, slots=True)
class PipelineNeeds:
    """The needs of a pipeline on a GPU host, unless the operator says otherwise. `gpu_memory_gb`: the least
    memory of each GPU, in GB, with the weights as they are published; `saving_gb`: with the profile
    `low-memory`. `gpu_types` are the drivers' names of GPUs, the best first; none: any will do."""

    gpu_memory_gb: int = 0
    saving_gb: int = 0
    gpu_types: tuple[str, ...] = ()
    gpu_count: int = 1


@dataclass(frozen=True, slots=True)
class PipelineEntry:
    """A named way to run a hosted model.

    `model` is the hosted model that it runs; `load` the class of the pipeline, whose module loads torch
    only when it is called (None: InfiniteTalk, for talking videos); `options` its further arguments.
    `weights` is an entry of weights.lock, which also names the licence, or of the file `lock` if that is
    given. `defaults`, `inputs` and `loras` are for image pipelines: the inputs that it takes besides those of
    the hosted model, or with other bounds, as JSON Schema by name; and the entries of the lock whose LoRAs
    jobs may choose. `needs` is what a node must have for it. `profile` is the set of speed-ups, unless
    STOKER_PROFILE names another (`exact`: none that changes what is seen). `small`: made for a host without a
    GPU, and chosen by itself only there.
    `made_up`: Stoker makes its weights itself. They are small, and the output shows that all parts work, not
    what the prompt describes.
    """

    name: str
    model: str
    weights: str
    load: Callable[..., Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    defaults: ImageDefaults = field(default=ImageDefaults(steps=28))
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    loras: tuple[str, ...] = ()
    needs: PipelineNeeds = field(default=PipelineNeeds())
    profile: str = "exact"
    small: bool = False
    made_up: bool = False
    about: str = ""
    lock: Path | None = None

    @property
    def choices(self) -> ImageChoices:
        """The choices that its class gives to jobs."""
        choices = getattr(self.load, "choices", ImageChoices)
        found: ImageChoices = choices()
        return found

    @property
    def output_fields(self) -> dict[str, Any]:
        """The fields that name it in a job's output and in the comment of a video file."""
        return {"pipeline": self.name, **({"made_up_weights": True} if self.made_up else {})}

    @property
    def description(self) -> str:
        """A description for logs and for `serves`."""
        return f"{self.name}{', whose weights are made up' if self.made_up else ''} ({self.about})"


def profile_of(pipeline: object) -> dict[str, Any]:
    """Returns the profile of a pipeline and which of its speed-ups were applied, for the file of a result."""
    profile, applied = getattr(pipeline, "profile", "exact"), getattr(pipeline, "speed_ups", {})
    return {"profile": profile, "speed_ups": dict(applied)}


def load(
    entry: PipelineEntry,
    folder: Path,
    device: str,
    profile: str = "exact",
    otherwise: Callable[..., Any] | None = None,
    loras: Mapping[str, Path] | None = None,
    reading: Reading | None = None,
) -> Any:
    """Returns the pipeline of an entry, with its verified weights, on a torch device, as its profile places
    the pipeline. `otherwise` makes that of an entry without a class; `loras` are the verified folders of its
    LoRAs. The `reading` of its weights is finished when this returns, and before a class is called that does
    not take a reading; None if the weights are verified. Raises LookupError if there is no class, and
    weights.WeightsRefused."""
    made = entry.load or otherwise
    if made is None:
        raise LookupError(f"the pipeline {entry.name} names no class that loads it")
    more: dict[str, Any] = {"loras": loras} if loras else {}
    if getattr(made, "has_profiles", False):
        more["profile"] = profile
    if reading is None:
        return made(folder, device, **entry.options, **more)
    if "reading" in inspect.signature(made).parameters:
        more["reading"] = reading
    else:
        reading.ahead()
        with stage("read"):
            reading.finish()  # one that does not know of it may compute at once
    try:
        with stage("build"):
            pipeline = made(folder, device, **entry.options, **more)
    except Exception:
        reading.finish()  # raises if altered weights are the reason
        raise
    with stage("verify"):
        reading.finish()
    return pipeline
