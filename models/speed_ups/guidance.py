"""Guidance that is computed in another way. Lossy, and not quicker: it is chosen for what is seen."""

from __future__ import annotations

from stoker.models.speed_ups.speed_up import Loaded, NotHere


def apg(loaded: Loaded) -> str:
    """Applies adaptive projected guidance to talking videos, with which colours saturate less."""
    if not hasattr(loaded.pipe, "project_guidance"):
        raise NotHere("it is for InfiniteTalk's guidance")
    how: str = loaded.pipe.project_guidance()
    return how
