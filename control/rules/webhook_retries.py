"""Retries of webhooks: when a delivery is tried again. Pure.

Three tries, ten seconds apart. A receiver that answers 200 has it; any other answer is a failed try, and so
is none.
"""

from __future__ import annotations

TRIES = 3
RETRY_S = 10.0
_OK = 200


def is_delivered(status: int) -> bool:
    """Returns whether the receiver's answer means that it has the webhook."""
    return status == _OK


def next_try_at(failed: int, now: float) -> float | None:
    """Returns when a webhook is tried again after this many failures, the last of them now; None: no more."""
    return now + RETRY_S if failed < TRIES else None
