"""Scheduler configurations as the models' publishers ship them, less what diffusers has by default."""

from __future__ import annotations

from typing import Any, Final

_DYNAMIC: Final = {"base_image_seq_len": 256, "base_shift": 0.5, "max_image_seq_len": 4096, "max_shift": 1.15}

FLOW: Final[dict[str, dict[str, Any]]] = {
    "flux-1-dev": {**_DYNAMIC, "shift": 3.0, "use_dynamic_shifting": True},
    "flux-1-schnell": {**_DYNAMIC, "shift": 1.0, "use_dynamic_shifting": False},
    "flux-2-klein-4b": {**_DYNAMIC, "shift": 3.0, "use_dynamic_shifting": True},
    "qwen-image": {
        **_DYNAMIC,
        "max_image_seq_len": 8192,
        "max_shift": 0.9,
        "shift": 1.0,
        "shift_terminal": 0.02,
        "use_dynamic_shifting": True,
    },
    "sd-3.5-large": {"shift": 3.0},
    "z-image-turbo": {"shift": 3.0, "use_dynamic_shifting": False},
}
"""Of FlowMatchEulerDiscreteScheduler, by pipeline."""

DIFFUSION: Final[dict[str, dict[str, Any]]] = {
    "sdxl": {
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "beta_start": 0.00085,
        "clip_sample": False,
        "interpolation_type": "linear",
        "num_train_timesteps": 1000,
        "prediction_type": "epsilon",
        "sample_max_value": 1.0,
        "set_alpha_to_one": False,
        "skip_prk_steps": True,
        "steps_offset": 1,
        "timestep_spacing": "leading",
        "use_karras_sigmas": False,
    },
}
"""Of EulerDiscreteScheduler, by pipeline; with what only other schedulers read."""
