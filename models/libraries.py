"""torch, diffusers and transformers, as both hosted models use them. They are imported on the first call."""

from __future__ import annotations

import os


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
