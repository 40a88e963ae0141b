"""torch, diffusers and transformers, as both hosted models use them. They are imported on the first call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

ENV: Final[Mapping[str, str]] = MappingProxyType({"HF_HUB_OFFLINE": "1", "GOMP_SPINCOUNT": "10000"})
"""The variables that the libraries read on import. The hub's library stays off the network. The threads of
torch that wait for one another go round in circles for some microseconds only, and then sleep: by default
they keep the core on which the other would run, if another process has the second one, for milliseconds. To
sleep at once would double the time of a small image on a machine that does nothing else."""


def prepare() -> None:
    """Keeps the libraries off the network, and out of the log: their warnings quote prompts."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import diffusers
    import transformers

    for library in (transformers, diffusers):
        library.utils.logging.disable_progress_bar()
        library.utils.logging.set_verbosity_error()


def versions() -> dict[str, str]:
    import diffusers
    import torch
    import transformers

    return {
        "diffusers": diffusers.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
