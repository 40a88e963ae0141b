"""The schedulers that jobs may choose, by the names that the field uses, as classes of diffusers.

Each family lists those that its pipeline in diffusers runs. All of them are deterministic but for noise that
they draw from the job's own generator, so the same seed gives the same image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A class of diffusers, and what it is configured with besides what the pipeline's own scheduler is."""

    library_class: str
    more: Mapping[str, Any] = field(default_factory=dict)

    def made(self, own: Any) -> Any:
        """Makes a scheduler with the configuration of the pipeline's `own`."""
        import diffusers

        return getattr(diffusers, self.library_class).from_config(own.config, **self.more)


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
