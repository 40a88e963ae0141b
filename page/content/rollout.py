"""A roll-out as it goes: old workers serve until those of the new version are ready. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rollout:
    """The roll-out of a new version. `share`: the part of the workers that is done, from 0 to 1."""

    text: str
    share: float


def rollout(version: int, versions: Sequence[Mapping[str, int]]) -> Rollout | None:
    """Returns the roll-out of a version; None where no earlier one has workers. `versions`: as an endpoint's
    statistics have them."""
    old = sum(one["ready"] + one["others"] for one in versions if one["version"] != version)
    if not old:
        return None
    new = next((one for one in versions if one["version"] == version), {"ready": 0, "others": 0})
    text = f"Version {version}: {new['ready']} ready, {new['others']} not yet; earlier versions: {old}"
    return Rollout(text, new["ready"] / (new["ready"] + old))
