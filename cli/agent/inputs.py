"""The cache of URL inputs of the agent process, as its environment says.

STOKER_INPUT_CACHE_MB           what it keeps of them on disk, 1024 without it; 0 keeps nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stoker.agent.input_cache import InputCache
from stoker.cli.errors import CliError
from stoker.outbound.guard import Guard

CACHE_MB = "STOKER_INPUT_CACHE_MB"
_KEPT_MB = 1024


def input_cache(folder: Path, given: Mapping[str, str]) -> InputCache:
    """Private addresses are opened by the assignment of a job, which says what control's operator allows."""
    text = given.get(CACHE_MB, str(_KEPT_MB))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise CliError(f"{CACHE_MB} must be a whole number of megabytes from 0, not {text!r}")
    guards = {private: Guard(allow_private=private) for private in (False, True)}
    return InputCache(folder / "inputs", int(text) * 1_000_000, guards.__getitem__)
