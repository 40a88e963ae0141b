"""A leader and a spare control on one store, seed by seed: killed, paused, cut off, stopped, and their server
restarted. What holds for one control holds for two; and planted bugs of the lead are found."""

from __future__ import annotations

import pytest

from tests.simulation.test_story import run_code, simulate
from tests.simulation.two_controls.plants import OF_TWO_CONTROLS

QUICK_SEEDS, SEEDS = 4, 150
TAKES_OVER = 3
"""A seed in whose story the spare takes over."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seeds",
    [range(QUICK_SEEDS), pytest.param(range(QUICK_SEEDS, SEEDS), marks=pytest.mark.slow)],
    ids=["the first", "the others"],
)
def test_the_fixed_seeds_hold(seeds: range) -> None:
    result = simulate("--first", str(seeds.start), "--number", str(len(seeds)), "--spare")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_spare_takes_over_in_a_story() -> None:
    told = run_code(f"print(*play({TAKES_OVER}, spare=True, tracing=True).lines, sep='\\n')")
    leads = [line for line in told.splitlines() if line.endswith(" leads")]
    assert len(leads) > 1


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TWO_CONTROLS)
def test_a_planted_bug_of_the_lead_is_found(name: str) -> None:
    result = simulate("--plant", name, "--number", "100")
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
