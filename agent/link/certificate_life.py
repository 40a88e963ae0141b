"""The life of a node's certificate: whether another is to be requested, by this host's clock. Pure."""

from __future__ import annotations

from enum import Enum

RENEWED_AFTER = 0.25
"""The part of its life after which a certificate is renewed: three quarters are left for a host that is
off."""


class Life(Enum):
    GOOD = "it is good for longer"
    DUE = "it is good, and to be renewed"
    ENDED = "it has ended"


def life_of(begins_at: float, ends_at: float, now: float) -> Life:
    """Returns where a certificate is in its life. All times are seconds since the epoch. A clock that was set
    back makes nothing due."""
    if now >= ends_at:
        return Life.ENDED
    return Life.DUE if now >= begins_at + RENEWED_AFTER * (ends_at - begins_at) else Life.GOOD
