"""The agent's pure modules that are held to checks, and the checks of each: `checks_<module>.py` in
the folder of its tests."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from tests.load_module import load_module

MODULES = (
    "jobs.attempts.attempt_machine",
    "jobs.attempts.chunks",
    "jobs.attempts.running_attempt",
    "host.devices.health",
    "host.devices.memory_gate",
    "pods.pod_machine",
    "jobs.reports.outbox",
    "workers.lifecycle.process_machine",
    "workers.lifecycle.recycle_policy",
    "workers.lifecycle.restarts",
    "workers.lifecycle.usage",
    "workers.zygotes.zygote_machine",
)
CHECKED = {module: importlib.import_module(f"stoker.agent.{module}") for module in MODULES}


def load_checks(name):
    """`EXAMPLES` are its functions that take the module alone and return nothing, so that none is forgotten;
    `ALL` are these and its `RANDOM` ones."""
    folder, module = name.replace(".", "/").rsplit("/", 1)
    checks = load_module(f"agent_checks_{module}", Path(__file__).parent / folder / f"checks_{module}.py")
    checks.EXAMPLES = [made for made in vars(checks).values() if _is_example(made, checks.__name__)]
    checks.ALL = [*checks.EXAMPLES, *getattr(checks, "RANDOM", ())]
    return checks


def _is_example(made, module):
    if not inspect.isfunction(made) or made.__module__ != module:
        return False
    signature = inspect.signature(made)
    return list(signature.parameters) in (["m"], ["machine"]) and signature.return_annotation == "None"
