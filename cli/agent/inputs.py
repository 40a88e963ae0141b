"""The agent's cache of inputs from URLs.

STOKER_INPUT_CACHE_MB           size of the cache on disk, in MB; 1024 by default, 0 keeps nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stoker.agent.jobs.inputs.cache import InputCache
from stoker.cli.errors import CliError
from stoker.outbound.guard import Guard

CACHE_MB = "STOKER_INPUT_CACHE_MB"
_DEFAULT_MB = 1024


def input_cache(folder: Path, variables: Mapping[str, str]) -> InputCache:
    """Creates the cache of inputs. Each job's assignment says whether its inputs may be at private addresses,
    as control's operator allows."""
    text = variables.get(CACHE_MB, str(_DEFAULT_MB))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise CliError(f"{CACHE_MB} must be a whole number of megabytes from 0, not {text!r}")
    guards = {private: Guard(allow_private=private) for private in (False, True)}
    return InputCache(folder / "inputs", int(text) * 1_000_000, guards.__getitem__)
