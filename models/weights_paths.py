"""The paths of weights on this host: the folder of all models, and variables of the environment.

Apart from `models.weights`, which agents import with the first weights that they look at.
"""

from __future__ import annotations

import os
from pathlib import Path

WEIGHTS_DIR = "STOKER_WEIGHTS_DIR"
LOCK = "STOKER_WEIGHTS_LOCK"
"""The path of a lock beside the installation, which an upgrade leaves alone."""


def weights_folder() -> Path:
    """Returns the folder of all models (see `weights.folder_of`): STOKER_WEIGHTS_DIR, or the user's cache."""
    chosen = os.environ.get(WEIGHTS_DIR)
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "stoker" / "weights"
