"""An image pipeline of diffusers behind our interface. A family is a subclass that says what differs.

    generate:  pipe(prompt, steps, …, **arguments) ──> image
                     └ scheduler.step ─> on_step(number, estimate)      raises to stop

A job's scheduler replaces the pipeline's own for its image; its LoRAs are switched (`loras`); from an image,
the library's class for that, or for a part of it, runs on the same components. Images that it looks at are
arguments of the library's pipeline.

The image is what the library's pipeline returns, with no step of ours in between. Its scheduler is watched
while it works: it sees the latents before and after each step, whichever pipeline calls it.

The noise comes from a CPU generator of the request's own, so a seed means the same noise on every machine
(equal bytes also need the same kind of device and the same libraries). torch's CPU generator reads the low 32
bits of a seed. Nothing heavy is imported until it is needed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from stoker.models import finite, libraries
from stoker.models.cold_start import stage
from stoker.models.interface import ImageChoices, ImageDefaults, ImageParameters, OnStep, Step
from stoker.models.speed_ups import attention, block_compile, profiles
from stoker.models.speed_ups.prompt_cache import PromptCache
from stoker.models.speed_ups.speed_up import Loaded
from stoker.models.text_to_image.families.loras import Loras
from stoker.models.text_to_image.families.networks import networks, networks_of
from stoker.models.text_to_image.families.schedulers import Scheduler
from stoker.models.text_to_image.families.step_state import KEEPS_MORE, Begun, state_after
from stoker.models.weights import Reading, alignment

if TYPE_CHECKING:
    import torch
    from PIL import Image

    Report: TypeAlias = Callable[[int, int, Callable[[], torch.Tensor], torch.Tensor], None]


class DiffusersPipeline:
    """A pipeline of diffusers. `pipe` is the library's pipeline: bfloat16 on a GPU, float32 on a CPU.
    `text_tokens` is how many tokens of a prompt the library reads, if it leaves that open. The speed-ups of
    its profile are applied by `warm`; without that call the pipeline is the library's, unchanged."""

    has_profiles: ClassVar[bool] = True

    library_class: ClassVar[str]
    """The class in diffusers."""
    network: ClassVar[str] = "transformer"
    """The component that every step runs."""
    schedulers: ClassVar[Mapping[str, Scheduler]] = {}
    """Those that jobs may choose."""
    from_image_class: ClassVar[str | None] = None
    """The class in diffusers that starts from an image, with the same components."""
    from_image_schedulers: ClassVar[tuple[str, ...]] = ("euler",)
    """The schedulers that it can use."""
    from_mask_class: ClassVar[str | None] = None
    """The class in diffusers that makes a part of an image anew, with the same components and schedulers."""
    references: ClassVar[int] = 0
    """How many images the library's class takes as a list, to look at."""

    def __init__(
        self,
        folder: Path,
        device: str,
        text_tokens: int | None = None,
        loras: Mapping[str, Path] | None = None,
        profile: str = profiles.EXACT,
        reading: Reading | None = None,
    ) -> None:
        """Reads weights from safetensors only; with a `reading`, straight to a GPU. Raises
        attention.AttentionUnavailable, placement.DoesNotFit, and ValueError for an unknown profile or a LoRA
        that is not for this pipeline."""
        at_load = profiles.AT_LOAD in profiles.names(profile)
        straight = reading is not None and device != "cpu" and not at_load
        if reading is not None and not straight:
            reading.ahead()
        libraries.prepare()
        import diffusers
        import torch

        self.text_tokens = text_tokens
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        made: Mapping[str, Any] = {}
        if reading is not None and straight:
            made = networks(folder, reading, device, dtype)
        elif reading is not None:
            with stage("read"):
                reading.wait()
        self.pipe = getattr(diffusers, self.library_class).from_pretrained(
            str(folder),
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            **made,
        )
        if device == "cpu":
            for part in networks_of(self.pipe):
                alignment.align(part)
        self.pipe.set_progress_bar_config(disable=True)
        self._own_scheduler = self.pipe.scheduler
        self.device, self.profile = device, profile
        self.speed_ups: Mapping[str, str] = {}
        self.left_out: Mapping[str, str] = {}
        if not at_load:
            with stage("to device"):
                self.pipe.to(device)
        self._loras = Loras(self.pipe, loras or {})
        if at_load:
            applied = profiles.apply([profiles.AT_LOAD], self._loaded())
            self.speed_ups, self.left_out = applied.done, applied.left_out
        attention.choose(getattr(self.pipe, self.network), device, head_width=self.head_width)

    @classmethod
    def choices(cls) -> ImageChoices:
        """Returns what jobs may choose."""
        can_start = cls.from_image_schedulers if cls.from_image_class else ()
        masks = cls.from_mask_class is not None
        return ImageChoices(tuple(cls.schedulers), can_start, masks, cls.references)

    def warm(self, sizes: Sequence[tuple[int, int]], defaults: ImageDefaults) -> None:
        """Applies the other speed-ups of the profile. On a GPU each size runs once, the largest first."""
        examples: dict[str, Callable[[], object]] = {}
        for width, height in sorted(sizes, key=lambda size: -size[0] * size[1]):
            plain = ImageParameters("a picture", width, height, 1, seed=0, guidance=defaults.guidance)
            examples[f"{width}x{height}"] = functools.partial(self.generate, plain, _ignore)
            if one := self._loras.any:
                changed = replace(plain, loras=(one,))
                examples[f"{width}x{height} with LoRAs"] = functools.partial(self.generate, changed, _ignore)
        loaded = self._loaded(defaults.steps, examples)
        rest = [name for name in profiles.names(self.profile) if name != profiles.AT_LOAD]
        applied = profiles.apply(rest, loaded)
        self.speed_ups = {**self.speed_ups, **applied.done}
        self.left_out = {**self.left_out, **applied.left_out}
        if loaded.on_gpu and not self._is_compiled:
            for example in examples.values():
                example()

    def _loaded(
        self, steps: int = 1, examples: Mapping[str, Callable[[], object]] = MappingProxyType({})
    ) -> Loaded:
        cache = block_compile.cache_folder()
        network = getattr(self.pipe, self.network)
        return Loaded(network, self.pipe.vae, self.device, self.pipe, steps, examples, cache)

    @property
    def _is_compiled(self) -> bool:
        return "block-compile" in self.speed_ups

    @property
    def head_width(self) -> int:
        """The channels of one attention head, for which the implementation of attention is tried."""
        return int(getattr(self.pipe, self.network).config.attention_head_dim)

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        """Returns the library's arguments for guidance and the negative prompt."""
        raise NotImplementedError

    def unpacked(self, latents: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """Returns the pipeline's latents as a picture: (1, channels, rows, columns)."""
        return latents

    def from_image_arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        """Returns the library's arguments for the image from which sampling starts."""
        return {"image": parameters.image, "strength": parameters.strength}

    def generate(self, parameters: ImageParameters, on_step: OnStep) -> Image.Image:
        [image] = self.generate_batch([parameters], lambda _, step: on_step(step))
        return image

    def generate_batch(
        self, batch: Sequence[ImageParameters], on_step: Callable[[int, Step], None]
    ) -> list[Image.Image]:
        """Images that differ in texts and seeds only. `on_step` is called for each, with its position."""
        import torch

        first = batch[0]

        def report(number: int, of: int, estimate: Callable[[], torch.Tensor], latents: torch.Tensor) -> None:
            state = functools.partial(state_after, number, latents, pipe.scheduler, generators[0])
            for index in range(len(batch)):
                shown = functools.partial(picture, estimate, index)
                on_step(index, Step(number, of, shown, state if can_save else None))

        def picture(estimate: Callable[[], torch.Tensor], index: int) -> torch.Tensor:
            return self.unpacked(estimate()[index : index + 1], first.height, first.width)

        generators = [torch.Generator("cpu").manual_seed(parameters.seed) for parameters in batch]
        # The images of a batch are of several jobs, which do not end together.
        can_save = len(batch) == 1 and KEEPS_MORE.isdisjoint(self.speed_ups)
        begun = Begun(first.state, generators[0]) if first.state and can_save else None
        if self._loras.request(first.loras) and isinstance(self.pipe.encode_prompt, PromptCache):
            self.pipe.encode_prompt.forget()  # a LoRA may be of a text encoder, too
        with (
            torch.inference_mode(),
            block_compile.settled(compiled=self._is_compiled),
            self._runner(first) as pipe,
            _passed_over(begun, getattr(self.pipe, self.network)),
            _watched(pipe, report, begun),
            _pixels_checked(pipe.image_processor),
            _freed(pipe),
        ):
            images: list[Image.Image] = pipe(
                num_inference_steps=first.steps,
                generator=generators if len(batch) > 1 else generators[0],
                **_together([self._all_arguments(pipe, parameters) for parameters in batch]),
            ).images
        return images

    def _all_arguments(self, pipe: Any, parameters: ImageParameters) -> dict[str, Any]:
        found: dict[str, Any] = {"prompt": parameters.prompt}
        if self.text_tokens is not None:
            found["max_sequence_length"] = self.text_tokens
        if parameters.image is not None:
            found |= self.from_image_arguments(parameters)
        if parameters.mask is not None:
            found["mask_image"] = parameters.mask
        if parameters.references:
            found["image"] = list(parameters.references)
        if "height" in inspect.signature(pipe.__call__).parameters:  # SDXL takes the image's
            found |= {"height": parameters.height, "width": parameters.width}
        return found | self.arguments(parameters)

    @contextlib.contextmanager
    def _runner(self, parameters: ImageParameters) -> Iterator[Any]:
        """Yields the library's pipeline for this image, with its scheduler."""
        pipe = self.pipe
        if parameters.image is not None:
            pipe = self._from_image if parameters.mask is None else self._from_mask
        name = parameters.scheduler
        pipe.scheduler = self._own_scheduler if name is None else self._scheduler(name)
        try:
            yield pipe
        finally:
            pipe.scheduler = self._own_scheduler

    def _scheduler(self, name: str) -> Any:
        return self.schedulers[name].made(self._own_scheduler)

    @functools.cached_property
    def _from_image(self) -> Any:
        return self._of_the_same_parts(self.from_image_class)

    @functools.cached_property
    def _from_mask(self) -> Any:
        return self._of_the_same_parts(self.from_mask_class)

    def _of_the_same_parts(self, name: str | None) -> Any:
        """Returns another of the library's pipelines, made of the same components, so that no weights are
        loaded twice."""
        import diffusers

        assert name is not None  # the handler refuses an image or a mask otherwise
        library_class = getattr(diffusers, name)
        known = {**self.pipe.config, **self.pipe.components}
        names = inspect.signature(library_class.__init__).parameters
        pipe = library_class(**{name: known[name] for name in names if name in known})
        pipe.set_progress_bar_config(disable=True)
        return pipe


def _together(arguments: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the arguments of one call for a batch: the texts of all, and what else is the same."""
    if len(arguments) == 1:
        return arguments[0]
    return {
        name: [one[name] for one in arguments] if isinstance(value, str) else value
        for name, value in arguments[0].items()
    }


def _ignore(step: Step) -> None:
    pass


@contextlib.contextmanager
def _freed(pipe: Any) -> Iterator[None]:
    """Ends a job that fails or is cancelled as the library ends the others: parts go off the GPU that are
    there only while they run, and what step caches keep of the job is dropped."""
    try:
        yield
    except BaseException:
        pipe.maybe_free_model_hooks()
        raise


def _estimate(
    before: torch.Tensor, after: torch.Tensor, sigmas: tuple[float, float] | None
) -> Callable[[], torch.Tensor]:
    """Returns a function for the latents to which a straight line through a step leads at sigma 0; they show
    less noise than `after`, which is all there is without `sigmas`."""
    if sigmas is None or sigmas[0] == sigmas[1]:
        return lambda: after
    now, later = sigmas
    return lambda: after.float() - later * (after.float() - before.float()) / (later - now)


@contextlib.contextmanager
def _pixels_checked(processor: Any) -> Iterator[None]:
    """Checks what the autoencoder decoded, before the library makes images of it: there, what is not a number
    becomes black. Raises finite.NotFinite."""
    made = processor.postprocess

    @functools.wraps(made)
    def checked(image: torch.Tensor, *rest: Any, **named: Any) -> Any:
        finite.check(image, "pixels")
        return made(image, *rest, **named)

    processor.postprocess = checked
    try:
        yield
    finally:
        del processor.postprocess


def _passed_over(begun: Begun | None, network: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if begun is None else begun.unasked(network)


@contextlib.contextmanager
def _watched(pipe: Any, report: Report, begun: Begun | None) -> Iterator[None]:
    """Calls `report` after each call of `step` of the pipeline's scheduler: its number, of how many, the
    estimate and the latents. A scheduler of the second order makes two calls a step. Those that were made
    before are passed over.

    The step is replaced on this one object, and put back. The callbacks of the library's pipelines would not
    show the latents before the first step, and some pipelines have none."""
    scheduler = pipe.scheduler
    step, sigmas, done = scheduler.step, list[float](), 0

    @functools.wraps(step)  # pipelines look at its parameters
    def watch(output: torch.Tensor, timestep: object, before: torch.Tensor, *rest: Any, **named: Any) -> Any:
        nonlocal done
        if begun is not None and done < begun.done:
            done += 1
            return (begun.passes(scheduler, before),)
        found = step(output, timestep, before, *rest, **named)
        if not sigmas and getattr(scheduler, "order", 1) == 1:
            sigmas.extend(float(sigma) for sigma in getattr(scheduler, "sigmas", ()))
        of = getattr(pipe, "_num_timesteps", len(scheduler.timesteps))
        position = len(scheduler.timesteps) - of + done
        done += 1
        known = done < of and position + 1 < len(sigmas)
        if done == of:
            finite.check(found[0], "latents")
        pair = (sigmas[position], sigmas[position + 1]) if known else None
        report(done, of, _estimate(before, found[0], pair), found[0])
        return found

    scheduler.step = watch
    try:
        yield
    finally:
        del scheduler.step
