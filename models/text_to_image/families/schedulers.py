"""The schedulers that jobs may choose, by the names that the field uses, as classes of diffusers.

Each family lists those that its pipeline in diffusers runs. All of them are deterministic but for noise that
they draw from the job's own generator, so the same seed gives the same image.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A class of diffusers, and what it is configured with besides what the pipeline's own scheduler is.

    The schedulers for flow matching call the own one's `shift` `flow_shift`."""

    library_class: str
    more: Mapping[str, Any] = field(default_factory=dict)

    def made(self, own: Any) -> Any:
        """Makes a scheduler with the configuration of the pipeline's `own`."""
        import diffusers

        library_class = getattr(diffusers, self.library_class)
        if "use_flow_sigmas" not in self.more or own.config.get("use_dynamic_shifting"):
            return library_class.from_config(own.config, **self.more)
        made = library_class.from_config(own.config, flow_shift=own.config.shift, **self.more)
        made.set_timesteps = _without_mu(made.set_timesteps)
        return made


def _without_mu(set_timesteps: Callable[..., None]) -> Callable[..., None]:
    """Returns `set_timesteps` for a fixed shift. FLUX's pipeline gives every scheduler the `mu` of a shift by
    size; euler ignores it where the shift is fixed, and DPMSolverMultistepScheduler ends the job."""

    @functools.wraps(set_timesteps)  # pipelines look at its parameters
    def fixed(*arguments: Any, mu: float | None = None, **named: Any) -> None:
        set_timesteps(*arguments, **named)

    return fixed


_FLOW: Final = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}

FLOW_MATCHING: Final[Mapping[str, Scheduler]] = {
    "euler": Scheduler("FlowMatchEulerDiscreteScheduler"),
    "heun": Scheduler("FlowMatchHeunDiscreteScheduler"),
    "dpm++2m": Scheduler("DPMSolverMultistepScheduler", _FLOW),
    "unipc": Scheduler("UniPCMultistepScheduler", _FLOW),
}
"""For networks that predict a velocity. `heun` calls the network twice a step."""

DIFFUSION: Final[Mapping[str, Scheduler]] = {
    "euler": Scheduler("EulerDiscreteScheduler"),
    "euler-a": Scheduler("EulerAncestralDiscreteScheduler"),
    "heun": Scheduler("HeunDiscreteScheduler"),
    "dpm++2m": Scheduler("DPMSolverMultistepScheduler"),
    "dpm++2m-karras": Scheduler("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
    "dpm++2m-sde": Scheduler("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    "unipc": Scheduler("UniPCMultistepScheduler"),
    "ddim": Scheduler("DDIMScheduler"),
}
"""For networks that predict the noise."""

NAMES: Final = tuple(sorted({*FLOW_MATCHING, *DIFFUSION}))


def some(of: Mapping[str, Scheduler], *names: str) -> dict[str, Scheduler]:
    return {name: of[name] for name in names}
