"""Hypothesis profiles: `quick` draws the same fifth of the examples in each run, `full` the same whole number
(`make test-slow` runs all tests with examples so), and `search` others in each run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("full", settings.get_profile("search"), derandomize=True)
settings.register_profile("quick", settings.get_profile("full"), max_examples=20)
settings.load_profile("quick")


def examples(full: int) -> int:
    """For `max_examples`: all of them, or a fifth in the quick profile."""
    return max(full // 5, 10) if settings.get_current_profile_name() == "quick" else full
