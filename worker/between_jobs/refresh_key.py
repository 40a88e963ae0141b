"""The key of an output by which a handler asks for a fresh worker after its job."""

from __future__ import annotations

from typing import Any

REFRESH_KEY = "refresh_worker"
"""A key, true or false, of an output that is an object. It is for the platform; callers do not see it."""

REFRESH = "the handler asked for a fresh worker (refresh_worker)"


def without_refresh_key(output: Any) -> tuple[Any, bool]:
    """Returns the output that the caller gets, and whether the output asked for a fresh worker."""
    if not isinstance(output, dict) or not isinstance(output.get(REFRESH_KEY), bool):
        return output, False
    return {key: value for key, value in output.items() if key != REFRESH_KEY}, output[REFRESH_KEY]
