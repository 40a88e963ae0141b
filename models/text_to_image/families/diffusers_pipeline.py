"""An image pipeline of diffusers behind our interface. A family is a subclass that says what differs.

    generate:  pipe(prompt, steps, …, **arguments) ──> image
                     └ scheduler.step ─> on_step(number, estimate)      raises to stop

The image is what the library's pipeline returns, with no step of ours in between. Its scheduler is watched
while it works: it sees the latents before and after each step, whichever pipeline calls it.

The noise comes from a CPU generator of the request's own, so a seed means the same noise on every machine
(equal bytes also need the same kind of device and the same libraries). torch's CPU generator reads the low 32
bits of a seed. Nothing heavy is imported until it is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from stoker.models import attention, libraries
from stoker.models.interface import ImageParameters, OnStep, Step

if TYPE_CHECKING:
    import torch
    from PIL import Image

    Report: TypeAlias = Callable[[int, int, Callable[[], torch.Tensor]], None]


class DiffusersPipeline:
    """`pipe` is the library's pipeline: bfloat16 on a GPU, float32 on a CPU. `text_tokens` is how many tokens
    of a prompt it reads, if it leaves that open."""

    library_class: ClassVar[str]
    """The class in diffusers."""
    network: ClassVar[str] = "transformer"
    """The component that every step runs."""

    def __init__(self, folder: Path, device: str, text_tokens: int | None = None) -> None:
        """Reads weights from safetensors only. Raises attention.AttentionUnavailable."""
        libraries.prepare()
        import diffusers
        import torch

        self.text_tokens = text_tokens
        self.pipe = getattr(diffusers, self.library_class).from_pretrained(
            str(folder),
            dtype=torch.float32 if device == "cpu" else torch.bfloat16,
            local_files_only=True,
            use_safetensors=True,
        )
        self.pipe.set_progress_bar_config(disable=True)
        self.pipe.to(device)
        attention.choose(getattr(self.pipe, self.network), device, head_width=self.head_width)

    @property
    def head_width(self) -> int:
        """The channels of one attention head, for which the implementation of attention is tried."""
        return int(getattr(self.pipe, self.network).config.attention_head_dim)

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        """The library's arguments for guidance and the negative prompt."""
        raise NotImplementedError

    def unpacked(self, latents: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """The pipeline's latents as a picture: (1, channels, rows, columns)."""
        return latents

    def generate(self, parameters: ImageParameters, on_step: OnStep) -> Image.Image:
        import torch

        height, width = parameters.height, parameters.width
        tokens = {} if self.text_tokens is None else {"max_sequence_length": self.text_tokens}

        def report(number: int, of: int, estimate: Callable[[], torch.Tensor]) -> None:
            on_step(Step(number, of, lambda: self.unpacked(estimate(), height, width)))

        with torch.inference_mode(), _watched(self.pipe.scheduler, report):
            image: Image.Image = self.pipe(
                prompt=parameters.prompt,
                height=height,
                width=width,
                num_inference_steps=parameters.steps,
                generator=torch.Generator("cpu").manual_seed(parameters.seed),
                **tokens,
                **self.arguments(parameters),
            ).images[0]
        return image


def _estimate(
    before: torch.Tensor, after: torch.Tensor, sigmas: list[float], step: int
) -> Callable[[], torch.Tensor]:
    """The latents to which a straight line through a step leads at sigma 0; they show less noise than
    `after`, which a scheduler without sigmas gives itself."""
    if not sigmas:
        return lambda: after
    now, later = sigmas[step], sigmas[step + 1]
    return lambda: after.float() - later * (after.float() - before.float()) / (later - now)


@contextlib.contextmanager
def _watched(scheduler: Any, report: Report) -> Iterator[None]:
    """Calls `report` after each call of `scheduler.step`: its number, of how many, and the estimate.

    The step is replaced on this one object, and put back. The callbacks of the library's pipelines would not
    show the latents before the first step, and some pipelines have none."""
    step, sigmas, done = scheduler.step, list[float](), 0

    def watch(output: torch.Tensor, timestep: object, before: torch.Tensor, *rest: Any, **named: Any) -> Any:
        nonlocal done
        found = step(output, timestep, before, *rest, **named)
        if not sigmas:
            sigmas.extend(float(sigma) for sigma in getattr(scheduler, "sigmas", ()))
        done += 1
        report(done, len(scheduler.timesteps), _estimate(before, found[0], sigmas, done - 1))
        return found

    scheduler.step = watch
    try:
        yield
    finally:
        del scheduler.step
