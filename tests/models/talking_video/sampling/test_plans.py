"""Plan, sizes, schedule, stretches: properties, and mutants of the modules, which the same ones notice."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from stoker.models.talking_video.audio import stretches
from stoker.models.talking_video.sampling import chunks, schedule, settings
from stoker.models.talking_video.video import sizes
from tests.models.talking_video.sampling import checks_plan, checks_schedule, checks_sizes, checks_stretches
from tests.mutants import mutant

MODULES = {"chunks": chunks, "sizes": sizes, "schedule": schedule, "stretches": stretches}
CHECKS: dict[str, Any] = {
    "chunks": checks_plan,
    "sizes": checks_sizes,
    "schedule": checks_schedule,
    "stretches": checks_stretches,
}


@pytest.mark.parametrize(
    ("module", "check"),
    [
        pytest.param(MODULES[name], check, id=f"{name}-{check.__name__}")
        for name, checks in CHECKS.items()
        for check in checks.ALL
    ],
)
@pytest.mark.slow
@pytest.mark.numbers
def test_holds(module: ModuleType, check: Callable[[Any], None]) -> None:
    check(module)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param(name, old, new, id=f"{name}-{mutant_name}")
        for name, checks in CHECKS.items()
        for mutant_name, old, new in checks.MUTANTS
    ],
)
@pytest.mark.slow
@pytest.mark.numbers
def test_mutant_is_killed(name: str, old: str, new: str) -> None:
    broken = mutant(MODULES[name], old, new)
    for check in (*(getattr(check, "few", check) for check in CHECKS[name].ALL), *CHECKS[name].ALL):
        try:
            check(broken)
        except Exception:
            return
    pytest.fail("no check notices this mutant")


def test_settings_take_the_documented_forwards() -> None:
    forwards = {
        name: one.steps * len(schedule.forwards(one.guidance)) for name, one in settings.SETTINGS.items()
    }
    assert forwards["published"] == 40 * 3
    assert forwards["distilled"] == 8 * 2
    assert all(one.name == name for name, one in settings.SETTINGS.items())
    assert all(set(one.shift) == set(sizes.BUCKETS) for one in settings.SETTINGS.values())
